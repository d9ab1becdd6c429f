"""Conditional writes: posted before the peer's memory is known, and held until the peer releases them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ._errors import check
from ._integers import unsigned
from ._library import ffi, lib
from ._operation import Operation
from ._process import ProcessObject
from ._remote import address_of
from ._timeouts import SLICE, in_slices, nanoseconds
from ._token import c_token

if TYPE_CHECKING:
    from ._node import Node

T = TypeVar("T")

def in_thread(call: Callable[[], T]) -> T:
    """Calls what waits for other processes in a thread of its own, so that Ctrl-C is seen meanwhile. Interrupted, it goes on in that."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name="pagewire-job", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SLICE / 1e9)
    if failures:
        raise failures[0]
    return results[0]


class Peer(bytes):
    """Names the node of a process. It is plain bytes: send them by any means."""


def c_peer(peer: bytes) -> Any:
    if len(peer) != lib.PW_PEER_SIZE:
        raise ValueError(f"a peer has {lib.PW_PEER_SIZE} bytes, and these are {len(peer)}")
    return ffi.new("pw_peer *", {"bytes": bytes(peer)})


def peer_by(fill: Any) -> Peer:
    place = ffi.new("pw_peer *")
    check(fill(place))
    return Peer(bytes(ffi.buffer(place)))


class HeldWrite(Operation[None]):
    """A conditional write. `wait()` and `await` end when it is written, or raise why it was not: `code` of the error is CANCELLED, TIMEOUT,
    DECLINED, RELEASE or PEER_LOST."""

    def cancel(self) -> None:
        """Cancels it. One that was released before is written all the same; its end says which."""
        self._check_process()
        if self._handle is not None:
            check(lib.pw_cancel(self._handle))

    def within(self, seconds: float) -> HeldWrite:
        """Has it end with TimeoutError if its release has not come by then."""
        self._check_process()
        if self._handle is not None:
            check(lib.pw_end_after(self._handle, nanoseconds(seconds)))
        return self


class ConditionalRequest(ProcessObject):
    """What a peer has opened. Answer it by accept() if the peer's data move, or by supply() if those of this process do."""

    _what = "conditional request"

    def __init__(self, node: Node, opening: Any, handle: Any) -> None:
        super().__init__()
        self._node = node
        self._handle = ffi.gc(handle, lib.pw_conditional_request_free)
        self.peer = Peer(bytes(ffi.buffer(ffi.addressof(opening, "peer"))))
        self.tag = int(opening.tag)
        #: Bytes that the peer has, or has room for.
        self.length = int(opening.length)
        #: Whether the peer's data move.
        self.is_write = opening.direction == lib.PW_CONDITIONAL_WRITE

    def accept(self, token: bytes) -> Operation[int]:
        """Has the peer write to the first bytes of the token's memory. The result is how many bytes it has written."""
        return released(
            self._node, (self, token), lambda at, to: lib.pw_conditional_request_accept(self._handle, c_token(token), at, to)
        )

    def supply(self, values: ArrayLike) -> HeldWrite:
        """Writes an array to the memory that the peer has room in."""
        array = np.ascontiguousarray(values)
        return held(
            self._node, array, lambda to: lib.pw_conditional_request_supply(self._handle, address_of(array), array.nbytes, to)
        )

    def decline(self) -> None:
        """Tells the peer that nothing comes of it."""
        self._check_process()
        handle, self._handle = self._handle, ffi.NULL
        ffi.gc(handle, None)
        check(lib.pw_conditional_request_decline(handle))


def held(node: Node, array: Any, start: Any) -> HeldWrite:
    return HeldWrite(start, (node, array), lambda: None, node._orphans)


def released(node: Node, kept: Any, start: Any) -> Operation[int]:
    written = ffi.new("uint64_t *")
    return Operation(
        lambda to: start(written, to), (node, kept, written), lambda: int(written[0]), node._orphans
    )


def conditional_write(node: Node, peer: bytes, tag: int, values: ArrayLike) -> HeldWrite:
    array, to_peer, tag = np.ascontiguousarray(values), c_peer(peer), unsigned(tag, "a tag")
    start = lambda to: lib.pw_conditional_write(node._open(), to_peer, tag, address_of(array), array.nbytes, to)
    return held(node, array, start)


def accept_conditional_write(node: Node, peer: bytes | None, tag: int, token: bytes) -> Operation[int]:
    of = ffi.NULL if peer is None else c_peer(peer)
    named, tag = c_token(token), unsigned(tag, "a tag")
    return released(node, token, lambda at, to: lib.pw_accept_conditional_write(node._open(), of, tag, named, at, to))


def conditional_read(node: Node, peer: bytes, tag: int, token: bytes) -> Operation[int]:
    of, named, tag = c_peer(peer), c_token(token), unsigned(tag, "a tag")
    return released(node, token, lambda at, to: lib.pw_conditional_read(node._open(), of, tag, named, at, to))


def next_conditional_request(node: Node, timeout: float | None) -> ConditionalRequest:
    opening, handle = ffi.new("pw_conditional_request_info *"), ffi.new("pw_conditional_request **")
    of = node._open()
    call = lambda time: int(lib.pw_next_conditional_request(of, time, opening, handle))
    in_slices(timeout, call, "no peer has opened a conditional write or read")
    return ConditionalRequest(node, opening, handle[0])
