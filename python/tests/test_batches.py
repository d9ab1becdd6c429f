"""Built-in handlers, batches and durable hash tables of the package. python -m unittest discover python/tests"""

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import numpy as np

import pagewire
from pagewire import Chain, ErrorCode, Place

PAGE = 4096


class Alone(unittest.TestCase):
    """A node with a table of four pages, and another one that calls."""

    def setUp(self) -> None:
        self.node, self.caller = pagewire.Node.alone(), pagewire.Node.alone()
        self.addCleanup(self.node.leave)
        self.addCleanup(self.caller.leave)
        self.table = self.node.zeros(4 * PAGE // 8, np.uint64)
        self.token = self.node.export(self.table, read=True, write=True, atomic=True)

    def refused(self, code: ErrorCode, call: Any) -> None:
        with self.assertRaises(pagewire.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertTrue(str(caught.exception))


class BuiltIns(Alone):
    def test_each_step_does_what_it_says(self) -> None:
        for memory in (self.token, np.zeros(2048, np.uint64)):
            words = self.table if isinstance(memory, pagewire.Token) else memory
            with self.node.built_ins(memory) as served, self.caller.open_built_ins(served.address) as remote:
                served.begin_area(64, 1024, 1040)
                self.assertEqual([remote.run(Chain().fetch_add(8, -1))[0].word for _ in range(2)], [0, 2**64 - 1])
                wide = Chain().compare_swap(256, bytes(32), b"w" * 32).if_swapped().append(64, b"won").read(Place.found(1, 1), 2)
                swapped, appended, read = remote.run(wide)
                self.assertEqual((swapped.swapped, swapped.data, appended.word, read.data), (True, bytes(32), 1024, b"on"))
                lost = Chain().compare_swap(256, bytes(32), b"x" * 32).if_swapped().write(0, b"no").xor(256, b"ww")
                outcomes = remote.run(lost)
                self.assertEqual([outcome.was_run for outcome in outcomes], [True, False, True])
                self.assertEqual((outcomes[0].data, outcomes[2].data, words[0]), (b"w" * 32, b"ww", 0))
                masked = Chain().compare_swap(0, b"\0\1", b"\5\6", compared=b"\xff\0", swapped=b"\xff\0")
                self.assertTrue(remote.run(masked)[0].swapped)
                self.assertEqual(words[0], 5)
                words[9] = 512
                remote.run(Chain().write(Place.behind(72, 8), np.arange(3, dtype=np.uint64)))
                self.assertEqual(words[65:68].tolist(), [0, 1, 2])
                self.assertEqual(remote.run(Chain()), [])
                self.refused(ErrorCode.BOUNDS, lambda: remote.run(Chain().fetch_add(1 << 20, 1)))
                self.refused(ErrorCode.ALIGNMENT, lambda: remote.run(Chain().fetch_add(1, 1)))
                self.refused(ErrorCode.LIMIT, lambda: remote.run(Chain().read(0, 2**40)))
                self.refused(ErrorCode.SYSTEM, lambda: remote.run(Chain().append(64, bytes(9))))

    def test_many_threads_count(self) -> None:
        with self.node.built_ins(self.table) as served, self.caller.open_built_ins(served.address) as remote:

            def count() -> None:
                for _ in range(50):
                    remote.run(Chain().fetch_add(0, 1).compare_swap(64, bytes(16), bytes(16)))

            threads = [threading.Thread(target=count) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertEqual(self.table[0], 200)

    def test_misuse(self) -> None:
        self.assertRaises(ValueError, self.node.open_built_ins, b"short")
        self.refused(ErrorCode.TOKEN, lambda: self.node.open_built_ins(bytes(pagewire.ChainAddress.SIZE)))
        self.refused(ErrorCode.ARGUMENT, lambda: self.node.built_ins(np.zeros(7, np.uint8)))
        self.assertRaises(ValueError, self.node.built_ins, self.table[::2])
        self.assertRaises(TypeError, self.node.built_ins, 5)
        self.assertRaises(ValueError, Chain().compare_swap, 0, b"a", b"ab")
        self.assertRaises(TypeError, Chain().write, 0, 5)
        self.assertRaises(TypeError, Chain().fetch_add, 0, 1.5)
        self.assertRaises(ValueError, Chain().read, -1, 5)
        served = self.node.built_ins(self.table)
        remote = self.caller.open_built_ins(served.address)
        self.refused(ErrorCode.BOUNDS, lambda: served.begin_area(0, 64, 1 << 20))
        self.node.leave()
        self.assertRaises(ValueError, lambda: served.address)
        self.assertRaises(pagewire.Error, remote.run, Chain().fetch_add(0, 1))
        self.caller.leave()
        self.assertRaises(ValueError, remote.run, Chain())


class Batches(Alone):
    def test_a_handler_sees_batches_and_single_puts(self) -> None:
        seen: list[pagewire.BatchedPut] = []

        def handle(put: pagewire.BatchedPut) -> None:
            seen.append(put)
            put.write()

        with self.node.redirect_batches(self.token, handle) as served, self.caller.open_batch(served.address) as batch:
            for value in range(100):
                batch.put(8 * value, np.uint64(value))
            self.assertEqual((batch.unsent, len(batch)), (100, 4 * PAGE))
            batch.send()
            batch.wait()
            batch.flush_handled()
            self.assertEqual(self.table[:100].tolist(), list(range(100)))
            self.assertEqual([put.offset for put in seen], [8 * value for value in range(100)])
            self.assertEqual((seen[7].value(np.uint64), seen[7].array(np.uint8)[0], seen[7].value("V9")), (7, 7, None))
            remote = self.caller.open(self.token, np.uint64)
            remote[1] = 77
            remote.flush_handled().wait()
            self.assertEqual((self.table[1], len(seen)), (77, 101))
            self.assertEqual(served.counts, (1, 100, 0, 0))
        remote[2] = 5  # an ordinary page again
        self.assertEqual(self.table[2], 5)

    def test_exceptions_are_counted(self) -> None:
        told: list[str] = []
        hook, threading.excepthook = threading.excepthook, lambda args: told.append(str(args.exc_value))
        self.addCleanup(setattr, threading, "excepthook", hook)

        def handle(put: pagewire.BatchedPut) -> None:
            if put.offset == 8:
                raise RuntimeError("not this one")
            put.write()

        with self.node.redirect_batches(self.token, handle) as served, self.caller.open_batch(served.address) as batch:
            for value in range(3):
                batch.put(8 * value, np.uint64(9))
            batch.flush_handled()
            self.assertEqual((served.counts.failed, told, self.table[:4].tolist()), (1, ["not this one"], [9, 0, 9, 0]))

    def test_puts_reach_memory(self) -> None:
        array = np.zeros(1000, np.float64)
        with self.node.batches_to_memory(array) as served:
            with self.caller.open_batch(served.address) as batch:
                for _ in range(5):
                    for index in range(1000):
                        batch.put(8 * index, np.float64(index))
                batch.flush_handled()
                self.assertTrue((array == np.arange(1000.0)).all())
                batch.put(0, np.float64(5))
            deadline = time.monotonic() + 10
            while array[0] != 5 and time.monotonic() < deadline:
                time.sleep(0.001)
            self.assertEqual(array[0], 5)
            self.assertEqual(served.counts.puts, 5001)

    def test_a_handler_may_call_back_and_not_close_itself(self) -> None:
        outcomes: list[Any] = []
        other = self.caller.open(self.token, np.uint64)
        mine = self.caller.zeros(8, np.uint64)
        inner = pagewire.Node.alone()
        self.addCleanup(inner.leave)
        remote = inner.open(self.caller.export(mine, write=True), np.uint64)

        def handle(put: pagewire.BatchedPut) -> None:
            remote[0] = put.value(np.uint64)
            try:
                served.close()
            except ValueError as error:
                outcomes.append(str(error))
            outcomes.append(served.counts.puts)
            gc.collect()

        served = self.node.redirect_batches(self.token, handle)
        with self.caller.open_batch(served.address) as batch:
            batch.put(0, np.uint64(41))
            batch.flush_handled()
        self.assertEqual((outcomes, mine[0]), (["a handler cannot close its own batches", 1], 41))
        served.close()
        served.close()
        other[0] = 1
        self.assertEqual(self.table[0], 1)

    def test_the_end_waits_for_the_handler(self) -> None:
        began, done = threading.Event(), []

        def handle(put: pagewire.BatchedPut) -> None:
            began.set()
            time.sleep(0.2)
            done.append(put.offset)

        served = self.node.redirect_batches(self.token, handle)
        batch = self.caller.open_batch(served.address)
        batch.put(8, b"x")
        batch.wait()
        self.assertTrue(began.wait(10))
        self.node.leave()
        self.assertEqual(done, [8])
        self.assertRaises(ValueError, lambda: served.counts)
        batch.put(8, b"x")
        self.assertRaises(pagewire.Error, batch.wait)

    def test_misuse(self) -> None:
        self.assertRaises(TypeError, self.node.redirect_batches, self.token, 5)
        self.assertRaises(TypeError, self.node.redirect_batches, self.table, print)
        self.assertRaises(ValueError, self.caller.redirect_batches, self.token, print)
        self.assertRaises(ValueError, self.node.open_batch, b"short")
        self.refused(ErrorCode.TOKEN, lambda: self.node.open_batch(bytes(pagewire.BatchAddress.SIZE)))
        with self.node.batches_to_memory(self.token) as served, self.caller.open_batch(served.address) as batch:
            self.refused(ErrorCode.BOUNDS, lambda: batch.put(4 * PAGE - 1, b"xy"))
            self.refused(ErrorCode.BOUNDS, lambda: batch.put(2**63, b"x"))
            self.assertRaises(ValueError, batch.put, -1, b"x")
            self.assertRaises(TypeError, batch.put, 0, 5)
            batch.put(4 * PAGE, b"")
            with self.node.batches_to_memory(np.zeros(100_000, np.uint8)) as larger:
                with self.caller.open_batch(larger.address) as other:
                    self.refused(ErrorCode.LIMIT, lambda: other.put(0, bytes(pagewire.Batch.MOST_BYTES + 1)))
        self.assertRaises(ValueError, batch.send)

    def test_a_program_may_end_with_open_batches(self) -> None:
        program = (
            "import numpy as np, pagewire, time\n"
            "node = pagewire.Node.alone()\n"
            "table = node.zeros(512, np.uint64)\n"
            "served = node.redirect_batches(node.export(table, write=True), lambda put: time.sleep(0.001))\n"
            "batch = node.open_batch(served.address)\n"
            "for value in range(100):\n"
            "    batch.put(8 * value, np.uint64(value))\n"
            "batch.send()\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


# A member of a job of two. It obeys lines: what to do, and its arguments.
MEMBER = """
import sys
import pagewire

folder, rank, *tickets = sys.argv[1:]
durable = pagewire.Durable(folder, 1 << 18, False)
if rank == "join":
    node = pagewire.Node.from_env()
    table = node.hash_table(100, durable=durable)
    rank = node.rank
else:
    node, rank = pagewire.Node.alone(), int(rank)
    table = node.restart_hash_table(100, durable, rank, [bytes.fromhex(ticket) for ticket in tickets])
print(rank, table.ticket().hex(), flush=True)
for line in sys.stdin:
    command, *numbers = line.split()
    try:
        if command == "insert":
            table.insert_batch((2 * key + rank, b"%d" % (key + int(numbers[0]))) for key in range(1, 500))
            table.flush()
        elif command == "verify":
            for key in range(2, 1000):
                assert table[key] == b"%d" % (key // 2 + int(numbers[0])), key
        elif command == "checkpoint":
            table.checkpoint()
        elif command == "readmit":
            table.readmit(int(numbers[0]), bytes.fromhex(numbers[1]))
        print("done", flush=True)
    except pagewire.Error as error:
        print(error, flush=True)
"""


class Member:
    def __init__(self, *arguments: str, **variables: str) -> None:
        environment = {**os.environ, **variables}
        command = [sys.executable, "-c", MEMBER, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def meet(self) -> None:
        assert self.process.stdout
        rank, self.ticket = self.process.stdout.readline().split()
        self.rank = int(rank)

    def ask(self, line: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class DurableTables(Alone):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def job(self, name: str) -> list[Member]:
        variables = {"PAGEWIRE_JOB_FILE": str(self.folder / name), "PAGEWIRE_SIZE": "2", "PAGEWIRE_PATH": name.split("-")[0]}
        (self.folder / name).mkdir()
        members = [Member(str(self.folder / "table"), "join", **variables) for _ in range(2)]
        for member in members:
            self.addCleanup(member.kill)
            member.meet()
        return sorted(members, key=lambda member: member.rank)

    def test_members_are_killed_and_others_take_their_place(self) -> None:
        first, second = self.job("local-1")
        for member in (first, second):
            self.assertEqual(member.ask("insert 1"), "done")
        self.assertEqual((first.ask("verify 1"), first.ask("checkpoint")), ("done", "done"))
        self.assertEqual(second.ask("insert 2"), "done")
        second.kill()
        self.assertNotEqual(first.ask("readmit 0 " + second.ticket), "done")
        again = Member(str(self.folder / "table"), "1", first.ticket, second.ticket, PAGEWIRE_PATH="local")
        self.addCleanup(again.kill)
        again.meet()
        self.assertEqual(first.ask(f"readmit 1 {again.ticket}"), "done")
        self.assertEqual(first.ask("insert 2"), "done")
        self.assertEqual((first.ask("verify 2"), again.ask("verify 2")), ("done", "done"))
        first.kill()
        again.kill()
        # All of them: the job starts again.
        for member in self.job("udp-2"):
            self.assertEqual(member.ask("verify 2"), "done")

    def test_misuse(self) -> None:
        durable = pagewire.Durable(self.folder / "own", sync=False)
        with self.node.hash_table(10, durable=durable) as table:
            table[7] = b"seven"
            before = table.volume().checkpoints
            table.checkpoint()
            self.assertEqual((table.volume().checkpoints, table.volume().elements), (before + 1, 1))
            ticket = table.ticket()
            self.assertRaises(ValueError, table.readmit, 0, b"short")
            self.refused(ErrorCode.ARGUMENT, lambda: table.readmit(0, ticket))
        self.assertRaises(ValueError, table.ticket)
        self.refused(ErrorCode.ARGUMENT, lambda: self.node.restart_hash_table(10, durable, 1, [ticket]))
        self.assertRaises(ValueError, self.node.restart_hash_table, 10, durable, 0, [b"short"])
        with self.node.restart_hash_table(10, durable, 0, [ticket]) as again:
            self.assertEqual(again[7], b"seven")
        operations = lambda: self.node.hash_table(10, durable=durable, scheme=pagewire.Scheme.BY_OPERATIONS)
        self.refused(ErrorCode.ARGUMENT, operations)
        self.refused(ErrorCode.SYSTEM, lambda: self.node.hash_table(10, durable=pagewire.Durable("/proc/none")))
        self.assertRaises(ValueError, self.node.hash_table, 10, durable=pagewire.Durable("a\0b"))
        self.refused(ErrorCode.ARGUMENT, self.node.hash_table(10).checkpoint)


if __name__ == "__main__":
    unittest.main()
