"""Operations that were started: waited for by threads, awaited by coroutines."""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import Any, Callable, Generator, Generic, TypeVar

from ._errors import Error, check, last_error
from ._library import ffi, lib
from ._process import ProcessObject
from ._timeouts import code_in_slices

T = TypeVar("T")


def wait_for(handle: Any, timeout: float | None = None) -> int:
    """Waits until an operation has ended, and gives its code. A signal interrupts it."""
    call = lambda time: int(lib.pw_wait_for(handle, time))
    return code_in_slices(timeout, call, "the operation has not ended", lib.PW_UNFINISHED)


class Orphans:
    """Operations of a node that were dropped before their end. Their buffers must live until then."""

    def __init__(self) -> None:
        self._unfinished: list[tuple[Any, Any]] = []
        self._failure: Error | None = None

    def adopt(self, handle: Any, buffers: Any) -> None:
        self._unfinished.append((handle, buffers))

    def sweep(self) -> None:
        """Forgets those that have ended."""
        if not self._unfinished:
            return
        mine, self._unfinished = self._unfinished, []
        for handle, buffers in mine:
            code = lib.pw_test(handle)
            if code == lib.PW_UNFINISHED:
                self._unfinished.append((handle, buffers))
                continue
            if code != 0 and self._failure is None:
                self._failure = last_error(code)
            lib.pw_operation_free(handle)

    def flushed(self, code: int) -> None:
        """A flush has ended with this code: raises that, or the first failure since the last one. Conditional writes that wait for their
        release still are no part of a flush."""
        failure = last_error(code) if code != 0 else None
        self.sweep()
        found, self._failure = self._failure, None
        first = failure or found
        if first is not None:
            raise first


class Operation(ProcessObject, Generic[T]):
    """An operation that runs whether somebody waits for it or not.

    `op.wait()` and `await op` give its result, or raise why it was not done. An array that it was given must not be changed before (of a
    get: not be used). The failure of one that was dropped is raised by the next flush.
    """

    _what = "operation"

    def __init__(self, start: Callable[[Any], int], buffers: Any, result: Callable[[], T], orphans: Orphans) -> None:
        super().__init__()
        orphans.sweep()
        place = ffi.new("pw_operation **")
        check(start(place))
        self._handle = place[0]
        self._buffers = buffers
        self._result = result
        self._orphans = orphans

    def done(self) -> bool:
        """Whether it has ended."""
        self._check_process()
        return self._has_ended()

    def _has_ended(self) -> bool:
        return self._handle is None or lib.pw_test(self._handle) != lib.PW_UNFINISHED

    def wait(self, timeout: float | None = None) -> T:
        """Waits until it has ended: the bytes are visible at the target, or here for a get. It may be called again. timeout: seconds; 0 looks once.

        Raises TimeoutError: it has not ended, and goes on.
        """
        self._check_process()
        if self._handle is not None:
            # It stays until the result is known: an interrupt may end the call.
            self._finish(wait_for(self._handle, timeout))
        return self._take()

    def _finish(self, code: int) -> None:
        handle, self._handle = self._handle, None
        self._failure = last_error(code) if code != 0 else None
        lib.pw_operation_free(handle)
        self._buffers = None

    def _take(self) -> T:
        if self._failure is not None:
            raise self._failure
        return self._result()

    _failure: Error | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            loop = asyncio.get_running_loop()
            yield from _watcher_of(loop).ended(self).__await__()
        return self.wait()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            self._orphans.adopt(handle, self._buffers)


class _Watcher:
    """Wakes coroutines of one event loop: the library writes to a descriptor at the end of each operation."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting: dict[asyncio.Future[None], Operation[Any]] = {}
        # Not the loop itself, which would then never end.
        self._loop = weakref.ref(loop)

    def ended(self, operation: Operation[Any]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.add_reader(self._descriptor, self._look)
        self._waiting[future] = operation
        check(lib.pw_notify(operation._handle, self._descriptor))
        return future

    def _look(self) -> None:
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return
        # A coroutine that was cancelled leaves its operation here until that has ended, as its buffer is in use.
        for future in [future for future, operation in self._waiting.items() if operation._has_ended()]:
            del self._waiting[future]
            if not future.done():
                future.set_result(None)
        loop = self._loop()
        if not self._waiting and loop is not None:
            loop.remove_reader(self._descriptor)

    def __del__(self) -> None:
        # The library may still write to the descriptor of those that have not ended: its number must not become another file's.
        if not self._waiting:
            os.close(self._descriptor)


_watchers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Watcher] = weakref.WeakKeyDictionary()


def _watcher_of(loop: asyncio.AbstractEventLoop) -> _Watcher:
    watcher = _watchers.get(loop)
    if watcher is None:
        watcher = _watchers[loop] = _Watcher(loop)
    return watcher
