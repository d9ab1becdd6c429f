"""Batches: many small puts to one owner in one message, to a handler or to memory."""

from __future__ import annotations

import atexit
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._applications import _Application
from ._errors import check, silent_in_child
from ._integers import count as _count
from ._library import ffi, lib
from ._remote import address_of
from ._token import Token, c_token

if TYPE_CHECKING:
    from ._node import Node


class BatchedPut:
    """A put, as a handler gets it: one of a batch, or a single one. A single one of more than 64 KiB comes in parts."""

    __slots__ = ("data", "offset", "source", "_memory")

    def __init__(self, put: Any, memory: NDArray[np.uint8]) -> None:
        #: What it writes.
        self.data: bytes = bytes(ffi.buffer(put.data, put.length))
        #: Where it goes to, in bytes from the beginning of the memory. It lies inside.
        self.offset = int(put.offset)
        #: Who puts: a number that no other source has at the same time.
        self.source = int(put.source)
        self._memory = memory

    def value(self, dtype: DTypeLike) -> Any:
        """The first bytes as a value. None: there are fewer."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.data, kind, 1)[0] if len(self.data) >= kind.itemsize else None

    def array(self, dtype: DTypeLike) -> NDArray[Any]:
        """The data as elements of a type."""
        return np.frombuffer(self.data, dtype)

    def write(self) -> None:
        """Has it reach memory, which it has not yet."""
        self._memory[self.offset : self.offset + len(self.data)] = np.frombuffer(self.data, np.uint8)

    def __repr__(self) -> str:
        return f"<BatchedPut: {len(self.data)} bytes to offset {self.offset} by source {self.source}>"


PutHandler = Callable[[BatchedPut], object]


class BatchCounts(NamedTuple):
    """What has come in batches."""

    #: Messages.
    messages: int
    #: Puts in them.
    puts: int
    #: Messages that were refused: they were none, or had a put outside of the memory. Nothing of them was done.
    malformed: int
    #: Puts that were not done, those of batches and single ones: the handler has raised an exception, or the memory cannot be accessed.
    failed: int


class BatchAddress(bytes):
    """By which others put in batches. It is plain bytes: send them by any means. Who holds them may put."""

    SIZE: int = lib.PW_BATCH_ADDRESS_SIZE

    def __new__(cls, data: bytes) -> BatchAddress:
        if len(data) != cls.SIZE:
            raise ValueError(f"an address of batches has {cls.SIZE} bytes, and these are {len(data)}")
        return super().__new__(cls, data)


class _PutCall:
    """What stands behind the context of a handler."""

    def __init__(self, handler: PutHandler, memory: NDArray[np.uint8]) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is called with each put, and {handler!r} cannot be called")
        self.handler = handler
        self.memory = memory
        # Which thread it runs in.
        self.thread: int | None = None


_TO_MEMORY: Any = object()

# One for all: the context says whom to call. It takes the GIL.
@ffi.callback("void(void *, const pw_batched_put *)")  # type: ignore[untyped-decorator, unused-ignore]
def _handle_put(context: Any, put: Any) -> None:
    call: _PutCall = ffi.from_handle(context)
    call.thread = threading.get_ident()
    try:
        call.handler(BatchedPut(put, call.memory))
    except BaseException:
        lib.pw_handler_failed(ffi.NULL)
        kind, value, trace = sys.exc_info()
        threading.excepthook(threading.ExceptHookArgs((kind, value, trace, None)))
    finally:
        call.thread = None


# Those that a thread may call, whatever becomes of their owners.
_contexts: set[Any] = set()


class Batches(_Application):
    """Memory of this process to which others put in batches, until it is closed. A handler cannot close its own.

    An exception of the handler is counted and given to threading.excepthook, and the next put is handled."""

    _end = staticmethod(lib.pw_batches_end)
    _what = "owner of batches"

    def __init__(self, node: Node, memory: Token | NDArray[Any], handler: PutHandler = _TO_MEMORY) -> None:
        # The memory must stay.
        self._view = node._memory_of(memory)
        self._call_of: _PutCall | None = None
        self._context: Any = None
        place = ffi.new("pw_batches **")
        if handler is _TO_MEMORY:
            check(lib.pw_batches_to_memory(node._open(), address_of(self._view), self._view.nbytes, place))
        elif not isinstance(memory, Token):
            raise TypeError(f"puts are redirected by a token of the memory, not by {memory!r}")
        else:
            self._call_of = _PutCall(handler, self._view.reshape(-1, order="A").view(np.uint8))
            self._context = ffi.new_handle(self._call_of)
            check(lib.pw_batches_redirect(node._open(), c_token(memory), _handle_put, self._context, place))
            _contexts.add(self._context)
        super().__init__(node, place[0])
        _served.add(self)

    @property
    def address(self) -> BatchAddress:
        """By which others put in batches."""
        place = ffi.new("pw_batch_address *")
        self._call(lib.pw_batches_address, place)
        return BatchAddress(bytes(ffi.buffer(place)))

    @property
    def counts(self) -> BatchCounts:
        """What has come in batches so far."""
        now = ffi.new("pw_batch_counts *")
        self._call(lib.pw_batches_counts, now)
        return BatchCounts(now.messages, now.puts, now.malformed, now.failed)

    def close(self) -> None:
        """Handles no batches any more, when the handler has returned. Pages that were redirected are ordinary ones again. Nothing is done if it was closed before."""
        if self._call_of is not None and self._call_of.thread == threading.get_ident():
            raise ValueError("a handler cannot close its own batches")
        super().close()
        _contexts.discard(self._context)


_served: weakref.WeakSet[Batches] = weakref.WeakSet()


@atexit.register
def _close_served() -> None:
    """Their threads must not call handlers when the interpreter ends."""
    for batches in list(_served):
        with silent_in_child():
            batches.close()


class Batch(_Application):
    """Collects small puts to one owner, and sends them together. A message goes when it is full, and when it is asked for. Closed, it sends what it has, and
    nobody learns whether that arrives."""

    _end = staticmethod(lib.pw_batch_close)
    _what = "batch"

    #: Bytes of a put at most. A longer one is an ordinary put.
    MOST_BYTES: int = lib.PW_MOST_BATCHED

    def __init__(self, node: Node, address: bytes) -> None:
        place = ffi.new("pw_batch **")
        of = ffi.new("pw_batch_address *", {"bytes": BatchAddress(address)})
        check(lib.pw_batch_open(node._open(), of, place))
        super().__init__(node, place[0])

    def put(self, offset: int, values: Any) -> None:
        """Adds a put of bytes, or of an array, which are copied. offset: in bytes. If the message is full, it is sent first."""
        buffer = ffi.from_buffer(values)
        self._call(lib.pw_batch_put, _count(offset, "bytes"), buffer, len(buffer))

    def send(self) -> None:
        """Sends what was added. It waits only where 16 messages are under way."""
        self._call(lib.pw_batch_send)

    def wait(self) -> None:
        """Sends what was added, and waits until all messages are in the owner's log."""
        self._call(lib.pw_batch_wait)

    def flush_handled(self) -> None:
        """wait(), and until the owner has handled all of them: what they were to write is in memory then."""
        self._call(lib.pw_batch_flush_handled)

    @property
    def unsent(self) -> int:
        """Puts that were added and not sent yet."""
        with self._uses:
            return int(lib.pw_batch_unsent(self._open()))

    def __len__(self) -> int:
        """Bytes of the memory that puts go to."""
        with self._uses:
            return int(lib.pw_batch_length(self._open()))
