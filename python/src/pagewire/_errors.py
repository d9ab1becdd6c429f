"""Why calls are refused: a code, and a sentence of the library."""

from __future__ import annotations

import builtins
import enum
from contextlib import contextmanager
from typing import Iterator

from ._library import ffi, lib

ErrorCode = enum.IntEnum(  # type: ignore[misc]
    "ErrorCode",
    {name.removeprefix("PW_"): value for value, name in sorted(ffi.typeof("pw_error").elements.items())},
)
ErrorCode.__doc__ = "Why a call was refused; pagewire.h says what each code means."


class Error(Exception):
    """A call was refused. The text says what, by which side and by which rule; `code` is for programs."""

    code: ErrorCode

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = ErrorCode(code)


class BoundsError(Error, IndexError):
    """The elements are not inside the memory that the token names."""


class TimeoutError(Error, builtins.TimeoutError):
    """What was waited for did not happen in time."""

    #: Bytes that Stream.send() has sent.
    sent: int = 0


class PeerLostError(Error, ConnectionError):
    """The peer is gone, or cannot be reached. Whether an operation was done there is not known."""


#: By code, those of errors that have a class of their own.
CLASSES: dict[int, type[Error]] = {
    lib.PW_BOUNDS: BoundsError,
    lib.PW_TIMEOUT: TimeoutError,
    lib.PW_PEER_LOST: PeerLostError,
    lib.PW_CONNECT: PeerLostError,
}


def last_error(code: int) -> Error:
    """The error of the call of this thread that has just given this code."""
    sentence = ffi.string(lib.pw_error_message_for(lib.PW_PYTHON)).decode(errors="replace")
    return CLASSES.get(code, Error)(code, sentence)


def check(code: int) -> None:
    """Raises what a call has given, unless that is PW_OK."""
    if code != 0:
        raise last_error(code)


@contextmanager
def silent_in_child() -> Iterator[None]:
    """For what ends objects by itself: in a forked child they stay the parent's, and nobody is told."""
    try:
        yield
    except Error as error:
        if error.code != lib.PW_FORKED:
            raise
