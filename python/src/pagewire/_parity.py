"""Parity: checkpoints of several processes, in memory, whose XOR another one keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, NamedTuple

from numpy.typing import NDArray

from ._applications import _Application
from ._errors import check
from ._integers import count as _count
from ._integers import number
from ._library import ffi, lib
from ._remote import address_of
from ._timeouts import in_slices
from ._token import Token, c_token

if TYPE_CHECKING:
    from ._node import Node


class Rebuilt(NamedTuple):
    """What was rebuilt."""

    #: The round of the checkpoint, which all members have.
    round: int
    #: Bytes of it.
    size: int


class Parity(_Application):
    """The parity of the checkpoints of several processes, which this one keeps until it is closed. A thread of the library takes what they save."""

    _end = staticmethod(lib.pw_parity_free)
    _what = "parity"

    def __init__(self, node: Node, members: int, size: int) -> None:
        place = ffi.new("pw_parity **")
        check(lib.pw_parity_make(node._open(), _count(members, "members"), _count(size, "bytes"), place))
        super().__init__(node, place[0])

    def token(self, member: int) -> Token:
        """The token of a member, which no other one uses: it tells the members apart."""
        place = ffi.new("pw_token *")
        self._call(lib.pw_parity_token, number(member, "a member"), place)
        return Token(bytes(ffi.buffer(place)))

    @property
    def round(self) -> int:
        """The last round that all members have saved. 0: there is none yet."""
        place = ffi.new("uint64_t *")
        self._call(lib.pw_parity_round, place)
        return int(place[0])


class ParityMember(_Application):
    """One of several processes whose checkpoints lie in its own memory and in a parity. Any one of them may die, and is rebuilt from the others."""

    _end = staticmethod(lib.pw_parity_member_free)
    _what = "member of a parity"

    def __init__(self, node: Node, token: bytes, member: int) -> None:
        place = ffi.new("pw_parity_member **")
        check(lib.pw_parity_join(node._open(), c_token(token), number(member, "a member"), place))
        super().__init__(node, place[0])

    @classmethod
    def _rebuild(cls, node: Node, token: bytes, member: int, others: Iterable[bytes]) -> tuple[ParityMember, Rebuilt]:
        tokens = [c_token(other) for other in others]
        array = ffi.new("pw_token[]", [of[0] for of in tokens])
        rebuilt, place = ffi.new("pw_rebuilt *"), ffi.new("pw_parity_member **")
        place_of = number(member, "a member")
        check(lib.pw_parity_rebuild(node._open(), c_token(token), place_of, array, len(tokens), rebuilt, place))
        made = cls.__new__(cls)
        _Application.__init__(made, node, place[0])
        return made, Rebuilt(int(rebuilt.round), int(rebuilt.length))

    def token(self) -> Token:
        """The token of the own checkpoints, for who rebuilds another member."""
        place = ffi.new("pw_token *")
        self._call(lib.pw_parity_member_token, place)
        return Token(bytes(ffi.buffer(place)))

    def save(self, *memories: Token | NDArray[Any]) -> int:
        """Saves arrays as the checkpoint of the next round, or what tokens of this node name. They may change as soon as it has returned. Gives the round, which
        counts when all members have saved: see wait()."""
        return self._with(lib.pw_parity_save, memories)

    def restore(self, *memories: Token | NDArray[Any]) -> int:
        """Restores arrays from the own checkpoint of the last round that all members have: what this process saved, or what was rebuilt. Gives the round."""
        return self._with(lib.pw_parity_restore, memories)

    def _with(self, function: Any, memories: tuple[Any, ...]) -> int:
        views = [self._node._memory_of(memory) for memory in memories]
        array, place = ffi.new("pw_memory[]", max(len(views), 1)), ffi.new("uint64_t *")
        for of, view in zip(array, views):
            of.address, of.length, of.token = address_of(view), view.nbytes, ffi.NULL
        self._call(function, array, len(views), place)
        return int(place[0])

    def wait(self, timeout: float | None = None) -> int:
        """Waits until all members have saved the round that this one has saved last, and gives it. If a member died in it, this one puts what it saved once more.
        timeout: seconds.

        Raises TimeoutError.
        """
        place = ffi.new("uint64_t *")

        def wait(time: int) -> int:
            with self._uses:
                return int(lib.pw_parity_wait(self._open(), time, place))

        in_slices(timeout, wait)
        return int(place[0])
