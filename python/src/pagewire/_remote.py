"""Exported memory of other processes, as an array of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._access import flush_handled
from ._errors import BoundsError, check
from ._integers import count as count_of
from ._integers import index as index_of
from ._integers import signed, word
from ._library import ffi, lib
from ._operation import Operation
from ._process import ProcessObject

if TYPE_CHECKING:
    from ._node import Node

Array = NDArray[Any]


def address_of(array: Array) -> Any:
    """The first byte of a contiguous array."""
    # array.ctypes takes four times as long.
    return ffi.cast("void *", array.__array_interface__["data"][0])


class Remote(ProcessObject):
    """Exported memory of a process, opened by its token, as a row of elements.

    `remote[i]` and `remote[a:b]` get, assignments put, and both wait. put(), get() and the others start an operation, which may be waited
    for, awaited or dropped. Operations to one peer are executed in the order in which they were started.
    """

    _what = "remote"

    def __init__(self, node: Node, handle: Any, dtype: DTypeLike) -> None:
        super().__init__()
        self._node = node
        self._handle = handle
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._nbytes = int(lib.pw_remote_length(handle))
        if self.dtype.hasobject or self.dtype.itemsize == 0:
            raise TypeError(f"elements of type {self.dtype} are not plain bytes")

    @property
    def nbytes(self) -> int:
        """Bytes of it."""
        self._check_process()
        return self._nbytes

    def __len__(self) -> int:
        return self.nbytes // self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<Remote of {self._nbytes // self.dtype.itemsize} elements of type {self.dtype}>"

    def _offset(self, index: int) -> int:
        """The first byte of an element. Behind the end it is refused by the library, whose sentence says the bounds."""
        index = index_of(index, "the index of an element")
        if index < 0:
            length = len(self)
            if index < -length:
                raise BoundsError(lib.PW_BOUNDS, f"element {index} of a remote that has {length}")
            index += length
        offset = index * self.dtype.itemsize
        if offset >= 2**64:
            raise BoundsError(lib.PW_BOUNDS, f"element {index} of a remote that has {len(self)}")
        return offset

    def __getitem__(self, key: int | slice) -> Any:
        if not isinstance(key, slice):
            return self.get(index_of(key, "an index"), 1).wait()[0]
        start, stop, step = self._range(key)
        array = np.empty(len(range(start, stop, step)), self.dtype)
        if len(array) > 0:
            check(self._strided(lib.pw_get_strided, start, step, array))
        return array

    def __setitem__(self, key: int | slice, values: ArrayLike) -> None:
        if not isinstance(key, slice):
            self.put(index_of(key, "an index"), np.asarray(values, self.dtype).reshape(1)).wait()
            return
        start, stop, step = self._range(key)
        count = len(range(start, stop, step))
        array = np.asarray(values, self.dtype)
        if array.shape != (count,):
            array = np.broadcast_to(array, (count,))
        array = np.ascontiguousarray(array)
        if count > 0:
            check(self._strided(lib.pw_put_strided, start, step, array))

    def _range(self, key: slice) -> tuple[int, int, int]:
        start, stop, step = key.indices(len(self))
        if step < 1:
            raise ValueError(f"a step of {step}: elements of a remote are taken forwards")
        return start, stop, step

    def _strided(self, call: Any, start: int, step: int, array: Array) -> int:
        size = self.dtype.itemsize
        if step == 1:
            # In one piece.
            step, piece = len(array), array.nbytes
        else:
            piece = size
        return int(call(self._handle, start * size, step * size, piece, address_of(array), array.nbytes))

    def put(self, index: int, values: ArrayLike) -> Operation[None]:
        """Starts a put of elements from `index` on. An array of this type is read until the operation has ended, other values at once."""
        array = np.ascontiguousarray(values, self.dtype)
        offset = self._offset(index)
        start = lambda to: lib.pw_put_start(self._handle, offset, address_of(array), array.nbytes, to)
        return Operation(start, (self, array), _nothing, self._node._orphans)

    def get(self, index: int, count: int) -> Operation[Array]:
        """Starts a get of `count` elements from `index` on, which are its result."""
        return self.get_into(index, np.empty(count_of(count, "elements"), self.dtype))

    def get_into(self, index: int, array: Array) -> Operation[Array]:
        """Starts a get of as many elements as a contiguous array of this type has, from `index` on. The array is its result."""
        if array.dtype != self.dtype or not array.flags.c_contiguous or not array.flags.writeable:
            raise TypeError(f"the array must be contiguous, writeable and of type {self.dtype}")
        offset = self._offset(index)
        start = lambda to: lib.pw_get_start(self._handle, offset, address_of(array), array.nbytes, to)
        return Operation(start, (self, array), lambda: array, self._node._orphans)

    def put_signal(
        self, index: int, values: ArrayLike, offset: int, *, add: int | None = None, set: int | None = None
    ) -> Operation[None]:
        """Starts a put with a signal behind it: who sees the word of 8 bytes at byte `offset` changed sees the elements."""
        if (add is None) == (set is None):
            raise TypeError("a signal is either added to (add=) or set (set=)")
        change, value = (lib.PW_ADD, add) if add is not None else (lib.PW_SET, set)
        signal = ffi.new("pw_signal *", {"offset": count_of(offset, "bytes"), "value": word(value, "a signal"), "change": change})
        array = np.ascontiguousarray(values, self.dtype)
        first = self._offset(index)
        start = lambda to: lib.pw_put_signal_start(self._handle, first, address_of(array), array.nbytes, signal, to)
        return Operation(start, (self, array), _nothing, self._node._orphans)

    def put_scattered(self, pieces: Iterable[tuple[int, int]], values: ArrayLike) -> Operation[None]:
        """Starts a put of pieces of values, one behind the other in them. pieces: the first element of each here, and how many it has."""
        array = np.ascontiguousarray(values, self.dtype)
        places, number = self._pieces(pieces)
        start = lambda to: lib.pw_put_scattered_start(self._handle, places, number, address_of(array), array.nbytes, to)
        return Operation(start, (self, array), _nothing, self._node._orphans)

    def get_scattered(self, pieces: Iterable[tuple[int, int]]) -> Operation[Array]:
        """Starts a get of pieces, which are its result, one behind the other. pieces: as those of put_scattered()."""
        places, number = self._pieces(pieces)
        size = sum(int(places[at].length) for at in range(number))
        array = np.empty(size // self.dtype.itemsize, self.dtype)
        start = lambda to: lib.pw_get_scattered_start(self._handle, places, number, address_of(array), array.nbytes, to)
        return Operation(start, (self, array), lambda: array, self._node._orphans)

    def _pieces(self, pieces: Iterable[tuple[int, int]]) -> tuple[Any, int]:
        """Pieces of elements, in bytes, as the library takes them, and their number."""
        size = self.dtype.itemsize
        found = [(self._offset(first), count_of(count_of(number, "elements") * size, "bytes")) for first, number in pieces]
        return ffi.new("pw_piece[]", [{"offset": offset, "length": length} for offset, length in found]), len(found)

    def fetch_add(self, index: int, add: int) -> Operation[int]:
        """Starts an addition to an element, which must be an integer of 4 or 8 bytes. Its result is what the element was.

        All but fetch_add() and compare_swap() of 8 bytes repeat until nobody came between, so later operations may overtake them. An element of 4 bytes is half of
        8 bytes, which the token must name: export memory that begins and ends at multiples of 8."""
        return self._atomic("fetch_add", index, add)

    def compare_swap(self, index: int, compare: int, swap: int) -> Operation[int]:
        """Starts a change of an element to `swap` if it is `compare`. Its result is what the element was."""
        return self._atomic("compare_swap", index, compare, swap)

    def swap(self, index: int, swap: int) -> Operation[int]:
        """Starts a change of an element to `swap`. Its result is what the element was."""
        return self._atomic("swap", index, swap)

    def fetch_and(self, index: int, bits: int) -> Operation[int]:
        """Starts to keep the bits of an element that are in `bits`. Its result is what the element was."""
        return self._atomic("fetch_and", index, bits)

    def fetch_or(self, index: int, bits: int) -> Operation[int]:
        """Starts to set the bits of an element that are in `bits`. Its result is what the element was."""
        return self._atomic("fetch_or", index, bits)

    def fetch_xor(self, index: int, bits: int) -> Operation[int]:
        """Starts to invert the bits of an element that are in `bits`. Its result is what the element was."""
        return self._atomic("fetch_xor", index, bits)

    def fetch_min(self, index: int, value: int) -> Operation[int]:
        """Starts a change of an element to `value` if that is less. Its result is what the element was."""
        return self._atomic("fetch_min", index, value)

    def fetch_max(self, index: int, value: int) -> Operation[int]:
        """Starts a change of an element to `value` if that is more. Its result is what the element was."""
        return self._atomic("fetch_max", index, value)

    def _atomic(self, name: str, index: int, *words: int) -> Operation[int]:
        if self.dtype.str not in ("<u8", "<i8", "<u4", "<i4"):
            raise TypeError(f"atomics need elements of type uint64 or int64, uint32 or int32, not {self.dtype}")
        bits, is_signed = 8 * self.dtype.itemsize, self.dtype.kind == "i"
        is_compared = name in ("fetch_min", "fetch_max")
        half = "_32" if bits == 32 else ""
        call = getattr(lib, f"pw_{name}{'_signed' if is_signed and is_compared else ''}{half}_start")
        as_signed = is_signed and is_compared
        before = ffi.new(f"{'' if as_signed else 'u'}int{bits}_t *")
        arguments = [word(operand, "an operand of an atomic", is_signed, bits) for operand in words]
        if as_signed:
            arguments = [signed(argument, bits) for argument in arguments]
        offset = self._offset(index)
        start = lambda to: call(self._handle, offset, *arguments, before, to)
        result = lambda: int(ffi.cast(f"int{bits}_t", before[0])) if is_signed else int(before[0])
        return Operation(start, (self, before), result, self._node._orphans)

    def flush(self) -> None:
        """Waits until everything that was started to this peer before has ended. Raises the first failure of an operation that was dropped."""
        self._node._orphans.flushed(lib.pw_flush(self._handle))

    def flush_handled(self, domain: int | None = None) -> Operation[None]:
        """Starts a flush of handlers: it ends when the owner's handlers have returned for all accesses to this peer that were started before.
        domain: only for those that are in one log of the owner (`AccessLog.domain` there). It ends at once where nothing was logged. What a handler starts
        to the same peer by the same node waits behind it."""
        return flush_handled(self, domain)

    def close(self) -> None:
        """Closes it. Operations that were started go on."""
        self._check_process()
        handle, self._handle = self._handle, ffi.NULL
        check(lib.pw_close(handle))

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        lib.pw_close(getattr(self, "_handle", ffi.NULL))


def _nothing() -> None:
    return None
