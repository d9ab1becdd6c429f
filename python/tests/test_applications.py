"""Applications of memory that reacts: hash tables, access statistics and checkpoints of the package. python -m unittest discover python/tests"""

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
from pagewire import ErrorCode

PAGE = 4096
ROOT = Path(__file__).parent.parent


class Alone(unittest.TestCase):
    """A node with a table of four pages."""

    def setUp(self) -> None:
        self.node = pagewire.Node.alone()
        self.addCleanup(self.node.leave)
        self.table = self.node.zeros(4 * PAGE // 8, np.uint64)
        self.token = self.node.export(self.table, read=True, write=True, atomic=True)
        self.remote = self.node.open(self.token, np.uint64)

    def refused(self, code: ErrorCode, call: Any) -> None:
        with self.assertRaises(pagewire.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertTrue(str(caught.exception))


class HashTables(Alone):
    def test_values_of_any_size_are_kept(self) -> None:
        with self.node.hash_table(100) as table:
            values = {key: bytes([key % 256]) * (key * key % 9000) for key in range(1, 300)}
            table.insert_batch(values)
            table[1000] = b""
            table.insert(2**64 - 1, bytearray(b"the last key"))
            table.flush()
            for key, value in values.items():
                self.assertEqual(table[key], value)
            self.assertEqual((table[1000], table[2**64 - 1]), (b"", b"the last key"))
            del table[7]
            table.delete(8)
            table[9] = b"another"
            table.flush()
            self.assertEqual((table.lookup(7), 8 in table, table[9]), (None, False, b"another"))
            with self.assertRaises(KeyError):
                table[7]
            table.resize(1000)
            volume = table.volume()
            self.assertEqual((volume.elements, volume.cells, volume.malformed), (len(values), 1000, 0))
            self.assertEqual(table[200], values[200])

    def test_loop_clear_and_compare_and_set(self) -> None:
        for scheme in pagewire.Scheme:
            table = self.node.hash_table(10, scheme=scheme)
            values = {key: bytes([key % 256]) * (key % 90) for key in range(1, 1500)}
            table.insert_batch(values)
            table.flush()
            found = list(table.items())
            self.assertEqual((len(found), dict(found)), (len(values), values))
            self.assertEqual((sorted(table), len(list(table.values()))), (sorted(values), len(values)))
            for key, value in table.items():
                # It may be changed in the midst of a loop.
                table[key + 10000] = value
                del table[key]
            self.assertFalse(table.compare_and_set(1, b"", b"one"))
            self.assertTrue(table.compare_and_set(1, None, b""))
            self.assertFalse(table.compare_and_set(1, None, b"one"))
            self.assertTrue(table.compare_and_set(1, b"", b"one" * 100))
            self.assertTrue(table.compare_and_set(1, b"one" * 100, None))
            self.assertNotIn(1, table)
            table.clear()
            self.assertEqual((list(table.items()), table.volume().elements), ([], 0))
            table.close()

    def test_schemes(self) -> None:
        for scheme in pagewire.Scheme:
            table = self.node.hash_table(10, spare=4, value_bytes=100, scheme=scheme)
            table.insert_batch([(key, b"a value of some length") for key in range(1, 100)])
            table.flush()
            self.assertEqual(table.volume().elements, 99)

    def test_close_waits_for_calls_of_other_threads(self) -> None:
        table = self.node.hash_table(10)
        table.insert(1, b"value" * 1000)
        outcomes: list[str] = []

        def look() -> None:
            try:
                while True:
                    table.lookup(1)
            except ValueError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        table.close()
        for thread in threads:
            thread.join(10)
        self.assertEqual(outcomes, ["the hash table is closed"] * 3)

    def test_a_call_under_way_holds_the_end_back(self) -> None:
        node = pagewire.Node.alone()
        table = node.hash_table(10)
        with table._uses:
            leaving = threading.Thread(target=node.leave)
            leaving.start()
            leaving.join(0.1)
            self.assertTrue(leaving.is_alive())
            self.assertEqual(node.size, 1)
        leaving.join(10)
        self.assertFalse(leaving.is_alive())
        self.assertRaises(ValueError, node.barrier)

    def test_misuse(self) -> None:
        self.refused(ErrorCode.ARGUMENT, lambda: self.node.hash_table(0))
        self.assertRaises(ValueError, self.node.hash_table, -1)
        self.assertRaises(ValueError, self.node.hash_table, 10, scheme=7)
        self.assertRaises(pagewire.Error, self.node.hash_table, 2**63)
        table = self.node.hash_table(10)
        for key in (0, -1, 2**64):
            self.assertRaises(ValueError, table.insert, key, b"")
        self.assertRaises(TypeError, table.insert, "a", b"")
        self.assertRaises(TypeError, table.insert, 1, "text")
        self.assertRaises(TypeError, table.insert_batch, [(1, None)])
        self.assertRaises(TypeError, table.compare_and_set, 1, "text", None)
        self.assertRaises(ValueError, table.compare_and_set, 0, None, b"")
        table.close()
        table.close()
        self.assertRaises(ValueError, table.lookup, 1)
        open_still = self.node.hash_table(10)
        self.node.leave()
        self.assertRaises(ValueError, open_still.flush)


class HeapUsage(Alone):
    def test_accesses_are_counted(self) -> None:
        with self.node.access_statistics(self.token) as statistics:
            self.remote[512] = 1
            self.remote[:1024]
            self.remote.fetch_add(0, 3).wait()
            total = statistics.total()
            self.assertEqual((total.puts, total.gets, total.atomics, total.accesses), (1, 1, 1, 3))
            self.assertEqual((total.bytes_in, total.bytes_out, total.refused), (16, 8192, 0))
            self.assertEqual(statistics.page(1).puts, 1)
            self.assertEqual(statistics.page(2**40), pagewire.AccessCounts(*[0] * 8))
            self.assertEqual([page for page, _ in statistics.hottest(9)], [0, 1])
            self.assertEqual(len(statistics.hottest(1)), 1)
            self.assertEqual(list(statistics.sources().values()), [total])
            source = self.node.source(*statistics.sources())
            self.assertEqual(source, pagewire.Source(self.node.identity, 0, None, None))
            self.assertRaises(pagewire.Error, self.node.source, 2**40)
            counters = self.node.open(statistics.export(), pagewire.ACCESS_COUNTS)
            pages = counters[:]
            self.assertEqual((len(pages), pages["atomics"].tolist()), (4, [1, 0, 0, 0]))
            self.assertEqual(statistics.reset(), total)
            self.assertEqual(statistics.total().accesses, 0)
        self.assertRaises(ValueError, statistics.total)

    def test_refusals_are_counted(self) -> None:
        with self.node.access_statistics(self.token, gets=False, refuse_puts=True) as statistics:
            self.refused(ErrorCode.KEY, lambda: self.remote.put(0, [1]).wait())
            self.remote[0]
            total = statistics.total()
            self.assertEqual((total.refused_puts, total.gets, total.refused), (1, 0, 1))
        self.refused(ErrorCode.ARGUMENT, lambda: self.node.access_statistics(self.token, puts=False, gets=False))
        other = pagewire.Node.alone()
        self.addCleanup(other.leave)
        self.refused(ErrorCode.ENGINE, lambda: other.access_statistics(self.token))
        self.node.unexport(self.token)
        self.refused(ErrorCode.ENGINE, lambda: self.node.access_statistics(self.token))


class Checkpoints(Alone):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "table.checkpoint"

    def test_memory_is_saved_and_restored(self) -> None:
        own = np.arange(3000, dtype=np.uint8)
        with self.node.checkpoint(self.path, self.token, own, sync=False) as checkpoint:
            self.assertIsNone(checkpoint.restore())
            self.assertIsNone(checkpoint.numbers)
            self.assertIn(checkpoint.local_writes, pagewire.LocalWrites)
            self.assertTrue(checkpoint.save().is_full)
            self.remote[1500] = 5
            own[2999] = 77
            note = bytes(range(256)) * 1000
            saved = checkpoint.save(note)
            self.assertEqual((saved.number, checkpoint.numbers), (2, (1, 2)))
            self.refused(ErrorCode.IN_USE, lambda: self.node.checkpoint(self.path, self.token, own))
        self.table[:] = 0
        own[:] = 0
        with self.node.checkpoint(self.path, self.token, own) as checkpoint:
            self.assertEqual(checkpoint.restore(), (2, note))
            self.assertEqual((self.table[1500], own[2999], own[5]), (5, 77, 5))
            self.assertEqual(checkpoint.restore(1), (1, b""))
            self.assertEqual((self.table[1500], own[2999]), (0, 2999 % 256))
            self.assertEqual(checkpoint.restore_together(), (2, note))
            self.remote[0] = 9
            self.assertEqual(checkpoint.save_together([self.remote], b"all").number, 3)

    def test_misuse(self) -> None:
        checkpoint = self.node.checkpoint(self.path, self.token)
        checkpoint.save()
        self.refused(ErrorCode.ARGUMENT, lambda: checkpoint.restore(7))
        self.assertRaises(ValueError, checkpoint.restore, 0)
        self.node.leave()
        self.assertRaises(ValueError, checkpoint.save)
        with pagewire.Node.alone() as node:
            self.refused(ErrorCode.ARGUMENT, lambda: node.checkpoint(self.path))
            self.assertRaises(ValueError, node.checkpoint, self.path, self.token)
            self.assertRaises(TypeError, node.checkpoint, self.path, 5)
            self.assertRaises(ValueError, node.checkpoint, self.path, self.table[::2])
            self.assertRaises(ValueError, node.checkpoint, "a\0b", self.table)
            with node.checkpoint(self.path, self.table[:600]) as other:
                self.refused(ErrorCode.ARGUMENT, other.restore)
            self.refused(ErrorCode.SYSTEM, lambda: node.checkpoint("/nowhere/at/all", self.table))
            self.path.write_bytes(b"something else" * 1000)
            self.refused(ErrorCode.FILE, lambda: node.checkpoint(self.path, self.table))


class LoggedProcesses(Alone):
    def test_misuse(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "process.checkpoint"
            for rank, count, size in ((2, 2, 100), (0, 0, 100), (0, 2**40, 100), (0, 2, 0), (0, 2, 2**63)):
                self.refused(ErrorCode.ARGUMENT, lambda: self.node.logged_process(path, rank, count, size))
            process = self.node.logged_process(path, 0, 2, 1000)
            self.assertEqual((process.note, process.is_replaying, len(process.memory())), (None, False, 1000))
            self.refused(ErrorCode.ARGUMENT, lambda: process.put(1, 0, b"bytes"))
            self.refused(ErrorCode.ARGUMENT, lambda: process.get(7, 0, 8))
            self.refused(ErrorCode.TOKEN, lambda: process.connect(process.ticket(1)))
            self.refused(ErrorCode.TOKEN, lambda: process.connect(bytes(pagewire.Ticket.SIZE)))
            self.assertRaises(ValueError, process.connect, b"short")
            self.refused(ErrorCode.REPLAY, process.replay)
            self.assertRaises(TypeError, process.memory, object)
            self.assertEqual((process.next_epoch(), process.checkpoint(b"a note")), (1, 1))
            memory = process.memory(np.uint64)
            memory[:] = 7
            process.close()
            # An array has it still.
            self.assertEqual(memory.sum(), 7 * 125)
            self.refused(ErrorCode.IN_USE, lambda: self.node.logged_process(path, 0, 2, 1000))
            del memory
            again = self.node.logged_process(path, 0, 2, 1000)
            self.assertEqual((again.note, again.is_replaying, int(again.memory().sum())), (b"a note", True, 0))
            self.refused(ErrorCode.REPLAY, lambda: again.put(1, 0, b"bytes"))
            again.close()
            self.assertRaises(ValueError, again.next_epoch)


class Guide(unittest.TestCase):
    """The programs of the guide are the examples, and print what the pages say."""

    def run_program(self, name: str, *arguments: str, **variables: str) -> str:
        program = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
        environment = {**os.environ, **variables}
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def block(self, page: str, name: str) -> str:
        """What the page says that the program prints, after it has been seen to have the program."""
        text = (ROOT.parent / "docs" / "guide" / f"{page}.md").read_text()
        _, program = (ROOT / "examples" / f"{name}.py").read_text().split('"""\n\n', 1)
        self.assertIn(f"```python\n# {name}.py\n{program}```", text)
        _, rest = text.split(f"$ python {name}.py\n", 1)
        return rest.split("```", 1)[0]

    def test_programs_print_what_the_pages_say(self) -> None:
        pages = ("hash-table", "hash_table"), ("access-statistics", "access_statistics"), ("built-in", "built_in"), ("batches", "batch"), ("parity", "parity"), ("experimental-stream", "stream")
        pages += (("experimental-transactions", "transactions"),)
        for page, name in pages:
            expected = self.block(page, name)
            for path in ("local", "udp"):
                with self.subTest(page=page, path=path):
                    self.assertEqual(self.run_program(name, PAGEWIRE_PATH=path), expected)

    def test_a_checkpoint_survives_its_process(self) -> None:
        first, second = self.block("checkpoint", "checkpoint").split("$ python checkpoint.py\n")
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "counter.checkpoint")
            self.assertEqual(self.run_program("checkpoint", file), first)
            self.assertEqual(self.run_program("checkpoint", file), second)

    def test_a_durable_table_survives_its_process(self) -> None:
        first, second = self.block("durable-tables", "durable_table").split("$ python durable_table.py\n")
        for path in ("local", "udp"):
            with self.subTest(path=path), tempfile.TemporaryDirectory() as folder:
                table = str(Path(folder) / "table")
                self.assertEqual(self.run_program("durable_table", table, PAGEWIRE_PATH=path), first)
                self.assertEqual(self.run_program("durable_table", table, PAGEWIRE_PATH=path), second)

    def test_a_process_repeats_its_work(self) -> None:
        expected = self.block("logged-process", "logged_process")
        for path in ("local", "udp"):
            with self.subTest(path=path), tempfile.TemporaryDirectory() as folder:
                self.assertEqual(self.run_program("logged_process", folder, PAGEWIRE_PATH=path), expected)


JOB = """
import pagewire
with pagewire.Node.from_env() as node:
    table = node.hash_table(500)
    mine = range(1 + node.rank, 3000, node.size)
    table.insert_batch((key, str(key).encode() * 3) for key in mine)
    table[5000 + node.rank] = b"own"
    table.flush()
    node.barrier()
    assert all(table[key] == str(key).encode() * 3 for key in range(1, 3000))
    counts = node.all_gather(table.volume().elements.to_bytes(8, "little"))
    assert sum(int.from_bytes(count, "little") for count in counts) == 2999 + node.size
    node.barrier()
"""


class Job(unittest.TestCase):
    def test_a_table_of_three_processes(self) -> None:
        for path in ("local", "udp"):
            with self.subTest(path=path), tempfile.TemporaryDirectory() as folder:
                job = {"PAGEWIRE_JOB_FILE": folder, "PAGEWIRE_SIZE": "3", "PAGEWIRE_PATH": path}
                members = [
                    subprocess.Popen([sys.executable, "-c", JOB], env={**os.environ, **job}, stderr=subprocess.PIPE, text=True)
                    for _ in range(3)
                ]
                for member in members:
                    _, told = member.communicate(timeout=120)
                    self.assertEqual(member.returncode, 0, told)


if __name__ == "__main__":
    unittest.main()
