"""Forked children: each call on an object of the parent raises FORKED at once, and what ends objects by itself says nothing."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any, Callable

import numpy as np

import pagewire
from pagewire import ErrorCode, experimental

# A child that hangs ends by SIGALRM.
SECONDS = 60


def in_child(body: Callable[[], list[str]]) -> list[str]:
    """What a forked child finds wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(SECONDS)
        try:
            said = "\n".join(body())
        except BaseException as failure:
            said = f"{type(failure).__name__}: {failure}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    return said.splitlines() + ([] if status == 0 else [f"the child ended with status {status:#x}"])


class World:
    """An object of each class, and operations under way in other threads."""

    def __init__(self) -> None:
        self.node, self.peer = pagewire.Node.alone(), pagewire.Node.alone()
        self.array = self.node.zeros(1 << 16, np.int64)
        self.token = self.node.export(self.array, read=True, write=True, atomic=True)
        self.remote = self.peer.open(self.token, np.int64)
        self.signal = self.node.signal(self.array, (1 << 16) - 1)
        self.operation = self.remote.put(0, np.arange(1 << 16))
        self.log = self.node.access_log(1 << 16)
        self.serving = self.log.serve(lambda access: None)
        self.table = self.node.hash_table(100)
        self.table.insert(7, b"seven")
        self.ticket = b""
        self.built_ins = self.node.built_ins(self.token)
        self.chain = self.peer.open_built_ins(self.built_ins.address)
        self.batches = self.node.batches_to_memory(self.token)
        self.batch = self.peer.open_batch(self.batches.address)
        self.held = self.peer.conditional_write(self.node.identity, 7, np.zeros(4))
        self.opened = self.node.next_conditional_request(60)
        self.part = self.node.split(1)
        self.taken, self.ended = self.remote.put(0, np.arange(4)), self.remote.get(0, 4)
        self.taken.wait()
        while not self.ended.done():
            pass
        self.folder = tempfile.TemporaryDirectory()
        self.process = self.node.logged_process(self.folder.name + "/process", 0, 1, 4096, sync=False)
        self.file = self.node.map_file(self.folder.name + "/file", writable=True, length=4096)
        self.store = experimental.TransactionStore(self.node, 4, 8)
        self.store.serve(0, [self.store.token])
        self.client = experimental.TransactionClient(self.peer, [self.store.token])
        self.client.run(lambda transaction: transaction.put(0, 1, bytes(8)))
        self.durable = pagewire.Durable(self.folder.name)
        self.is_ending = False
        self.busy = [threading.Thread(target=self._keep_busy) for _ in range(2)]
        for thread in self.busy:
            thread.start()

    def _keep_busy(self) -> None:
        values = np.zeros(1 << 14, np.int64)
        while not self.is_ending:
            self.remote.put(0, values).wait()
            self.table.insert(8, b"eight")

    def end(self) -> None:
        self.is_ending = True
        for thread in self.busy:
            thread.join()
        self.client.close()
        self.store.close()
        self.process.close()
        self.file.close()
        self.folder.cleanup()

    def calls(self) -> dict[str, tuple[Any, dict[str, Callable[[], Any]]]]:
        """By class: an object, and its calls."""
        node, remote, token, values = self.node, self.remote, self.token, np.zeros(4, np.int64)
        return {
            "Node": (
                node,
                {
                    "rank": lambda: node.rank,
                    "size": lambda: node.size,
                    "barrier": node.barrier,
                    "all_gather": lambda: node.all_gather(b"12"),
                    "broadcast": lambda: node.broadcast(0, b"12"),
                    "split": lambda: node.split(0),
                    "fileno": node.fileno,
                    "source": lambda: node.source(0),
                    "zeros": lambda: node.zeros(3),
                    "restart_hash_table": lambda: node.restart_hash_table(10, self.durable, 0, []),
                    "map_file": lambda: node.map_file(__file__),
                    "export": lambda: node.export(values),
                    "unexport": lambda: node.unexport(token),
                    "open": lambda: node.open(token),
                    "access_log": lambda: node.access_log(1 << 16),
                    "attributes": lambda: node.attributes(token)[:].refuse_puts().set(),
                    "take_faults": node.take_faults,
                    "hash_table": lambda: node.hash_table(10),
                    "built_ins": lambda: node.built_ins(values),
                    "open_built_ins": lambda: node.open_built_ins(self.chain_address),
                    "batches_to_memory": lambda: node.batches_to_memory(values),
                    "redirect_batches": lambda: node.redirect_batches(token, lambda put: None),
                    "open_batch": lambda: node.open_batch(self.batch_address),
                    "access_statistics": lambda: node.access_statistics(token),
                    "checkpoint": lambda: node.checkpoint("/tmp/pagewire-none", token),
                    "logged_process": lambda: node.logged_process("/tmp/pagewire-none", 0, 1, 4096),
                    "parity": lambda: node.parity(2, 4096),
                    "join_parity": lambda: node.join_parity(token, 0),
                    "rebuild_parity": lambda: node.rebuild_parity(token, 0, [token]),
                    "explain": lambda: node.explain(token),
                    "signal": lambda: node.signal(values).wait(0),
                    "identity": lambda: node.identity,
                    "peer": lambda: node.peer(0),
                    "conditional_write": lambda: node.conditional_write(self.address, 9, values),
                    "accept_conditional_write": lambda: node.accept_conditional_write(self.address, 9, token),
                    "conditional_read": lambda: node.conditional_read(self.address, 9, token),
                    "next_conditional_request": lambda: node.next_conditional_request(1),
                    "flush": node.flush,
                    "leave": node.leave,
                },
            ),
            "Remote": (
                remote,
                {
                    "put": lambda: remote.put(0, values),
                    "get": lambda: remote.get(0, 4),
                    "get_into": lambda: remote.get_into(0, values),
                    "put_signal": lambda: remote.put_signal(0, values, 9, add=1),
                    "fetch_add": lambda: remote.fetch_add(0, 1),
                    "compare_swap": lambda: remote.compare_swap(0, 0, 1),
                    "swap": lambda: remote.swap(0, 1),
                    "fetch_and": lambda: remote.fetch_and(0, 1),
                    "fetch_or": lambda: remote.fetch_or(0, 1),
                    "fetch_xor": lambda: remote.fetch_xor(0, 1),
                    "fetch_min": lambda: remote.fetch_min(0, 1),
                    "fetch_max": lambda: remote.fetch_max(0, 1),
                    "put_scattered": lambda: remote.put_scattered([(0, 4)], values),
                    "get_scattered": lambda: remote.get_scattered([(0, 4)]),
                    "nbytes": lambda: remote.nbytes,
                    "len": lambda: len(remote),
                    "getitem": lambda: remote[:4],
                    "flush": remote.flush,
                    "flush_handled": remote.flush_handled,
                    "close": remote.close,
                },
            ),
            "Operation": (self.operation, self._calls_of_operation(self.operation)),
            "Operation that had ended": (self.ended, self._calls_of_operation(self.ended)),
            "Operation whose result was taken": (self.taken, self._calls_of_operation(self.taken)),
            "HeldWrite": (
                self.held,
                {**self._calls_of_operation(self.held), "cancel": self.held.cancel, "within": lambda: self.held.within(1)},
            ),
            "ConditionalRequest": (
                self.opened,
                {"accept": lambda: self.opened.accept(token), "supply": lambda: self.opened.supply(values), "decline": self.opened.decline},
            ),
            "Signal": (
                self.signal,
                {
                    "value": lambda: self.signal.value,
                    "wait": lambda: self.signal.wait(1, 1),
                    "reaches": lambda: asyncio.run(self.signal.reaches(1)),
                    "signal_wait_any": lambda: pagewire.signal_wait_any([self.signal.wish(1)], 1),
                    "signal_wait_some": lambda: pagewire.signal_wait_some([self.signal.wish(1)], 1),
                    "signal_wait_all": lambda: pagewire.signal_wait_all([self.signal.wish(1)], 1),
                },
            ),
            "Part": (
                self.part,
                {
                    "rank": lambda: self.part.rank,
                    "size": lambda: self.part.size,
                    "job_rank": lambda: self.part.job_rank(0),
                    "barrier": self.part.barrier,
                    "all_gather": lambda: self.part.all_gather(b"12"),
                    "broadcast": lambda: self.part.broadcast(0, b"12"),
                    "split": lambda: self.part.split(0),
                    "close": self.part.close,
                },
            ),
            "MappedFile": (
                self.file,
                {
                    "nbytes": lambda: self.file.nbytes,
                    "export": lambda: self.file.export(read=True),
                    "sync": self.file.sync,
                    "close": self.file.close,
                },
            ),
            "LoggedProcess": (
                self.process,
                {
                    "note": lambda: self.process.note,
                    "memory": self.process.memory,
                    "ticket": lambda: self.process.ticket(0),
                    "connect": lambda: self.process.connect(bytes(pagewire.Ticket.SIZE)),
                    "replay": self.process.replay,
                    "is_replaying": lambda: self.process.is_replaying,
                    "next_epoch": self.process.next_epoch,
                    "put": lambda: self.process.put(0, 0, b"1"),
                    "get": lambda: self.process.get(0, 0, 1),
                    "checkpoint": self.process.checkpoint,
                    "close": self.process.close,
                },
            ),
            "experimental": (
                experimental,
                {
                    "GlobalMemory": lambda: experimental.GlobalMemory(node, 1),
                    "sort": lambda: experimental.sort(node, "/nowhere", 0, 1, np.zeros(1, np.uint64)),
                    "Listener": lambda: experimental.Listener(node),
                    "Stream.connect": lambda: experimental.Stream.connect(node, token, timeout=1),
                    "TransactionStore": lambda: experimental.TransactionStore(node, 4, 8),
                    "TransactionClient": lambda: experimental.TransactionClient(node, [self.store_token]),
                },
            ),
            "TransactionClient": (
                self.client,
                {"start": self.client.start, "run": lambda: self.client.run(lambda transaction: None), "close": self.client.close},
            ),
            "Serving": (self.serving, {"counts": lambda: self.serving.counts, "end": self.serving.end}),
            "AccessLog": (
                self.log,
                {"domain": lambda: self.log.domain, "poll": lambda: self.log.poll(lambda access: None), "serve": lambda: self.log.serve(lambda access: None), "close": self.log.close},
            ),
            "HashTable": (
                self.table,
                {
                    "insert": lambda: self.table.insert(7, b"x"),
                    "insert_batch": lambda: self.table.insert_batch({7: b"x"}),
                    "lookup": lambda: self.table.lookup(7),
                    "delete": lambda: self.table.delete(7),
                    "compare_and_set": lambda: self.table.compare_and_set(7, None, b"x"),
                    "clear": self.table.clear,
                    "items": lambda: list(self.table.items()),
                    "keys": lambda: list(self.table.keys()),
                    "values": lambda: list(self.table.values()),
                    "flush": self.table.flush,
                    "resize": lambda: self.table.resize(200),
                    "volume": self.table.volume,
                    "checkpoint": self.table.checkpoint,
                    "ticket": self.table.ticket,
                    "readmit": lambda: self.table.readmit(0, bytes(136)),
                    "close": self.table.close,
                },
            ),
            "Batch": (
                self.batch,
                {
                    "put": lambda: self.batch.put(0, b"1"),
                    "send": self.batch.send,
                    "wait": self.batch.wait,
                    "flush_handled": self.batch.flush_handled,
                    "unsent": lambda: self.batch.unsent,
                    "len": lambda: len(self.batch),
                    "close": self.batch.close,
                },
            ),
        }

    def _calls_of_operation(self, operation: Any) -> dict[str, Callable[[], Any]]:
        async def wait() -> None:
            await operation

        return {
            "done": operation.done,
            "wait": operation.wait,
            "await": lambda: asyncio.run(wait()),
            "wait_any": lambda: pagewire.wait_any([operation]),
            "wait_some": lambda: pagewire.wait_some([operation]),
            "wait_all": lambda: pagewire.wait_all([operation]),
        }

    def remember(self) -> None:
        """What a child cannot ask for."""
        self.address, self.chain_address, self.batch_address = self.node.identity, self.built_ins.address, self.batches.address
        self.store_token = self.store.token


# They need no object of the parent, or only describe what a later call does.
WITHOUT_CALL = {
    "Node": {"from_env", "alone"},
    "Signal": {"wish"},
    "Batch": {"MOST_BYTES"},
}


class Forks(unittest.TestCase):
    def test_calls_on_objects_of_parent(self) -> None:
        world = World()
        world.remember()

        def check() -> list[str]:
            wrong = []
            # The node comes last: leave() closes what it has made before it is refused.
            for kind, (of, calls) in sorted(world.calls().items(), key=lambda entry: entry[0] == "Node"):
                # Those that end the object come last. The second time they have been refused.
                for name, call in 2 * sorted(calls.items(), key=lambda entry: entry[0] in ("close", "leave", "end", "decline")):
                    try:
                        wrong.append(f"{kind}.{name} gave {call()!r}")
                    except pagewire.Error as error:
                        if error.code != ErrorCode.FORKED:
                            wrong.append(f"{kind}.{name}: {error.code!r}: {error}")
                    except Exception as error:
                        wrong.append(f"{kind}.{name}: {type(error).__name__}: {error}")
            return wrong

        for _ in range(5):
            self.assertEqual(in_child(check), [])
        world.operation.wait()
        self.assertEqual(world.ended.wait().tolist(), [0, 1, 2, 3])
        self.assertEqual((world.part.rank, world.part.size), (0, 1))
        self.assertEqual(world.table.lookup(7), b"seven")
        world.end()
        world.node.barrier()

    def test_each_public_call_is_made(self) -> None:
        world = World()
        world.remember()
        for kind, (of, calls) in world.calls().items():
            public = {name for name in dir(type(of)) if not name.startswith("_")}
            self.assertEqual(public - set(calls) - WITHOUT_CALL.get(kind, set()), set(), f"no forked child calls these of {kind}")
        world.end()

    def test_description_of_remote(self) -> None:
        world = World()
        described = repr(world.remote)
        self.assertEqual(in_child(lambda: [] if repr(world.remote) == described else [repr(world.remote)]), [])
        world.end()

    def test_child_does_not_wait_for_thread_of_parent(self) -> None:
        world = World()
        holds, may_end = threading.Event(), threading.Event()

        def body(transaction: Any) -> None:
            with world.client._held():
                holds.set()
                may_end.wait(SECONDS)

        def start() -> list[str]:
            try:
                world.client.start()
            except pagewire.Error as error:
                return [] if error.code == ErrorCode.FORKED else [f"{error}"]
            return ["it started"]

        thread = threading.Thread(target=world.client.run, args=(body,))
        thread.start()
        self.assertTrue(holds.wait(SECONDS))
        self.assertEqual(in_child(start), [])
        may_end.set()
        thread.join()
        world.end()

    def test_objects_of_child_in_child_of_child(self) -> None:
        def fork_again() -> list[str]:
            node = pagewire.Node.alone()
            code = lambda: [] if node_code(node) == ErrorCode.FORKED else ["the grandchild has the node"]
            return in_child(code) + ([] if node.size == 1 else ["the child has no node"])

        def node_code(node: pagewire.Node) -> Any:
            try:
                node.zeros(1)
            except pagewire.Error as error:
                return error.code

        self.assertEqual(in_child(fork_again), [])

    def test_child_has_node_of_its_own(self) -> None:
        world = World()

        def use() -> list[str]:
            node = pagewire.Node.alone()
            array = node.zeros(16, np.int64)
            remote = node.open(node.export(array, read=True, write=True), np.int64)
            remote.put(0, np.arange(16)).wait()
            of_parent = node.open(world.token, np.int64)
            of_parent.put((1 << 16) - 2, np.array([7])).wait()
            node.leave()
            return [] if int(array[15]) == 15 else [f"{array!r}"]

        for _ in range(5):
            self.assertEqual(in_child(use), [])
        self.assertEqual(int(world.array[-2]), 7)
        world.end()

    def test_end_of_child_is_silent(self) -> None:
        program = """
import faulthandler, gc, os, sys
import numpy as np
import pagewire
node, peer = pagewire.Node.alone(), pagewire.Node.alone()
array = node.zeros(512, np.int64)
token = node.export(array, write=True)
log = node.access_log(1 << 16)
serving = log.serve(lambda access: None)
batches = node.redirect_batches(token, lambda put: None)
table = node.hash_table(10)
remote = peer.open(token, np.int64)
operation = remote.put(0, np.arange(8))
child = os.fork()
# Says where it hangs, by a thread that a fork would not survive.
faulthandler.dump_traceback_later(60 if child == 0 else 90, exit=True)
if child == 0:
    if sys.argv[1] == "del":
        del operation, remote, table, batches, serving, log, peer, node
        gc.collect()
    sys.exit(0)
status = os.waitpid(child, 0)[1]
operation.wait()
print(status)
"""
        for how in ("del", "exit"):
            try:
                done = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired as late:
                # What the processes have said of where they hang.
                self.fail(f"{how}: {late.stdout!r} {late.stderr!r}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""), how)
        gc.collect()


if __name__ == "__main__":
    unittest.main()
