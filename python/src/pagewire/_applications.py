"""Applications of memory that reacts: a hash table, access statistics, checkpoints."""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._errors import Error, check
from ._integers import count as _count
from ._integers import number as _number
from ._integers import unsigned
from ._library import ffi, lib
from ._process import ProcessObject
from ._remote import Remote, address_of
from ._token import Token, c_token
from ._uses import Uses

if TYPE_CHECKING:
    from ._node import Node

# PW_ABSENT (pagewire.h).
ABSENT = 2**64 - 1


class Scheme(enum.IntEnum):
    """Who changes the volume of another process."""

    #: The caller, where it has the volume mapped; else the owner's handler.
    NEAREST = lib.PW_NEAREST
    #: The owner's handler, whatever is mapped.
    BY_HANDLER = lib.PW_BY_HANDLER
    #: The caller, by gets, puts and atomics, whatever is mapped.
    BY_OPERATIONS = lib.PW_BY_OPERATIONS


class Volume(NamedTuple):
    """What the volume of a process has. pagewire.h says what each field counts."""

    elements: int
    cells: int
    spare_taken: int
    resizes: int
    malformed: int
    #: Of a durable table: checkpoints of it since this process has it.
    checkpoints: int


class VolumeTicket(bytes):
    """Where the volume of a process is, of a durable hash table. It is plain bytes: send them by any means."""

    SIZE: int = lib.PW_TABLE_TICKET_SIZE

    def __new__(cls, data: bytes) -> VolumeTicket:
        if len(data) != cls.SIZE:
            raise ValueError(f"a ticket of a hash table has {cls.SIZE} bytes, and these are {len(data)}")
        return super().__new__(cls, data)

    def __repr__(self) -> str:
        return f"VolumeTicket({bytes(self[:16]).hex()}...)"


class Durable(NamedTuple):
    """Where the volumes of a hash table lie when their processes do not run."""

    #: The folder of the files, which is made if there is none. Each process of a host names the same one.
    folder: str | os.PathLike[str]
    #: Bytes that the logs of one process to one volume take before the owner of the volume makes a checkpoint: 64 MiB unless it is said.
    log_bytes: int = 0
    #: A checkpoint is on the disk when its call returns. False: it outlives processes, and not the machine.
    sync: bool = True


class _Application(ProcessObject):
    """What a node keeps until it is closed or the node leaves. `with` closes it."""

    _end: Any

    def __init__(self, node: Node, handle: Any) -> None:
        super().__init__()
        self._handle: Any = handle
        self._uses = Uses()
        # It has the library's node.
        self._node = node
        self._applications = node._applications
        self._applications.add(self)

    def _open(self) -> Any:
        self._check_process()
        if self._handle is None:
            raise ValueError(f"the {self._what} is closed")
        return self._handle

    def _call(self, function: Any, *arguments: Any) -> None:
        """Calls the library with the handle, which close() leaves alone meanwhile."""
        with self._uses:
            check(function(self._open(), *arguments))

    def close(self) -> None:
        """Closes it, when the calls of other threads have returned. Nothing is done if it was closed before. A call that Ctrl-C has interrupted goes on in a
        thread: this waits for it, and Ctrl-C ends that wait, too."""
        if self._handle is not None:
            self._check_process()
        with self._uses.none():
            handle, self._handle = self._handle, None
        self._applications.discard(self)
        if handle is not None:
            check(self._end(handle))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes_or_none(value: bytes | None) -> tuple[Any, int]:
    if value is None:
        return ffi.NULL, ABSENT
    buffer = ffi.from_buffer(value)
    return buffer, len(buffer)


# What it cannot keep is missing in the list, which items() reports.
@ffi.callback("int(void *, const pw_element *)", error=1)  # type: ignore[untyped-decorator, unused-ignore]
def _take_element(context: Any, element: Any) -> int:
    ffi.from_handle(context).append((int(element.key), bytes(ffi.buffer(element.value, element.length))))
    return 0


class HashTable(_Application):
    """A hash table over the processes of a job, from keys of 8 bytes, which are not 0, to bytes. Each process has a part of it, its volume; the hash of a key
    says in whose volume it is. `table[7] = b"seven"`, `table[7]` and `del table[7]` are insert(), lookup() and delete().

    What a process inserts and deletes has happened when its flush() has returned. Let all meet in node.barrier() before the first one closes it.

    A durable one outlives its processes: what was acknowledged to anyone is there when another process takes the place of one that was killed, or when the whole
    job starts again.
    """

    _end = staticmethod(lib.pw_table_free)
    _what = "hash table"

    def __init__(
        self,
        node: Node,
        sizes: tuple[int, int, int],
        scheme: Scheme,
        durable: Durable | None,
        restart: tuple[int, Iterable[bytes]] | None = None,
    ) -> None:
        cells, spare, value_bytes = sizes
        numbers = {"cells": _count(cells, "cells"), "spare": _count(spare, "cells"), "value_bytes": _count(value_bytes, "bytes")}
        if numbers["cells"] == 0:
            raise Error(lib.PW_ARGUMENT, "0 cells: the volume of a process has 1 or more")
        options = ffi.new("pw_table_options *", {**numbers, "scheme": Scheme(scheme)})
        place = ffi.new("pw_table **")
        if durable is None:
            node._made_with_others(place, self._end, lambda handle: lib.pw_table_join(handle, options, place))
        else:
            folder = ffi.from_buffer(_path(durable.folder) + b"\0")
            log_bytes, checkpoints = _count(durable.log_bytes, "bytes"), lib.PW_SYNC if durable.sync else lib.PW_NO_SYNC
            where = ffi.new("pw_durability *", {"folder": folder, "log_bytes": log_bytes, "checkpoints": checkpoints})
            if restart is None:
                # `where` has the address of the folder alone, and Ctrl-C leaves the call in a thread.
                join = lambda handle: lib.pw_table_join_durable(handle, options, where, place)
                node._made_with_others(place, self._end, join, folder)
            else:
                rank, tickets = restart
                all_tickets = [{"bytes": VolumeTicket(ticket)} for ticket in tickets]
                array = ffi.new("pw_volume_ticket[]", all_tickets)
                count = len(all_tickets)
                check(lib.pw_table_restart(node._open(), options, where, _number(rank, "a rank"), array, count, place))
        super().__init__(node, place[0])

    def insert(self, key: int, value: bytes) -> None:
        """Sets the value of a key."""
        buffer = ffi.from_buffer(value)
        self._call(lib.pw_table_insert, _key(key), buffer, len(buffer))

    def insert_batch(self, elements: Mapping[int, bytes] | Iterable[tuple[int, bytes]]) -> None:
        """Inserts several elements, in any order. Those of one process go to it together: with a key that is there twice, either value may stay."""
        pairs = list(elements.items() if isinstance(elements, Mapping) else elements)
        buffers = [ffi.from_buffer(value) for _, value in pairs]
        array = ffi.new("pw_element[]", len(pairs))
        for element, (key, _), buffer in zip(array, pairs, buffers):
            element.key, element.value, element.length = _key(key), buffer, len(buffer)
        self._call(lib.pw_table_insert_batch, array, len(pairs))

    def lookup(self, key: int) -> bytes | None:
        """The value of a key. None: there is none."""
        length = ffi.new("uint64_t *")
        size = 256
        while True:
            value = ffi.new("char[]", size)
            self._call(lib.pw_table_lookup, _key(key), value, size, length)
            if length[0] == ABSENT:
                return None
            if length[0] <= size:
                return bytes(ffi.buffer(value, length[0]))
            size = int(length[0])

    def delete(self, key: int) -> None:
        """Deletes the value of a key, if there is one."""
        self._call(lib.pw_table_delete, _key(key))

    def clear(self) -> None:
        """Removes all elements, of the volumes of all processes, behind everything that this process did before. One process calls this, and others need not:
        what they insert meanwhile may stay or not."""
        self._call(lib.pw_table_clear)

    def compare_and_set(self, key: int, expected: bytes | None, value: bytes | None) -> bool:
        """Sets the value of a key if it is the expected one, and says whether it was. None: no value. It is atomic against all that is done to the key, by
        whomever, and has happened when this returns."""
        was_set = ffi.new("int *")
        old = _bytes_or_none(expected)
        new = _bytes_or_none(value)
        self._call(lib.pw_table_compare_and_set, _key(key), *old, *new, was_set)
        return bool(was_set[0])

    def items(self) -> Iterator[tuple[int, bytes]]:
        """All keys and their values, in any order. Each element that is there during the whole loop comes exactly once, with a value that it has had meanwhile; one
        that is inserted or deleted meanwhile comes once or not at all. Anything may be done to the table in its midst."""
        cursor, count = ffi.new("pw_table_cursor *"), ffi.new("size_t *")
        while True:
            part: list[tuple[int, bytes]] = []
            context = ffi.new_handle(part)
            self._call(lib.pw_table_next, cursor, _take_element, context, count)
            if count[0] == 0:
                return
            if len(part) < count[0]:
                raise MemoryError("there is no memory for the elements of the hash table")
            yield from part

    def keys(self) -> Iterator[int]:
        """All keys: see items()."""
        return (key for key, _ in self.items())

    def values(self) -> Iterator[bytes]:
        """The values of all keys: see items()."""
        return (value for _, value in self.items())

    def flush(self) -> None:
        """Waits until everything that this process has inserted and deleted is done at its owners."""
        self._call(lib.pw_table_flush)

    def resize(self, cells: int) -> None:
        """Gives the volume of this process so many cells, and leaves out what nothing names any more."""
        self._call(lib.pw_table_resize, _count(cells, "cells"))

    def volume(self) -> Volume:
        """What the volume of this process has."""
        now = ffi.new("pw_volume *")
        self._call(lib.pw_table_volume, now)
        return Volume(*(int(getattr(now, name)) for name in Volume._fields))

    def checkpoint(self) -> None:
        """Writes a checkpoint of the volume of this process, of a durable table, so that its logs begin anew. A log that is full asks for one, too."""
        self._call(lib.pw_table_checkpoint)

    def ticket(self) -> VolumeTicket:
        """Where the volume of this process is, for node.restart_hash_table() and readmit() elsewhere."""
        place = ffi.new("pw_volume_ticket *")
        self._call(lib.pw_table_ticket, place)
        return VolumeTicket(bytes(ffi.buffer(place)))

    def readmit(self, rank: int, ticket: bytes) -> int:
        """Has a process of node.restart_hash_table() take the place of the member of its rank. Do again what has failed. Gives how many messages for that member
        were not flushed: if there are any, do everything since the last flush again."""
        unflushed = ffi.new("uint64_t *")
        of = ffi.new("pw_volume_ticket *", {"bytes": VolumeTicket(ticket)})
        self._call(lib.pw_table_readmit, _number(rank, "a rank"), of, unflushed)
        return int(unflushed[0])

    def __getitem__(self, key: int) -> bytes:
        value = self.lookup(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: int, value: bytes) -> None:
        self.insert(key, value)

    def __delitem__(self, key: int) -> None:
        self.delete(key)

    def __contains__(self, key: int) -> bool:
        return self.lookup(key) is not None

    def __iter__(self) -> Iterator[int]:
        return self.keys()


class AccessCounts(NamedTuple):
    """What was counted of a page, of a source, or of all."""

    #: Puts that reached memory.
    puts: int
    #: Gets that were answered.
    gets: int
    #: Atomics that were executed.
    atomics: int
    #: Bytes of these puts and atomics.
    bytes_in: int
    #: Bytes of these gets.
    bytes_out: int
    #: Puts and atomics that were refused.
    refused_puts: int
    #: Gets that were refused.
    refused_gets: int
    #: Of the puts: nobody knows whether they were made, as their source has died in their midst.
    unsure: int

    @property
    def accesses(self) -> int:
        """Accesses of all kinds, those that were refused too."""
        return self.puts + self.gets + self.atomics + self.refused

    @property
    def refused(self) -> int:
        """Accesses that were refused."""
        return self.refused_puts + self.refused_gets


#: The type of the counters that AccessStatistics.export() gives to peers: one element a page.
ACCESS_COUNTS: np.dtype[Any] = np.dtype([(name, np.uint64) for name in AccessCounts._fields])


def _counts(of: Any) -> AccessCounts:
    return AccessCounts(*(int(getattr(of, name)) for name in AccessCounts._fields))


class AccessStatistics(_Application):
    """Counts what peers do by a token, by page and by source, until it is closed. Then what was refused is refused, and nothing else has attributes."""

    _end = staticmethod(lib.pw_access_statistics_end)
    _what = "counting"

    def __init__(self, node: Node, token: bytes, counted: int, refused: int) -> None:
        place = ffi.new("pw_access_statistics **")
        check(lib.pw_access_statistics_start(node._open(), c_token(token), counted, refused, place))
        super().__init__(node, place[0])

    def _read(self, call: Any, *arguments: int) -> AccessCounts:
        counts = ffi.new("pw_access_counts *")
        self._call(call, *arguments, counts)
        return _counts(counts)

    def total(self) -> AccessCounts:
        """All that was counted. Whatever had ended at its caller before is in it."""
        return self._read(lib.pw_access_statistics_total)

    def page(self, page: int) -> AccessCounts:
        """What was counted of a page of 4,096 bytes, from 0 on: zeros for one that the token does not have."""
        return self._read(lib.pw_access_statistics_page, _number(page, "a page"))

    def reset(self) -> AccessCounts:
        """Sets all counters to zero, and gives the total that there was."""
        return self._read(lib.pw_access_statistics_reset)

    def hottest(self, most: int) -> list[tuple[int, AccessCounts]]:
        """The pages that were accessed most, and no page that was not: the first one most, of equal ones the lower. It gives 2^20 of them at most."""
        return self._list(lib.pw_access_statistics_hottest, min(_count(most, "pages"), 1 << 20))[0]

    def sources(self) -> dict[int, AccessCounts]:
        """What each peer did, by the number of a source of its: see `Node.source()`."""
        most = 16
        while True:
            found, count = self._list(lib.pw_access_statistics_sources, most)
            if count <= most:
                return dict(found)
            most = count

    def _list(self, call: Any, most: int) -> tuple[list[tuple[int, AccessCounts]], int]:
        places, count = ffi.new("pw_numbered_counts[]", max(most, 1)), ffi.new("size_t *")
        self._call(call, places, most, count)
        there = min(int(count[0]), most)
        return [(int(places[at].number), _counts(places[at].counts)) for at in range(there)], int(count[0])

    def export(self) -> Token:
        """A token by which peers read the counters: `node.open(token, pagewire.ACCESS_COUNTS)[:]`. It ends with the counting."""
        token = ffi.new("pw_token *")
        self._call(lib.pw_access_statistics_export, token)
        return Token(bytes(ffi.buffer(token)))


class LocalWrites(enum.IntEnum):
    """How a checkpoint sees what this process writes."""

    #: It does not: each checkpoint is a full copy.
    FULL_COPIES = lib.PW_FULL_COPIES
    #: By soft-dirty bits. No thread of this process may write during a save.
    SOFT_DIRTY = lib.PW_SOFT_DIRTY
    #: By asynchronous write protection.
    WRITE_PROTECT = lib.PW_WRITE_PROTECT


class Saved(NamedTuple):
    """What was saved."""

    #: The number of the checkpoint, from 1 on.
    number: int
    #: Pages of data in it.
    pages: int
    #: Whether it has all pages, and not only what has changed.
    is_full: bool


class Restored(NamedTuple):
    """What was restored."""

    #: The number of the checkpoint.
    number: int
    #: What the program had saved beside the memory.
    note: bytes


class Checkpoint(_Application):
    """Checkpoints of memory of this process, in a file that survives it. Each takes what has changed since the one before."""

    _end = staticmethod(lib.pw_checkpoint_close)
    _what = "checkpoint"

    def __init__(self, node: Node, path: str | os.PathLike[str], memories: tuple[Any, ...], sync: bool) -> None:
        views = [node._memory_of(memory) for memory in memories]
        array = ffi.new("pw_memory[]", max(len(views), 1))
        tokens = [c_token(memory) if isinstance(memory, Token) else ffi.NULL for memory in memories]
        for at, (view, token) in enumerate(zip(views, tokens)):
            array[at].address, array[at].length, array[at].token = address_of(view), view.nbytes, token
        place = ffi.new("pw_checkpoint **")
        options = lib.PW_SYNC if sync else lib.PW_NO_SYNC
        check(lib.pw_checkpoint_open(node._open(), _path(path), options, array, len(views), place))
        # The memory must stay.
        self._views = views
        super().__init__(node, place[0])

    def save(self, note: bytes = b"") -> Saved:
        """Saves the memory, with a note of the program's own. It has what peers had put before the call, and what this process had written before."""
        saved, kept = ffi.new("pw_saved *"), ffi.from_buffer(note)
        self._call(lib.pw_checkpoint_save, kept, len(kept), saved)
        return Saved(saved.number, saved.pages, saved.is_full)

    def save_together(self, remotes: Iterable[Remote] = (), note: bytes = b"") -> Saved:
        """Saves together with all processes of the job, each of which calls this with its own file: what a process has put before the call is in the
        checkpoint of whom it has put to. remotes: that this process puts to. If any process has an error, all have one."""
        peers = [remote._handle for remote in remotes]
        saved, kept = ffi.new("pw_saved *"), ffi.from_buffer(note)
        handles = ffi.new("pw_remote *[]", peers)
        self._with_all(lib.pw_checkpoint_save_together, handles, len(peers), kept, len(kept), saved)
        return Saved(saved.number, saved.pages, saved.is_full)

    def restore(self, number: int | None = None) -> Restored | None:
        """Restores the memory from a checkpoint, by default from the last one. None: there is none yet, and nothing was changed."""
        wanted = 0 if number is None else _number(number, "a checkpoint")
        if number == 0:
            raise ValueError("checkpoints are numbered from 1 on")
        return self._restore(lambda *note: self._call(lib.pw_checkpoint_restore, wanted, *note))

    def restore_together(self) -> Restored | None:
        """Restores together with all processes of the job, each of which calls this, from the last checkpoint that all have."""
        return self._restore(lambda *note: self._with_all(lib.pw_checkpoint_restore_together, *note))

    def _with_all(self, function: Any, *arguments: Any) -> None:
        """Calls what waits for all processes of the job. It uses the handle until it returns, also behind Ctrl-C."""

        def call(_: Any) -> int:
            with self._uses:
                return int(function(self._open(), *arguments))

        self._node._with_all(call)

    def _restore(self, restore: Any) -> Restored | None:
        size = 1 << 16
        note, restored = ffi.new("char[]", size), ffi.new("pw_restored *")
        restore(note, size, restored)
        if restored.number == 0:
            return None
        if restored.note_length > size:
            size = int(restored.note_length)
            note = ffi.new("char[]", size)
            self._call(lib.pw_checkpoint_restore, restored.number, note, size, restored)
        return Restored(int(restored.number), bytes(ffi.buffer(note, restored.note_length)))

    @property
    def numbers(self) -> tuple[int, int] | None:
        """The numbers of the first and the last checkpoint that can be restored."""
        first, last, _ = self._numbers()
        return (first, last) if first else None

    @property
    def local_writes(self) -> LocalWrites:
        """How what this process writes is seen."""
        return LocalWrites(self._numbers()[2])

    def _numbers(self) -> tuple[int, int, int]:
        first, last, how = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("uint32_t *")
        self._call(lib.pw_checkpoint_numbers, first, last, how)
        return int(first[0]), int(last[0]), int(how[0])


def _path(path: str | os.PathLike[str]) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path has no NUL")
    return name


def _key(key: Any) -> int:
    number = unsigned(key, "a key")
    if number == 0:
        raise ValueError("the key 0 names no element")
    return number


class Ticket(bytes):
    """What one logged process gives another one, so that it may put to it and get from it. It is plain bytes, for one process only."""

    SIZE: int = lib.PW_TICKET_SIZE

    def __new__(cls, data: bytes) -> Ticket:
        if len(data) != cls.SIZE:
            raise ValueError(f"a ticket has {cls.SIZE} bytes, and these are {len(data)}")
        return super().__new__(cls, data)

    def __repr__(self) -> str:
        return f"Ticket({bytes(self[:16]).hex()}...)"


class LoggedProcess(_Application):
    """A process of several, each of which has memory that the others put to and get from, and any one of which may die.

    Its program must repeat its work when it begins again from a checkpoint: what it does depends on its memory, its note and what it gets, and on nothing
    else. It reads what others put only behind next_epoch(), which all call as often, with a barrier before it.
    """

    # The last of it and of the arrays of its memory ends it.
    _end = staticmethod(lambda _: 0)
    _what = "process"

    def __init__(
        self, node: Node, path: str | os.PathLike[str], ranks: tuple[int, int], size: int, log_bytes: int, sync: bool
    ) -> None:
        numbers = {"rank": _number(ranks[0], "a rank"), "size": _count(ranks[1], "processes"), "bytes": _count(size, "bytes")}
        checkpoints = lib.PW_SYNC if sync else lib.PW_NO_SYNC
        options = {**numbers, "log_bytes": _count(log_bytes, "bytes"), "checkpoints": checkpoints}
        place = ffi.new("pw_logged_process **")
        check(lib.pw_logged_process_start(node._open(), _path(path), ffi.new("pw_logged_process_options *", options), place))
        super().__init__(node, ffi.gc(place[0], lib.pw_logged_process_end))
        self._size = size

    @property
    def note(self) -> bytes | None:
        """The note of the checkpoint that it was restored from. None: it was not restored."""
        length = ffi.new("uint64_t *")
        self._call(lib.pw_logged_process_note, ffi.NULL, 0, length)
        if length[0] == ABSENT:
            return None
        note = ffi.new("char[]", max(int(length[0]), 1))
        self._call(lib.pw_logged_process_note, note, length[0], length)
        return bytes(ffi.buffer(note, length[0]))

    def memory(self, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Its memory, as elements of a type. The process goes on, for its node, until the last such array is gone, also behind close()."""
        kind, handle = np.dtype(dtype), self._open()
        if kind.hasobject or kind.itemsize == 0:
            raise TypeError(f"elements of type {kind} are not plain bytes")
        memory = ffi.gc(ffi.cast("char *", lib.pw_logged_process_memory(handle)), lambda _, handle=handle: None)
        return np.frombuffer(ffi.buffer(memory, self._size), kind, self._size // kind.itemsize)

    def ticket(self, peer: int) -> Ticket:
        """Makes a ticket for another process."""
        place = ffi.new("pw_ticket *")
        self._call(lib.pw_logged_process_ticket, _number(peer, "a process"), place)
        return Ticket(bytes(ffi.buffer(place)))

    def connect(self, ticket: bytes) -> None:
        """Connects another process by the ticket that it has made for this one, once in its life. A process that takes the place of one that died makes its
        tickets when it is replaying no more: what others had put meanwhile is put when they connect it."""
        self._call(lib.pw_logged_process_connect, ffi.new("pw_ticket *", {"bytes": Ticket(ticket)}))

    def replay(self) -> None:
        """Takes the logs of all others, of a process that was restored: what they had put, what gets had returned, and which puts had arrived."""
        self._call(lib.pw_logged_process_replay)

    @property
    def is_replaying(self) -> bool:
        """Whether it is in an epoch that the others have left: there is no barrier to wait for, and nobody may put to it yet."""
        with self._uses:
            return bool(lib.pw_logged_process_is_replaying(self._open()))

    def next_epoch(self) -> int:
        """A barrier of all processes has been passed: what they had put before is in the memory, in a replay, too. Gives how many were passed."""
        epoch = ffi.new("uint64_t *")
        self._call(lib.pw_logged_process_next_epoch, epoch)
        return int(epoch[0])

    def put(self, peer: int, offset: int, values: Any) -> None:
        """Puts bytes, or an array, into the memory of another process, and logs them here first. In a replay, a put that had arrived is not made again."""
        buffer = ffi.from_buffer(values)
        arguments = _number(peer, "a process"), _count(offset, "bytes"), buffer, len(buffer)
        self._call(lib.pw_logged_process_put, *arguments)

    def get(self, peer: int, offset: int, size: int) -> NDArray[np.uint8]:
        """Gets bytes from the memory of another process, which logs them. In a replay they come from that log."""
        self._open()
        count = _count(size, "bytes")
        array = np.empty(count, np.uint8)
        self._call(lib.pw_logged_process_get, _number(peer, "a process"), _count(offset, "bytes"), address_of(array), count)
        return array

    def checkpoint(self, note: bytes = b"") -> int:
        """Saves the memory and a note, which says where the work is; then trims the logs of the others. Gives the number of the checkpoint."""
        kept, number = ffi.from_buffer(note), ffi.new("uint64_t *")
        self._call(lib.pw_logged_process_checkpoint, kept, len(kept), number)
        return int(number[0])
