"""Parts of a job, by colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ._conditional import in_thread
from ._errors import Error, check
from ._integers import index as index_of
from ._integers import number
from ._library import ffi, lib
from ._process import ProcessObject
from ._timeouts import nanoseconds
from ._token import Token
from ._uses import Uses

if TYPE_CHECKING:
    from ._node import Node

B = TypeVar("B", bound=bytes)

# PW_NO_PART (pagewire.h).
NO_PART = 2**64 - 1


def gather(mine: B, size: int, call: Any) -> list[B]:
    """What all processes give, by a call that takes bytes, how many, and the place of all."""
    length = len(mine)
    every = ffi.new("char[]", max(size * length, 1))
    call(ffi.from_buffer(mine), length, every)
    whole = bytes(ffi.buffer(every, size * length))
    kind: type[Any] = Token if isinstance(mine, Token) else bytes
    return [kind(whole[rank * length : (rank + 1) * length]) for rank in range(size)]


def colour_of(colour: int | None) -> int:
    """A colour as the library takes it."""
    return NO_PART if colour is None else number(colour, "a colour")


class Part(ProcessObject):
    """Some processes of a job, as one of them sees it: Node.split() makes it. `with` frees it at the end.

    A failure ends the part, and not the job. Calls of its other processes that count on one that has closed it fail.
    """

    _what = "part"

    def __init__(self, node: Node, handle: Any) -> None:
        super().__init__()
        self._node = node
        self._handle = handle
        # Ctrl-C may leave a call in a thread.
        self._uses = Uses()
        node._applications.add(self)

    def _open(self) -> Any:
        self._check_process()
        if self._handle is None:
            raise ValueError("the part was closed")
        return self._handle

    @property
    def rank(self) -> int:
        """The number of this process in the part, from 0 on."""
        return int(lib.pw_part_rank(self._open()))

    @property
    def size(self) -> int:
        """Processes of the part."""
        return int(lib.pw_part_size(self._open()))

    def job_rank(self, rank: int) -> int:
        """The rank in the job of a rank of the part."""
        found = ffi.new("size_t *")
        check(lib.pw_part_job_rank(self._open(), self._rank(rank, lib.PW_JOB), found))
        return int(found[0])

    def _rank(self, rank: int, code: int) -> int:
        """A rank of a caller. code: of the error where the part has no such rank."""
        named, size = number(rank, "a rank"), self.size
        if named >= size:
            raise Error(code, f"rank {named} is not in the part: its ranks are 0 to {size - 1}")
        return named

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all processes of the part have called it. timeout: seconds; else that of the job.

        Raises TimeoutError: it stays begun, and the next barrier() waits on for it, as Node.barrier() says.
        """
        if timeout is None:
            self._in_thread(lib.pw_part_barrier)
        else:
            self._in_thread(lib.pw_part_barrier_for, nanoseconds(timeout))

    def all_gather(self, mine: B, timeout: float | None = None) -> list[B]:
        """Gives a token, or bytes, to all processes of the part, and takes theirs, by rank. All give as many bytes. timeout: seconds.

        Raises TimeoutError: it stays begun, and is continued by a call with the same bytes.
        """
        if timeout is None:
            return gather(mine, self.size, lambda *given: self._in_thread(lib.pw_part_all_gather, *given))
        time = nanoseconds(timeout)
        return gather(mine, self.size, lambda *given: self._in_thread(lib.pw_part_all_gather_for, *given, time))

    def broadcast(self, root: int, data: bytes) -> bytes:
        """Gives the bytes of the process `root` of the part to all of it. All processes give as many; only root's count."""
        place = ffi.new("char[]", bytes(data) if data else 1)
        self._in_thread(lib.pw_part_broadcast, self._rank(root, lib.PW_ARGUMENT), place, len(data))
        return bytes(ffi.buffer(place, len(data)))

    def split(self, colour: int | None, key: int = 0) -> Part | None:
        """Splits the part, as Node.split() splits the job. All its processes call it."""
        colour, key = colour_of(colour), index_of(key, "a key")
        place = ffi.new("pw_part **")

        def call(_: Any) -> int:
            with self._uses:
                return int(lib.pw_part_split(self._open(), colour, key, place))

        self._node._made_with_others(place, lib.pw_part_free, call, place)
        return Part(self._node, place[0]) if place[0] != ffi.NULL else None

    def _in_thread(self, call: Any, *arguments: Any) -> None:
        """Calls what waits for other processes. Ctrl-C leaves it in a thread, for which close() waits."""

        def run() -> None:
            with self._uses:
                check(call(self._open(), *arguments))

        in_thread(run)

    def close(self) -> None:
        """Frees it. Nothing is done if it was freed before."""
        with self._uses.none():
            if self._handle is not None:
                self._check_process()
                handle, self._handle = self._handle, None
                check(lib.pw_part_free(handle))
        self._node._applications.discard(self)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
