"""Memory that reacts: attributes of pages, access logs, and the functions that handle their records."""

from __future__ import annotations

import atexit
import enum
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._errors import Error, check, silent_in_child
from ._integers import count as _count
from ._integers import number
from ._library import ffi, lib
from ._operation import Operation
from ._process import ProcessObject
from ._token import c_token

if TYPE_CHECKING:
    from ._node import Node
    from ._remote import Remote

# PW_TO_END and PW_ALL_DOMAINS (pagewire.h).
TO_END = 2**64 - 1
ALL_DOMAINS = 2**32 - 1

# Of the logs of one process.
MOST_DOMAIN = 1023


class AccessKind(enum.IntEnum):
    """What an access does."""

    PUT = lib.PW_ACCESS_PUT
    GET = lib.PW_ACCESS_GET
    FETCH_ADD = lib.PW_ACCESS_FETCH_ADD
    COMPARE_SWAP = lib.PW_ACCESS_COMPARE_SWAP


class Access:
    """An access of a peer, or a part of one: a long access is several records with the same `message`."""

    __slots__ = ("data", "address", "length", "source", "stamp", "kind", "flags", "message", "key", "domain")

    def __init__(self, access: Any) -> None:
        #: What was written or returned, or the operands of an atomic, 8 bytes each. Empty: data are not logged.
        self.data: bytes = bytes(ffi.buffer(access.data, access.data_length)) if access.data_length else b""
        #: First byte, in this process. See offset_in().
        self.address = int(ffi.cast("uintptr_t", access.address))
        #: Bytes that were accessed.
        self.length = int(access.length)
        #: Who accesses: a number that no other source of the log has at the same time. See Node.source().
        self.source = int(access.source)
        #: When it began, in nanoseconds of time.monotonic_ns().
        self.stamp = int(access.stamp)
        #: What it does.
        self.kind = AccessKind(access.operation)
        self.flags = int(access.flags)
        #: All records of one message have this number, and the next message of the source has another one.
        self.message = int(access.message)
        #: The key of the token by which it was made.
        self.key = int(access.key)
        #: The user domain of the pages.
        self.domain = int(access.domain)

    def value(self, dtype: DTypeLike) -> Any:
        """The first bytes of the data as a value. None: there are fewer."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.data, kind, 1)[0] if len(self.data) >= kind.itemsize else None

    def array(self, dtype: DTypeLike) -> NDArray[Any]:
        """The data as elements of a type."""
        return np.frombuffer(self.data, dtype)

    def offset_in(self, array: NDArray[Any]) -> int:
        """How many bytes behind the beginning of an array it begins."""
        return self.address - int(array.ctypes.data)

    @property
    def is_first(self) -> bool:
        """The message begins with it."""
        return bool(self.flags & lib.PW_FIRST)

    @property
    def is_last(self) -> bool:
        """The message ends with it."""
        return bool(self.flags & lib.PW_LAST)

    @property
    def was_refused(self) -> bool:
        """The caller got an error, and nothing moved."""
        return bool(self.flags & lib.PW_REFUSED)

    @property
    def was_redirected(self) -> bool:
        """Its bytes are here, and not in memory."""
        return bool(self.flags & lib.PW_REDIRECTED)

    @property
    def may_have_written(self) -> bool:
        """Nobody knows whether it was made: its source has died in its midst, or takes too long."""
        return bool(self.flags & lib.PW_MAY_HAVE_WRITTEN)

    @property
    def was_repeated(self) -> bool:
        """A get that was logged before: its answer was lost or late, so it was executed once more."""
        return bool(self.flags & lib.PW_REPEATED)

    def __repr__(self) -> str:
        return f"<Access: {self.kind.name} of {self.length} bytes by source {self.source}>"


Handler = Callable[[Access], object]


class Counts(NamedTuple):
    """What was done with a log."""

    #: Records that the handler was called with.
    handled: int
    #: Of these: the handler has raised an exception.
    failed: int


class Faults(NamedTuple):
    """What was in the fault log."""

    records: list[Access]
    #: How many found no space there since the beginning.
    dropped: int


class _Call:
    """What stands behind the context of a handler."""

    def __init__(self, handler: Handler) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is called with each access, and {handler!r} cannot be called")
        self.handler = handler
        self.is_polling = False
        self.interrupt: KeyboardInterrupt | None = None


# One for all: the context says whom to call. It takes the GIL.
@ffi.callback("void(void *, const pw_access *)")  # type: ignore[untyped-decorator, unused-ignore]
def _handle(context: Any, access: Any) -> None:
    call: _Call | None = None
    try:
        call = ffi.from_handle(context)
        call.handler(Access(access))
    except BaseException as failure:
        lib.pw_handler_failed(ffi.NULL)
        if isinstance(failure, KeyboardInterrupt) and call is not None and call.is_polling:
            call.interrupt = failure
            return
        kind, value, trace = sys.exc_info()
        threading.excepthook(threading.ExceptHookArgs((kind, value, trace, None)))


class Serving(ProcessObject):
    """A thread that calls a handler with each record of a log. It goes on until it is ended, its log is closed, or the program ends. `with` ends it."""

    _what = "serving"

    def __init__(self, start: Callable[[Any, Any, Any], int], handler: Handler) -> None:
        super().__init__()
        self._handle: Any = None
        self._counts = Counts(0, 0)
        # The thread has its address.
        self._context = ffi.new_handle(_Call(handler))
        place = ffi.new("pw_serving **")
        check(start(_handle, self._context, place))
        self._handle = place[0]
        _servings.add(self)

    @property
    def counts(self) -> Counts:
        """What it has done so far."""
        self._check_process()
        if self._handle is not None:
            place = ffi.new("pw_counts *")
            check(lib.pw_serving_counts(self._handle, place))
            self._counts = Counts(place.handled, place.failed)
        return self._counts

    def end(self) -> Counts:
        """Ends it when its handler has returned; records that come later stay in the log. The handler itself may call it, and is called no more
        then. Nothing is done if it has ended."""
        if self._handle is not None:
            self._check_process()
        handle, self._handle = self._handle, None
        if handle is not None:
            place = ffi.new("pw_counts *")
            check(lib.pw_serving_end(handle, place))
            self._counts = Counts(place.handled, place.failed)
        return self._counts

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            lib.pw_serving_end(handle, ffi.NULL)


_servings: weakref.WeakSet[Serving] = weakref.WeakSet()


@atexit.register
def _end_servings() -> None:
    """Their threads must not call handlers when the interpreter ends."""
    for serving in list(_servings):
        with silent_in_child():
            serving.end()


class AccessLog(ProcessObject):
    """What peers did to pages that name it. The node keeps it until close() or leave(). `with` closes it."""

    _what = "access log"

    def __init__(self, node: Node, size: int, sources: int, ordered: bool) -> None:
        super().__init__()
        self._handle: Any = None
        self._servings: list[Serving] = []
        order = lib.PW_ORDERED if ordered else lib.PW_UNORDERED
        place = ffi.new("pw_log **")
        check(lib.pw_log_make(node._open(), _count(size, "bytes"), _count(sources, "sources"), order, place))
        self._handle = place[0]
        self._logs = node._logs
        self._logs.add(self)

    def _open(self) -> Any:
        self._check_process()
        if self._handle is None:
            raise ValueError("the access log is closed")
        return self._handle

    @property
    def domain(self) -> int:
        """The user domain of its pages, by which flush_handled() of peers names it."""
        return int(lib.pw_log_domain(self._open()))

    def poll(self, handler: Handler, most: int | None = None) -> Counts:
        """Calls a handler with the records that there are, one after the other. It does not wait. most: for how many at most.

        An exception of the handler is counted and given to threading.excepthook, and the log goes on; but KeyboardInterrupt is raised.
        """
        if most is not None:
            most = _count(most, "records")
        handled = failed = 0
        call = _Call(handler)
        call.is_polling = True
        context, counts = ffi.new_handle(call), ffi.new("pw_counts *")
        while most is None or handled < most:
            # One at a time, so that Ctrl-C is seen between them.
            check(lib.pw_log_poll(self._open(), 1, _handle, context, counts))
            handled, failed = handled + counts.handled, failed + counts.failed
            if call.interrupt is not None:
                raise call.interrupt
            if counts.handled == 0:
                break
        return Counts(handled, failed)

    def serve(self, handler: Handler, *, threshold: int = 1, interval: float = 0.1, polling: bool = False) -> Serving:
        """Calls a handler with each record as it comes, in a thread of its own, which sleeps while there is none: until a source has `threshold` records,
        or for `interval` seconds. polling=True: it never sleeps, and wants a processor of its own.

        An exception of the handler is counted and given to threading.excepthook, and the log goes on.
        """
        log = self._open()
        if polling:
            start = lambda call, context, place: lib.pw_log_serve_polling(log, call, context, place)
        else:
            nanoseconds = max(1, min(int(interval * 1e9), TO_END)) if interval > 0 else 0
            events = ffi.new("pw_events *", {"threshold": _count(threshold, "records"), "interval": nanoseconds})
            start = lambda call, context, place: lib.pw_log_serve(log, events, call, context, place)
        serving = Serving(start, handler)
        self._servings = [running for running in self._servings if running._handle is not None] + [serving]
        return serving

    def close(self) -> None:
        """Ends its servings, and the log: its pages refuse what they would have redirected. Nothing is done if it was closed before."""
        if self._handle is None:
            return
        self._check_process()
        for serving in self._servings:
            serving.end()
        # A handler cannot close its own log: it stays then.
        check(lib.pw_log_free(self._handle))
        self._handle = None
        self._servings.clear()
        self._logs.discard(self)

    def __enter__(self) -> AccessLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            self._servings.clear()
            lib.pw_log_free(handle)


class Attributes:
    """Attributes of pages that are being described. They count when one of to(), to_fault_log() and set() returns. What is not named is as in ordinary memory,
    whatever it was before."""

    def __init__(self, node: Node, token: bytes, offset: int, length: int) -> None:
        self._node = node
        self._token = token
        self._bytes = offset, length
        self._bits = 0

    def _with(self, bit: int) -> Attributes:
        self._bits |= bit
        return self

    def redirect_puts(self) -> Attributes:
        """Puts go to the log with their data, and not to memory."""
        return self._with(lib.PW_REDIRECT_PUTS)

    def refuse_puts(self) -> Attributes:
        """Puts and atomics are refused: the caller gets an error."""
        return self._with(lib.PW_REFUSE_PUTS)

    def refuse_gets(self) -> Attributes:
        """Gets and atomics are refused: the caller gets an error."""
        return self._with(lib.PW_REFUSE_GETS)

    def log_puts(self) -> Attributes:
        """Puts and atomics are logged, without data."""
        return self._with(lib.PW_LOG_PUTS)

    def log_put_data(self) -> Attributes:
        """Puts and atomics are logged with what they write, or their operands."""
        return self._with(lib.PW_LOG_PUT_DATA)

    def log_gets(self) -> Attributes:
        """Gets are logged, without data."""
        return self._with(lib.PW_LOG_GETS)

    def log_get_data(self) -> Attributes:
        """Gets are logged with what they return."""
        return self._with(lib.PW_LOG_GET_DATA)

    def to(self, log: AccessLog) -> None:
        """Sets them, with records in a log. When it returns, later accesses obey."""
        self._set(self._bits, log._open())

    def to_fault_log(self) -> None:
        """Sets them, with records in the fault log of the process, without data."""
        self._set(self._bits, ffi.NULL)

    def set(self) -> None:
        """Sets attributes that log nothing: ordinary pages, or pages that refuse gets or puts."""
        self._set(self._bits & (lib.PW_REFUSE_PUTS | lib.PW_REFUSE_GETS), ffi.NULL)

    def _set(self, bits: int, log: Any) -> None:
        check(lib.pw_set_attributes(self._node._open(), c_token(self._token), *self._bytes, bits, log))


class Pages:
    """The pages of a token, by bytes: `pages[:4096]` begins to describe the attributes of the first one."""

    def __init__(self, node: Node, token: bytes) -> None:
        self._node = node
        self._token = token

    def __getitem__(self, key: slice) -> Attributes:
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise TypeError("pages are named by a slice of bytes, as [:4096]")
        start = 0 if key.start is None else _count(key.start, "bytes")
        if key.stop is None:
            return Attributes(self._node, self._token, start, TO_END)
        stop = _count(key.stop, "bytes")
        if stop < start:
            raise ValueError(f"bytes {start} to {stop}: the end is before the beginning")
        return Attributes(self._node, self._token, start, stop - start)


def take_faults(node: Node) -> Faults:
    records: list[Access] = []
    context, dropped = ffi.new_handle(_Call(records.append)), ffi.new("uint64_t *")
    check(lib.pw_take_faults(node._open(), _handle, context, dropped))
    return Faults(records, int(dropped[0]))


def flush_handled(remote: Remote, domain: int | None) -> Operation[None]:
    of = ALL_DOMAINS if domain is None else number(domain, "a domain")
    if domain is not None and of > MOST_DOMAIN:
        raise Error(lib.PW_ARGUMENT, f"domain {of}: the logs of a process have domains from 0 to {MOST_DOMAIN}")
    start = lambda to: lib.pw_flush_handled_start(remote._handle, of, to)
    return Operation(start, (remote,), lambda: None, remote._node._orphans)
