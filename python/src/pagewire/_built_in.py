"""Built-in handlers: chains of steps that run on another process's memory, without any code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from numpy.typing import NDArray

from ._applications import _Application
from ._errors import check
from ._integers import count as _count
from ._integers import word
from ._library import ffi, lib
from ._remote import address_of
from ._token import Token

if TYPE_CHECKING:
    from ._node import Node


@dataclass(frozen=True)
class Place:
    """Where a step works, if not at an offset."""

    kind: int
    at: int
    by: int

    @classmethod
    def behind(cls, pointer: int, by: int = 0) -> Place:
        """So many bytes behind the offset that the word at an offset has: a pointer."""
        return cls(lib.PW_PLACE_BEHIND, _count(pointer, "bytes"), _count(by, "bytes"))

    @classmethod
    def found(cls, step: int, by: int = 0) -> Place:
        """So many bytes behind the offset that an earlier step of the chain has found. The first one has the number 0."""
        return cls(lib.PW_PLACE_FOUND, _count(step, "steps"), _count(by, "bytes"))


At = Union[int, Place]


class Outcome(NamedTuple):
    """What became of a step."""

    #: Whether it was run.
    was_run: bool
    #: Of a fetch-add: what the word was. Of an append: the offset of what was appended.
    word: int
    #: Of a compare-swap: whether it has swapped.
    swapped: bool
    #: What was found: of a read, a compare-swap, an XOR.
    data: bytes


@dataclass(frozen=True)
class _Step:
    action: int
    place: Place
    if_swapped: bool
    add: int = 0
    data: bytes = b""
    data_mask: bytes | None = None
    compare: bytes = b""
    compare_mask: bytes | None = None
    # Of a read.
    length: int = 0

    @property
    def size(self) -> int:
        return self.length if self.action == lib.PW_STEP_READ else len(self.data)

    @property
    def finds(self) -> bool:
        return self.action in (lib.PW_STEP_READ, lib.PW_STEP_XOR, lib.PW_STEP_COMPARE_SWAP)


class Chain:
    """Steps that run one after the other at the owner of the memory. Each is an atomic of its own; the chain as a whole is none. Each call adds a step, and
    gives the chain: ``Chain().append(64, b"hello").compare_swap(8, bytes(8), place)``. Offsets are bytes from the beginning of the memory."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._if_swapped = False

    def __len__(self) -> int:
        return len(self._steps)

    def _then(self, action: int, at: At, **what: Any) -> Chain:
        place = at if isinstance(at, Place) else Place(lib.PW_PLACE_AT, _count(at, "bytes"), 0)
        self._steps.append(_Step(action, place, self._if_swapped, **what))
        self._if_swapped = False
        return self

    def if_swapped(self) -> Chain:
        """The next step runs only if all compare-swaps before it have swapped."""
        self._if_swapped = True
        return self

    def fetch_add(self, at: At, add: int) -> Chain:
        """Adds to a word of 8 bytes, modulo 2^64. Its word is what that was."""
        return self._then(lib.PW_STEP_FETCH_ADD, at, add=word(add, "what is added"))

    def compare_swap(
        self, at: At, compare: Any, swap: Any, *, compared: Any | None = None, swapped: Any | None = None
    ) -> Chain:
        """Puts `swap` in the place of `compare`, if that is there: 1 to 32 bytes, as many of both. Its data are what was there. compared, swapped: only the
        bits that are 1 in these bytes."""
        compare, swap = _plain(compare), _plain(swap)
        masks = {"compare_mask": compared, "data_mask": swapped}
        given = {name: _plain(mask) for name, mask in masks.items() if mask is not None}
        if any(len(other) != len(compare) for other in (swap, *given.values())):
            raise ValueError("a compare-swap: what it compares, what it swaps in and their masks have as many bytes each")
        return self._then(lib.PW_STEP_COMPARE_SWAP, at, compare=compare, data=swap, **given)

    def read(self, at: At, size: int) -> Chain:
        """Reads bytes, which are its data."""
        return self._then(lib.PW_STEP_READ, at, length=_count(size, "bytes"))

    def write(self, at: At, values: Any) -> Chain:
        """Writes bytes, or an array."""
        return self._then(lib.PW_STEP_WRITE, at, data=_plain(values))

    def xor(self, at: At, values: Any) -> Chain:
        """Changes bytes to their XOR with others. Its data are what they were."""
        return self._then(lib.PW_STEP_XOR, at, data=_plain(values))

    def append(self, area: int, values: Any) -> Chain:
        """Takes space in an area (BuiltIns.begin_area()), and writes bytes there. Its word is their offset, a multiple of 8."""
        return self._then(lib.PW_STEP_APPEND, _count(area, "bytes"), data=_plain(values))


def _plain(values: Any) -> bytes:
    return memoryview(values).tobytes()


class ChainAddress(bytes):
    """By which others run chains. It is plain bytes: send them by any means. Who holds them may run any chain."""

    SIZE: int = lib.PW_CHAIN_ADDRESS_SIZE

    def __new__(cls, data: bytes) -> ChainAddress:
        if len(data) != cls.SIZE:
            raise ValueError(f"an address of built-in handlers has {cls.SIZE} bytes, and these are {len(data)}")
        return super().__new__(cls, data)


class BuiltIns(_Application):
    """Memory of this process on which others run chains, until it is closed."""

    _end = staticmethod(lib.pw_built_ins_end)
    _what = "owner of built-in handlers"

    def __init__(self, node: Node, memory: Token | NDArray[Any]) -> None:
        # The memory must stay.
        self._view = node._memory_of(memory)
        place = ffi.new("pw_built_ins **")
        check(lib.pw_built_ins_serve(node._open(), address_of(self._view), self._view.nbytes, place))
        super().__init__(node, place[0])

    @property
    def address(self) -> ChainAddress:
        """By which others run chains."""
        place = ffi.new("pw_chain_address *")
        self._call(lib.pw_built_ins_address, place)
        return ChainAddress(bytes(ffi.buffer(place)))

    def begin_area(self, area: int, first: int, end: int) -> None:
        """Makes an area for Chain.append(): two words at the offset `area`, and the bytes from `first` to `end`. Nobody may append to it meanwhile."""
        self._call(lib.pw_built_ins_begin_area, *(_count(number, "bytes") for number in (area, first, end)))


class RemoteBuiltIns(_Application):
    """Built-in handlers of another process, or of this one."""

    _end = staticmethod(lib.pw_built_ins_close)
    _what = "remote of built-in handlers"

    def __init__(self, node: Node, address: bytes) -> None:
        place = ffi.new("pw_remote_built_ins **")
        of = ffi.new("pw_chain_address *", {"bytes": ChainAddress(address)})
        check(lib.pw_built_ins_open(node._open(), of, place))
        super().__init__(node, place[0])

    def run(self, chain: Chain) -> list[Outcome]:
        """Runs a chain, and gives what each of its steps has found. If a step is refused, those before it were run."""
        steps = list(chain._steps)
        array, outcomes = ffi.new("pw_step[]", len(steps)), ffi.new("pw_outcome[]", max(len(steps), 1))
        # What is too long is refused.
        places = [
            ffi.new("char[]", step.size) if step.finds and step.size <= lib.PW_MOST_MOVED else ffi.NULL for step in steps
        ]
        kept: list[Any] = []

        def bytes_at(value: bytes | None) -> Any:
            if value is None:
                return ffi.NULL
            kept.append(ffi.from_buffer(value))
            return kept[-1]

        for to, step, place in zip(array, steps, places):
            to.action, to.if_swapped, to.add, to.length = step.action, step.if_swapped, step.add, step.size
            to.place, to.at, to.by = step.place.kind, step.place.at, step.place.by
            to.data, to.data_mask = bytes_at(step.data), bytes_at(step.data_mask)
            to.compare, to.compare_mask, to.found = bytes_at(step.compare), bytes_at(step.compare_mask), place
        self._call(lib.pw_built_ins_run, array, len(steps), outcomes)
        return [
            Outcome(result.was_run, int(result.word), result.swapped, bytes(ffi.buffer(place)) if place and result.was_run else b"")
            for result, place in zip(outcomes, places)
        ]
