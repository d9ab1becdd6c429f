"""A global address space that plain loads and stores reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._applications import _Application
from .._integers import count as _count
from .._integers import number
from ._library import ffi, lib

if TYPE_CHECKING:
    from .._node import Node

PAGE_WORDS: int = lib.PW_GLOBAL_PAGE_WORDS


class GlobalCounts(NamedTuple):
    """What has happened at one process."""

    #: Times that a thread waited for a page or a right.
    faults: int
    #: Pages that came.
    pages_in: int
    #: Pages that were given back, or are only loaded any more.
    pages_out: int
    #: Pages whose home this is, and whose last stores were lost with the process that had made them.
    lost_stores: int
    #: Pages that nobody can give any more, because their home is gone.
    poisoned: int


class GlobalMemory(_Application):
    """Memory that all processes of a job load and store: each has the same bytes at the same offsets. A page comes when a thread touches it, and goes when another
    process stores to it.

    A thread that waits for a page holds the GIL: the other threads of its interpreter wait with it, those of other processes do not. Handlers of accesses to pages
    are therefore not to be had here, but in C, C++ and Rust.
    """

    # The last of it and of its arrays ends it.
    _end = staticmethod(lambda _: 0)
    _what = "global memory"

    def __init__(self, node: Node, pages_each: int) -> None:
        """Makes it with all processes of the job, each of which calls this with the same number of pages of 4,096 bytes, and is the home of so many."""
        place = ffi.new("pw_global **")
        count = _count(pages_each, "pages")
        made = node._made_with_others(place, lib.pw_global_free, lambda handle: lib.pw_global_make(handle, count, place))
        super().__init__(node, ffi.gc(made, lib.pw_global_free))
        self._size = 8 * PAGE_WORDS * count * node.size

    def words(self, dtype: DTypeLike = np.uint64) -> NDArray[Any]:
        """All of it, as elements of a type. Indexing an array is a plain load or store, which may be cut into several if the element has more than 8 bytes. The memory
        goes on until the last such array or view is gone, also behind close(): until then node.leave() raises Error with the code IN_USE. A thread that touches a page
        whose home is gone gets SIGSEGV: touch nothing behind leave()."""
        kind = np.dtype(dtype)
        if kind.hasobject or kind.itemsize == 0:
            raise TypeError(f"elements of type {kind} are not plain bytes")
        return np.frombuffer(self._buffer(), kind, self._size // kind.itemsize)

    def view(self) -> memoryview:
        """All of it as bytes, which the buffer protocol gives to anything that takes one. As words()."""
        return memoryview(self._buffer())

    def _buffer(self) -> Any:
        handle = self._open()
        memory = ffi.gc(ffi.cast("char *", lib.pw_global_words(handle)), lambda _, handle=handle: None)
        return ffi.buffer(memory, self._size)

    def home(self, rank: int) -> range:
        """The words of 8 bytes whose home is a process: those that it touches most."""
        first, count = ffi.new("size_t *"), ffi.new("size_t *")
        self._call(lib.pw_global_home, number(rank, "a rank"), first, count)
        return range(first[0], first[0] + count[0])

    def take_dirty(self) -> list[int]:
        """The pages whose home this is, and that any process may have stored to since the last call, by the first word of each. A page that a process still may
        store to is among them the next time, too."""
        taken: list[int] = []
        size = 1024
        words, count = ffi.new("uint64_t[]", size), ffi.new("size_t *")
        while True:
            self._call(lib.pw_global_take_dirty, words, size, count)
            there = min(int(count[0]), size)
            taken.extend(int(words[at]) for at in range(there))
            if count[0] <= size:
                return taken

    @property
    def counts(self) -> GlobalCounts:
        """What has happened at this process so far."""
        now = ffi.new("pw_gas_counts *")
        self._call(lib.pw_global_counts, now)
        return GlobalCounts(*(int(getattr(now, name)) for name in GlobalCounts._fields))

    @property
    def lost(self) -> list[int]:
        """The processes that are gone."""
        size = self._node.size
        ranks, count = ffi.new("size_t[]", size), ffi.new("size_t *")
        self._call(lib.pw_global_lost, ranks, size, count)
        return [int(ranks[at]) for at in range(count[0])]

    def leave(self) -> None:
        """Ends it when all processes of the job have called this. close() does not wait: others lose the pages of this process, and what it stored last. Arrays and views
        hold it until they are gone: delete them before the node leaves."""
        self._open()
        try:
            self._node.barrier()
        finally:
            # Also where a process did not come.
            self.close()
