"""Forked children: each call on an object of the parent raises FORKED at once, and what ends objects by itself says nothing."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import unittest
from typing import Any, Callable

import numpy as np

import pagewire
from pagewire import ErrorCode

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
                    "global_memory": lambda: node.global_memory(1),
                    "listen": node.listen,
                    "connect": lambda: node.connect(token, timeout=1),
                    "transaction_store": lambda: node.transaction_store(4, 8),
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
                    "flush": remote.flush,
                    "flush_handled": remote.flush_handled,
                    "close": remote.close,
                },
            ),
            "Operation": (self.operation, {"wait": self.operation.wait, "await": self._await_operation}),
            "Serving": (self.serving, {"counts": lambda: self.serving.counts, "end": self.serving.end}),
            "AccessLog": (
                self.log,
                {"poll": lambda: self.log.poll(lambda access: None), "serve": lambda: self.log.serve(lambda access: None), "close": self.log.close},
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
                {"put": lambda: self.batch.put(0, b"1"), "send": self.batch.send, "wait": self.batch.wait, "flush_handled": self.batch.flush_handled},
            ),
        }

    def _await_operation(self) -> None:
        async def wait() -> None:
            await self.operation

        asyncio.run(wait())

    def remember(self) -> None:
        """What a child cannot ask for."""
        self.address, self.chain_address, self.batch_address = self.node.identity, self.built_ins.address, self.batches.address


# Made without a node, or with one that only reads what is there.
WITHOUT_CALL = {
    "Node": {"from_env", "alone", "zeros", "restart_hash_table", "transactions"},
    "Remote": {"nbytes", "token", "dtype", "length"},
    "Operation": {"done"},
    "AccessLog": {"domain"},
    "Batch": {"MOST_BYTES", "unsent", "length", "close", "nbytes"},
}


class Forks(unittest.TestCase):
    def test_calls_on_objects_of_parent(self) -> None:
        world = World()
        world.remember()

        def check() -> list[str]:
            wrong = []
            # The node comes last: leave() closes what it has made before it is refused.
            for kind, (of, calls) in sorted(world.calls().items(), key=lambda entry: entry[0] == "Node"):
                # Those that end the object come last.
                for name, call in sorted(calls.items(), key=lambda entry: entry[0] in ("close", "leave", "end")):
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
import os, sys, gc
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
            done = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, timeout=120)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""), how)
        gc.collect()


if __name__ == "__main__":
    unittest.main()
