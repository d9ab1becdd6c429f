"""A sort that survives the death of its processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._applications import _path
from .._errors import check
from .._heap_array import heap_array
from .._integers import number
from .._timeouts import nanoseconds
from ._library import ffi, lib

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._node import Node


class Sorted(NamedTuple):
    """A part of the sorted keys of all processes, and what it took."""

    #: In registered memory.
    keys: NDArray[np.uint64]
    #: How many keys of all processes come before.
    position: int
    #: Gets of 8 bytes.
    gets: int
    #: Keys that the predecessor of this process had got, from the logs of others.
    from_logs: int
    #: Times that another process was lost.
    peers_lost: int
    #: The sorted run of this process came from its file.
    run_was_saved: bool


def sort(node: Node, folder: str | os.PathLike[str], rank: int, size: int, keys: Any, patience: float | None = 300) -> Sorted:
    """Sorts the keys of `size` processes, each of which calls this with the same folder and its own rank, and gives this process its part. A process that
    dies is started again with the same folder, rank and keys. keys: a contiguous array of uint64. patience: for how many seconds others are waited for, None
    without a bound. Raises TimeoutError, if a process is not there, and nobody has taken its place."""
    given = np.ascontiguousarray(keys)
    if given.dtype != np.uint64:
        raise TypeError(f"keys are of uint64, and these are of {given.dtype}")
    path = ffi.from_buffer(_path(folder) + b"\0")
    # 0 would be five minutes.
    bound = max(nanoseconds(patience), 1)
    options = {"folder": path, "rank": number(rank, "a rank"), "size": number(size, "a number of processes"), "patience": bound}
    made = ffi.new("pw_sorted *")
    array = ffi.from_buffer("uint64_t[]", given) if given.size else ffi.NULL
    check(lib.pw_sort(node._open(), ffi.new("pw_sort_options *", options), array, given.size, made))
    sorted_keys = heap_array(int(ffi.cast("uintptr_t", made.keys)), made.count, np.dtype(np.uint64))
    return Sorted(sorted_keys, made.position, made.gets, made.from_logs, made.peers_lost, bool(made.run_was_saved))
