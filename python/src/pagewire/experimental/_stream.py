"""Streams of bytes over access logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._applications import _Application
from .._errors import TimeoutError, check
from .._integers import count as _count
from .._timeouts import in_slices, nanoseconds
from .._token import Token, c_token
from ._library import ffi, lib

if TYPE_CHECKING:
    from .._node import Node

#: Bytes that a peer may be ahead of who receives, unless it is said.
BUFFER = 1 << 16


class Listener(_Application):
    """Where other processes ask for streams: any that has its token connects by Stream.connect()."""

    _end = staticmethod(lib.pw_listener_close)
    _what = "listener"

    def __init__(self, node: Node, buffer: int = BUFFER) -> None:
        """Makes a listener. buffer: bytes that the peers of its streams may be ahead of this process."""
        place = ffi.new("pw_listener **")
        check(lib.pw_stream_listen(node._open(), _count(buffer, "bytes"), place))
        super().__init__(node, place[0])

    @property
    def token(self) -> Token:
        """By which others connect."""
        place = ffi.new("pw_token *")
        self._call(lib.pw_listener_token, place)
        return Token(bytes(ffi.buffer(place)))

    def accept(self, timeout: float | None = None) -> Stream:
        """Waits until a process asks for a stream, and makes it. Who has asked and is gone is passed over. timeout: seconds.

        Raises TimeoutError.
        """
        place = ffi.new("pw_stream **")

        def accept(left: int) -> int:
            with self._uses:
                return int(lib.pw_stream_accept(self._open(), left, place))

        in_slices(timeout, accept)
        return Stream(self._node, place[0])


class Stream(_Application):
    """A stream of bytes to and from another process, as a socket of TCP. One thread may send while another one receives. Timeouts are seconds; None is without a bound.

    close() waits up to 5 seconds until the peer has what was sent.
    """

    _end = staticmethod(lib.pw_stream_close)
    _what = "stream"

    @classmethod
    def connect(cls, node: Node, token: bytes, buffer: int = BUFFER, timeout: float | None = None) -> Stream:
        """Asks a listener for a stream, and waits until it has accepted. buffer: bytes that the peer may be ahead of this process. timeout: seconds.

        Raises TimeoutError. Raises PeerLostError: the listener is closed, or its process is gone.
        """
        place, of, size, bound = ffi.new("pw_stream **"), c_token(token), _count(buffer, "bytes"), nanoseconds(timeout)
        # In one call, and not in slices: each call is another request to the listener.
        call = lambda handle: lib.pw_stream_connect(handle, of, size, bound, place)
        return cls(node, node._made_with_others(place, cls._end, call))

    def send(self, data: Any, timeout: float | None = None) -> None:
        """Sends bytes, or an array. It returns when they are on their way: flush() waits until they are in the peer's log.

        Raises TimeoutError: the peer does not receive. Its `sent` says how many bytes were sent: go on with the others.
        """
        buffer = ffi.from_buffer(data)
        at, sent = 0, ffi.new("size_t *")

        def send(left: int) -> int:
            nonlocal at
            with self._uses:
                code = int(lib.pw_stream_send(self._open(), buffer + at, len(buffer) - at, left, sent))
            at += int(sent[0])
            return code

        try:
            in_slices(timeout, send)
        except TimeoutError as error:
            error.sent = at
            raise

    def receive(self, size: int, timeout: float | None = None) -> bytes:
        """Receives bytes as they come, `size` at most, and one at least. None at all (b""): the peer has sent its last one.

        Raises TimeoutError.
        """
        most = _count(size, "bytes")
        place = ffi.new("char[]", max(most, 1))
        received = self._receive(place, most, timeout)
        return bytes(ffi.buffer(place, received))

    def receive_into(self, buffer: Any, timeout: float | None = None) -> int:
        """Receives into an array, or another buffer that can be written; gives how many bytes. 0: the peer has sent its last one.

        Raises TimeoutError.
        """
        place = ffi.from_buffer(buffer, require_writable=True)
        return self._receive(place, len(place), timeout)

    def _receive(self, place: Any, size: int, timeout: float | None) -> int:
        received = ffi.new("size_t *")

        def receive(left: int) -> int:
            with self._uses:
                return int(lib.pw_stream_receive(self._open(), place, size, left, received))

        in_slices(timeout, receive)
        return int(received[0])

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent is in the peer's log.

        Raises TimeoutError.
        """
        self._wait(lib.pw_stream_flush, timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Says that nothing more is sent, and waits until that is in the peer's log. The peer receives b"" behind it, and may send on.

        Raises TimeoutError.
        """
        self._wait(lib.pw_stream_shutdown, timeout)

    def _wait(self, function: Any, timeout: float | None) -> None:
        def wait(left: int) -> int:
            with self._uses:
                return int(function(self._open(), left))

        in_slices(timeout, wait)
