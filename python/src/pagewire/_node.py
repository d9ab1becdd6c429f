"""Nodes: this process as others of its job see it, its exported arrays and its registered heap."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from dataclasses import dataclass
from typing import Any, Iterable, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _access, _conditional
from ._access import AccessLog, Faults, Pages
from ._applications import AccessStatistics, Checkpoint, Durable, HashTable, LoggedProcess, Scheme
from ._batch import Batch, Batches, PutHandler
from ._built_in import BuiltIns, RemoteBuiltIns
from ._conditional import HeldWrite, ConditionalRequest, Peer, in_thread, peer_by
from ._errors import TimeoutError, check, last_error, silent_in_child
from ._heap_array import heap_array
from ._integers import count, number as number_of, unsigned
from ._integers import index as index_of
from ._library import HEADER, ffi, lib
from ._mapped_file import MappedFile
from ._operation import Operation, Orphans
from ._parity import Parity, ParityMember, Rebuilt
from ._part import Part, colour_of, gather
from ._process import ProcessObject
from ._remote import Remote, address_of
from ._source import Source, find_source
from ._timeouts import in_slices, nanoseconds
from ._token import Token, c_token
from ._uses import Uses
from ._waits import Wish, comparison_of

B = TypeVar("B", bound=bytes)


@dataclass(frozen=True)
class HeapUsage:
    """Bytes of the registered heap. pagewire.h says what each field counts."""

    live: int
    in_use: int
    peak: int
    resident: int
    registered: int
    freed: int


def heap_statistics() -> HeapUsage:
    """How much memory the registered heap of this process has."""
    now = ffi.new("pw_heap_usage *")
    check(lib.pw_heap_statistics(now))
    return HeapUsage(now.live, now.in_use, now.peak, now.resident, now.registered, now.freed)


def purge_heap() -> None:
    """Gives freed memory of the registered heap back to the system."""
    check(lib.pw_heap_purge())


def retain_heap(size: int) -> None:
    """Says how many bytes of freed memory stay resident for the next arrays: 64 MiB unless it was said.

    What is more goes back to the system about a second after it was freed."""
    check(lib.pw_heap_retain(unsigned(size, "what stays resident")))


def is_registered(array: NDArray[Any]) -> bool:
    """Whether an array lies in the registered heap."""
    return bool(lib.pw_is_registered(address_of(array)))


class Node(ProcessObject):
    """This process as others of its job see it. `with` leaves the job at the end."""

    _what = "node"

    def __init__(self, handle: Any) -> None:
        super().__init__()
        self._handle = handle
        # Of calls that wait for other processes, and that Ctrl-C may leave in a thread.
        self._uses = Uses()
        self._orphans = Orphans()
        # Exported memory must stay.
        self._exported: dict[Token, Any] = {}
        self._logs: set[AccessLog] = set()
        # They have the node.
        self._applications: set[Any] = set()

    @classmethod
    def from_env(cls) -> Node:
        """Joins the job that started this process: what mpirun and srun start, or what the environment describes; else a job of one.

        Ctrl-C ends the wait for the others; the process goes on joining, and cannot join anew."""
        return cls(in_thread(lambda: _made(lib.pw_node_from_env_for)))

    @classmethod
    def alone(cls) -> Node:
        """A node of a job of one process, whatever the environment says."""
        return cls(_made(lib.pw_node_alone_for))

    @property
    def rank(self) -> int:
        """The number of this process in its job, from 0 on."""
        return int(lib.pw_rank(self._open()))

    @property
    def size(self) -> int:
        """Processes of the job."""
        return int(lib.pw_size(self._open()))

    def _open(self) -> Any:
        self._check_process()
        if self._handle is None:
            raise ValueError("the node has left its job")
        return self._handle

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all processes of the job have called it. Ctrl-C ends the wait, and with that the use of the job: others count on it. timeout: seconds;
        0 begins it, and looks.

        Raises TimeoutError: the barrier stays begun; for the other processes this one has come. The next barrier() is no new one, but waits on for it. Until it has
        ended, each other call of the job raises an Error with the code UNFINISHED, and does nothing.
        """
        if timeout is None:
            self._with_all(lib.pw_barrier)
        else:
            self._with_all(lib.pw_barrier_for, nanoseconds(timeout))

    def all_gather(self, mine: B, timeout: float | None = None) -> list[B]:
        """Gives a token, or bytes, to all processes of the job, and takes theirs, by rank. All give as many bytes. timeout: seconds.

        Raises TimeoutError: it stays begun, as a barrier(), and is continued by a call with the same bytes.
        """
        if timeout is None:
            return gather(mine, self.size, lambda *given: self._with_all(lib.pw_all_gather, *given))
        time = nanoseconds(timeout)
        return gather(mine, self.size, lambda *given: self._with_all(lib.pw_all_gather_for, *given, time))

    def split(self, colour: int | None, key: int = 0) -> Part | None:
        """Splits the job: processes that give one colour are a part, in which they are ranked by key, and by rank where that is equal. None for a process that gives
        no colour. All processes of the job call it."""
        colour, key = colour_of(colour), index_of(key, "a key")
        place = ffi.new("pw_part **")
        self._made_with_others(place, lib.pw_part_free, lambda node: lib.pw_split(node, colour, key, place), place)
        return Part(self, place[0]) if place[0] != ffi.NULL else None

    def fileno(self) -> int:
        """A descriptor that select and poll report as readable while something is ready: an operation that ended after this call and whose result was not taken, or
        something that a peer has opened. So a node goes into `selectors`, and into `loop.add_reader(node, ...)`. Read nothing from it, and do not close it: done(),
        wait() and next_conditional_request() take what is ready. Signals are not among that."""
        place = ffi.new("int *")
        check(lib.pw_node_descriptor(self._open(), place))
        return int(place[0])

    def broadcast(self, root: int, data: bytes) -> bytes:
        """Gives the bytes of the process `root` to all. All processes give as many; only root's count."""
        place = ffi.new("char[]", bytes(data) if data else 1)
        self._with_all(lib.pw_broadcast, number_of(root, "a rank"), place, len(data))
        return bytes(ffi.buffer(place, len(data)))

    def _with_all(self, call: Any, *arguments: Any) -> None:
        """Calls what waits for all processes of the job. leave() waits for it."""

        if self.size == 1:
            with self._uses:
                check(call(self._open(), *arguments))
        else:
            self._in_thread(call, *arguments)

    def _in_thread(self, call: Any, *arguments: Any) -> None:
        """Calls what waits for another process. Ctrl-C leaves it in a thread, for which leave() waits."""

        def run() -> None:
            with self._uses:
                check(call(self._open(), *arguments))

        in_thread(run)

    def _made_with_others(self, place: Any, end: Any, call: Any, *kept: Any) -> Any:
        """Has the library make an object together with other processes, and gives it. Ctrl-C leaves the call in a thread, which ends the object. kept: what
        `call` needs until it returns."""
        lock, is_done, is_abandoned = threading.Lock(), False, False

        def make(handle: Any, *_: Any) -> int:
            nonlocal is_done
            code = int(call(handle))
            with lock:
                is_done = True
                if is_abandoned:
                    end(place[0])
            return code

        try:
            self._in_thread(make, *kept)
        except BaseException:
            with lock:
                is_abandoned = True
                if is_done:
                    end(place[0])
            raise
        return place[0]

    def zeros(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """An array of zeros in registered memory, which peers of this host reach by plain copies once it is exported. The memory is freed
        when nothing uses the array or a view of it any more."""
        self._open()
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise TypeError("arrays of Python objects are not plain bytes")
        shape = tuple(count(extent, "elements") for extent in ((shape,) if hasattr(shape, "__index__") else shape))
        elements = count(math.prod(shape), "elements")
        memory = lib.pw_calloc(max(elements, 1), max(kind.itemsize, 1))
        if memory == ffi.NULL:
            raise MemoryError(ffi.string(lib.pw_error_message_for(lib.PW_PYTHON)).decode(errors="replace"))
        return heap_array(int(ffi.cast("uintptr_t", memory)), elements, kind).reshape(shape)

    def export(
        self, array: Any, *, read: bool = False, write: bool = False, atomic: bool = False
    ) -> Token:
        """Makes a token of a contiguous array, or of anything else with a buffer, in constant time. The node keeps it until unexport() or
        leave(). Peers read it with read=True, write it with write=True, and change its words of 8 bytes with atomic=True."""
        rights = read * lib.PW_READ | write * lib.PW_WRITE | atomic * lib.PW_ATOMIC
        view = np.asarray(array) if isinstance(array, np.ndarray) else np.frombuffer(array, np.uint8)
        if view.dtype.hasobject:
            raise TypeError("arrays of Python objects are not plain bytes")
        if not (view.flags.c_contiguous or view.flags.f_contiguous):
            raise ValueError("the array has gaps: export the array that it is a view of, or a copy")
        if (write or atomic) and not view.flags.writeable:
            raise ValueError("the array cannot be written: export it with read=True only")
        token = ffi.new("pw_token *")
        check(lib.pw_export(self._open(), address_of(view), view.nbytes, rights, token))
        made = Token(bytes(ffi.buffer(token)))
        self._exported[made] = view
        return made

    def unexport(self, token: bytes) -> None:
        """Ends what a token gives. When it returns, no access by the token is under way."""
        check(lib.pw_unexport(self._open(), c_token(token)))
        self._exported.pop(Token(token), None)

    def map_file(self, path: str | os.PathLike[str], *, writable: bool = False, length: int | None = None) -> MappedFile:
        """Maps a file, of any size, for peers to read. writable=True: and to write. length: the file is made if there is none, and has so many bytes then."""
        return MappedFile(self, path, writable, length)

    def open(self, token: bytes, dtype: DTypeLike = np.uint8) -> Remote:
        """Opens the memory that a token names, as elements of a type."""
        place = ffi.new("pw_remote **")
        check(lib.pw_open(self._open(), c_token(token), place))
        return Remote(self, place[0], dtype)

    def access_log(self, size: int, *, sources: int = 256, ordered: bool = True) -> AccessLog:
        """Makes a log of what peers do to pages that name it, with `size` bytes for each source, a connection of a peer. A record takes 48, and its data. A
        source whose space is used up waits, and nobody else does. ordered=False: only the records of one source are in order."""
        return AccessLog(self, size, sources, ordered)

    def attributes(self, token: bytes) -> Pages:
        """The pages of a token of this node, whose attributes can be set: pages of 4,096 bytes, the first of which begins where the exported bytes do.
        ``node.attributes(token)[:4096].redirect_puts().to(log)``. Other tokens of the same memory are as they were."""
        return Pages(self, Token(token))

    def take_faults(self) -> Faults:
        """Takes what is in the fault log of the process: accesses to pages that have no log. It keeps 4,096 records."""
        return _access.take_faults(self)

    def hash_table(
        self,
        cells: int,
        *,
        spare: int = 0,
        value_bytes: int = 0,
        scheme: Scheme = Scheme.NEAREST,
        durable: Durable | None = None,
    ) -> HashTable:
        """Makes a hash table with all processes of the job, each of which calls this. cells: of the volume of this process, which grows when it is full.
        spare: cells for elements that collide, as many as cells unless it is said. value_bytes: for values of more than 7 bytes, 64 for each cell unless it
        is said. durable: where its volumes outlive their processes. What a process of the same rank has left there is this one's."""
        return HashTable(self, (cells, spare, value_bytes), scheme, durable)

    def restart_hash_table(
        self,
        cells: int,
        durable: Durable,
        rank: int,
        tickets: Iterable[bytes],
        *,
        spare: int = 0,
        value_bytes: int = 0,
        scheme: Scheme = Scheme.NEAREST,
    ) -> HashTable:
        """Takes the place of the member `rank` of a durable hash table that was killed, and has all its elements. tickets: of all members, by rank. That of this rank
        is not looked at, and all others are valid. The others give the ticket of the new table to readmit(). The node may be alone."""
        return HashTable(self, (cells, spare, value_bytes), scheme, durable, (rank, tickets))

    def built_ins(self, memory: Token | NDArray[Any]) -> BuiltIns:
        """Has others run chains of steps on memory of this process: an array, or a token of this node. Its first byte and its size are multiples of 8."""
        return BuiltIns(self, memory)

    def open_built_ins(self, address: bytes) -> RemoteBuiltIns:
        """Opens the built-in handlers that an address names."""
        return RemoteBuiltIns(self, address)

    def redirect_batches(self, token: Token, handler: PutHandler) -> Batches:
        """Redirects the puts by a token of this node to a handler, which a thread of the library calls: those of batches and single ones. Nothing reaches memory but
        what the handler writes. It sets the attributes of all pages of the token."""
        return Batches(self, token, handler)

    def batches_to_memory(self, memory: Token | NDArray[Any]) -> Batches:
        """Has the puts of batches reach memory of this process, by a thread of the library: an array, or what a token of this node names."""
        return Batches(self, memory)

    def open_batch(self, address: bytes) -> Batch:
        """Opens the memory that an address names for puts in batches."""
        return Batch(self, address)

    def access_statistics(
        self, token: bytes, *, puts: bool = True, gets: bool = True, refuse_puts: bool = False, refuse_gets: bool = False
    ) -> AccessStatistics:
        """Begins to count what peers do by a token of this node. puts=False or gets=False: those cost nothing then. refuse_puts=True or refuse_gets=True: callers
        get an error, and it is counted that they tried. It sets the attributes of all pages of the token."""
        counted = puts * lib.PW_COUNT_PUTS | gets * lib.PW_COUNT_GETS
        refused = refuse_puts * lib.PW_REFUSE_PUTS | refuse_gets * lib.PW_REFUSE_GETS
        return AccessStatistics(self, token, counted, refused)

    def checkpoint(self, path: str | os.PathLike[str], *memories: Token | NDArray[Any], sync: bool = True) -> Checkpoint:
        """Opens a file of checkpoints, and makes it if there is none. memories: a token of this node for what peers write too, else an array: the same each time,
        in the same order. sync=False: a checkpoint survives the process, but not the machine."""
        return Checkpoint(self, path, memories, sync)

    def logged_process(
        self, path: str | os.PathLike[str], rank: int, count: int, size: int, *, log_bytes: int = 0, sync: bool = True
    ) -> LoggedProcess:
        """Begins as process `rank` of `count`, with `size` bytes of memory, whose puts and gets are logged. If the file has a checkpoint of it, that is restored:
        then connect all others, replay(), and repeat the work from there. log_bytes: of each log, 1 MiB unless it is said."""
        return LoggedProcess(self, path, (rank, count), size, log_bytes, sync)

    def parity(self, members: int, size: int) -> Parity:
        """Makes a parity of the checkpoints of so many members, each of which has `size` bytes at most. It takes twice as much memory of this process."""
        return Parity(self, members, size)

    def join_parity(self, token: bytes, member: int) -> ParityMember:
        """Joins a parity as one of its members, by its token of that member. It takes memory for two checkpoints."""
        return ParityMember(self, token, member)

    def rebuild_parity(self, token: bytes, member: int, others: Iterable[bytes]) -> tuple[ParityMember, Rebuilt]:
        """Joins in the place of a member that died, and rebuilds its checkpoint of the last round that all have. others: the tokens (ParityMember.token()) of all other
        members, in any order."""
        return ParityMember._rebuild(self, token, member, others)

    def _memory_of(self, memory: Token | NDArray[Any]) -> NDArray[Any]:
        """The array that a token of this node names, or that is given."""
        if isinstance(memory, Token):
            if memory not in self._exported:
                raise ValueError("the token is of another node, or was unexported")
            memory = self._exported[memory]
        if not isinstance(memory, np.ndarray):
            raise TypeError(f"memory is named by a token or an array, not by {memory!r}")
        if memory.dtype.hasobject:
            raise TypeError("arrays of Python objects are not plain bytes")
        if not (memory.flags.c_contiguous or memory.flags.f_contiguous) or not memory.flags.writeable:
            raise ValueError("the array has gaps, or cannot be written")
        return memory

    def explain(self, token: bytes) -> str:
        """The path to the owner of a token, and why it is no better one."""
        text = ffi.new("char[1024]")
        check(lib.pw_explain(self._open(), c_token(token), text, len(text)))
        return str(ffi.string(text), "utf-8", "replace")

    def signal(self, array: NDArray[Any], index: int = 0) -> Signal:
        """An element of an array of integers of 8 bytes, to be waited for until peers change it."""
        return Signal(self, array, index)

    @property
    def identity(self) -> Peer:
        """This node, as others name it."""
        return peer_by(lambda place: lib.pw_identity(self._open(), place))

    def peer(self, rank: int) -> Peer:
        """The node of a rank of the job."""
        return peer_by(lambda place: lib.pw_peer_of_rank(self._open(), number_of(rank, "a rank"), place))

    def source(self, number: int) -> Source:
        """Who a source is, by the number that an `Access` and `AccessStatistics.sources()` give. The last 65,536 connections that have ended are known, too."""
        return find_source(self._open(), number_of(number, "a source"))

    def conditional_write(self, peer: bytes, tag: int, values: ArrayLike) -> HeldWrite:
        """Starts a conditional write of an array: it is held until the peer accepts it, which says where the bytes go. The array must not be
        changed before its end."""
        return _conditional.conditional_write(self, peer, tag, values)

    def accept_conditional_write(self, peer: bytes | None, tag: int, token: bytes) -> Operation[int]:
        """Accepts the write of a tag that a peer holds, or will hold, to the memory of a token of this node. peer: None for whichever has one.
        The result is how many bytes were written."""
        return _conditional.accept_conditional_write(self, peer, tag, token)

    def conditional_read(self, peer: bytes, tag: int, token: bytes) -> Operation[int]:
        """Asks a peer for data, which come as its conditional write to the memory of a token of this node."""
        return _conditional.conditional_read(self, peer, tag, token)

    def next_conditional_request(self, timeout: float | None = None) -> ConditionalRequest:
        """Waits for a conditional write or read that a peer opens. timeout: seconds.

        Raises TimeoutError.
        """
        return _conditional.next_conditional_request(self, timeout)

    def flush(self) -> None:
        """Waits until everything that was started before has ended. Raises the first failure of an operation that was dropped. It does not
        wait for conditional writes that were not released yet, nor for releases."""
        self._orphans.flushed(lib.pw_flush_all(self._open()))

    def leave(self) -> None:
        """Leaves the job, and ends all exports. Nothing is done if it was left before. Calls that wait for other processes end before: as close() of a hash
        table, this waits for one that Ctrl-C has interrupted."""
        for application in list(self._applications):
            application.close()
        for log in list(self._logs):
            log.close()
        with self._uses.none():
            if self._handle is not None:
                check(lib.pw_node_leave(self._handle))
                # The node stays, and may be left later, if it was refused.
                self._handle = None
        self._exported.clear()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        # At the end of the program a thread may be within a call still, and never return.
        if handle is None or self._uses.is_busy or any(application._uses.is_busy for application in self._applications):
            return
        with silent_in_child():
            for application in list(self._applications):
                application.close()
        lib.pw_node_leave(handle)


class Signal:
    """A word of this process that peers set or add to behind their puts."""

    def __init__(self, node: Node, array: NDArray[Any], index: int) -> None:
        if array.dtype not in (np.dtype(np.uint64), np.dtype(np.int64)):
            raise TypeError(f"a signal is an element of type uint64 or int64, not {array.dtype}")
        self._node = node
        # The element itself, as an array: it holds the memory, and knows its bounds.
        if not array.flags.c_contiguous:
            raise ValueError("the array has gaps: take the signal from the array that it is a view of")
        index = index_of(index, "the index of a signal")
        if not 0 <= index < array.size:
            raise IndexError(f"element {index} of an array of {array.size}")
        self._element = array.reshape(-1)[index : index + 1]

    @property
    def value(self) -> int:
        """What it is."""
        self._node._check_process()
        return int(self._element[0])

    def _word(self) -> Any:
        return ffi.cast("uint64_t *", self._element.ctypes.data)

    def wait(
        self,
        at_least: int | None = None,
        timeout: float | None = None,
        *,
        equal: int | None = None,
        not_equal: int | None = None,
        greater: int | None = None,
        less: int | None = None,
        at_most: int | None = None,
    ) -> int:
        """Waits until it is as wished by one of the comparisons, and gives it: `wait(3)` until it is 3 or more, `wait(less=3)`. Numbers are compared without a
        sign. What was put before the signal is there then. timeout: seconds; 0 looks once.

        Raises TimeoutError.
        """
        comparison, value = comparison_of(
            at_least=at_least, equal=equal, not_equal=not_equal, greater=greater, less=less, at_most=at_most
        )
        seen = ffi.new("uint64_t *")
        word, node = self._word(), self._node._open()
        call = lambda time: int(lib.pw_signal_wait(node, word, comparison, value, time, seen))
        in_slices(timeout, call, "the signal was not as wished")
        return int(seen[0])

    def wish(
        self,
        at_least: int | None = None,
        *,
        equal: int | None = None,
        not_equal: int | None = None,
        greater: int | None = None,
        less: int | None = None,
        at_most: int | None = None,
    ) -> Wish:
        """What it is to be, for signal_wait_any(), signal_wait_some() and signal_wait_all(). As wait()."""
        comparison, value = comparison_of(
            at_least=at_least, equal=equal, not_equal=not_equal, greater=greater, less=less, at_most=at_most
        )
        return Wish(self, comparison, value)

    async def reaches(self, at_least: int | None = None, **wished: int) -> int:
        """wait() for coroutines: it looks now and then, at most every millisecond."""
        pause = 0.0
        while True:
            try:
                return self.wait(at_least, 0, **wished)
            except TimeoutError:
                await asyncio.sleep(pause)
                pause = min(pause + 0.0001, 0.001)


def _made(make: Any) -> Any:
    place = ffi.new("pw_node **")
    code = make(HEADER, place)
    if code != 0:
        raise last_error(code)
    return place[0]
