"""The package on the library that it has: python -m unittest discover python/tests"""

import asyncio
import gc
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np

import pagewire
from pagewire import ErrorCode


class Alone(unittest.TestCase):
    """A node of one process, and two views of a table of it."""

    def setUp(self) -> None:
        self.node = pagewire.Node.alone()
        self.addCleanup(self.node.leave)
        self.table = self.node.zeros(100, np.int64)
        self.token = self.node.export(self.table, read=True, write=True, atomic=True)
        self.remote = self.node.open(self.token, np.int64)


class Interrupted(Exception):
    pass


class Waits(Alone):
    """What may last for ever is ended by Ctrl-C, as by any signal whose handler raises."""

    def interrupt_soon(self) -> None:
        def raises(*_: object) -> None:
            raise Interrupted

        former = signal.signal(signal.SIGALRM, raises)
        self.addCleanup(signal.signal, signal.SIGALRM, former)
        signal.setitimer(signal.ITIMER_REAL, 0.15)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def test_for_openings(self) -> None:
        self.interrupt_soon()
        self.assertRaises(Interrupted, self.node.next_conditional_request)

    def test_for_signals(self) -> None:
        self.interrupt_soon()
        self.assertRaises(Interrupted, self.node.signal(self.table).wait, 1)

    def test_for_operations(self) -> None:
        held = self.node.conditional_write(self.node.identity, 7, np.arange(5))
        self.interrupt_soon()
        self.assertRaises(Interrupted, held.wait)
        # It was interrupted, and not ended.
        self.assertFalse(held.done())
        self.assertEqual(self.node.accept_conditional_write(self.node.identity, 7, self.token).wait(), 40)
        held.wait()

    def test_for_the_others_of_a_job(self) -> None:
        program = """
import pagewire, signal
# Whatever the one that started this process has set.
signal.signal(signal.SIGINT, signal.default_int_handler)
print("joins", flush=True)
pagewire.Node.from_env()
"""
        with tempfile.TemporaryDirectory() as job:
            environment = dict(os.environ, PAGEWIRE_JOB_FILE=job, PAGEWIRE_SIZE="2")
            command = [sys.executable, "-c", program]
            joining = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self.addCleanup(joining.kill)
            assert joining.stdout
            self.assertEqual(joining.stdout.readline(), "joins\n")
            # The join makes a file for the member, and then waits for the other one.
            end = time.monotonic() + 60
            while not list(Path(job).glob("member.*")):
                self.assertIsNone(joining.poll(), "it waits for the other process")
                self.assertLess(time.monotonic(), end, "it does not join")
                time.sleep(0.001)
            joining.send_signal(signal.SIGINT)
            _, errors = joining.communicate(timeout=30)
            self.assertRegex(errors, "(?s)in from_env\n.*in in_thread\n.*KeyboardInterrupt")

    def test_times_are_kept(self) -> None:
        for wait in (self.node.next_conditional_request, lambda time: self.node.signal(self.table).wait(1, time)):
            begun = time.monotonic()
            self.assertRaises(pagewire.TimeoutError, wait, 0.25)
            self.assertGreaterEqual(time.monotonic() - begun, 0.25)

    def test_a_flush_does_not_wait_for_held_writes(self) -> None:
        values = np.arange(5) + 1
        del_me = self.node.conditional_write(self.node.identity, 8, values)
        del del_me
        gc.collect()
        self.node.flush()
        self.remote.flush()
        # It is held still, and its buffer is there.
        self.assertEqual(self.node.accept_conditional_write(None, 8, self.token).wait(), 40)
        self.assertEqual(self.table[:5].tolist(), values.tolist())


class Conditional(Alone):
    def setUp(self) -> None:
        super().setUp()
        self.writer = pagewire.Node.alone()
        self.addCleanup(self.writer.leave)

    def test_a_write_waits_for_its_release(self) -> None:
        held = self.writer.conditional_write(self.node.identity, 7, np.arange(5))
        opened = self.node.next_conditional_request(20)
        self.assertEqual((opened.peer, opened.tag, opened.length), (self.writer.identity, 7, 40))
        self.assertTrue(opened.is_write and not held.done())
        self.assertEqual(opened.accept(self.token).wait(), 40)
        held.wait()
        self.assertEqual(self.table[:6].tolist(), [0, 1, 2, 3, 4, 0])

    def test_coroutines_wait_for_both_ends(self) -> None:
        async def both() -> int:
            released = self.node.accept_conditional_write(None, 8, self.token)
            held = self.writer.conditional_write(self.node.identity, 8, np.arange(3) + 7)
            await held
            return await released

        self.assertEqual(asyncio.run(both()), 24)
        self.assertEqual(self.table[:3].tolist(), [7, 8, 9])

    def test_a_read_is_answered(self) -> None:
        read = self.node.conditional_read(self.writer.identity, 9, self.token)
        opened = self.writer.next_conditional_request(20)
        self.assertFalse(opened.is_write)
        opened.supply(np.arange(2) + 3).wait()
        self.assertEqual((read.wait(), self.table[0]), (16, 3))

    def test_each_end_is_an_error_of_its_own(self) -> None:
        held = self.writer.conditional_write(self.node.identity, 1, np.arange(5))
        with self.assertRaises(pagewire.Error) as used:
            self.writer.conditional_write(self.node.identity, 1, np.arange(5))
        self.assertEqual(used.exception.code, ErrorCode.TAG)
        held.cancel()
        with self.assertRaises(pagewire.Error) as cancelled:
            held.wait()
        self.assertEqual(cancelled.exception.code, ErrorCode.CANCELLED)
        with self.assertRaises(pagewire.TimeoutError):
            self.writer.conditional_write(self.node.identity, 2, np.arange(5)).within(0.02).wait()
        held = self.writer.conditional_write(self.node.identity, 3, np.arange(5))
        opened = self.node.next_conditional_request(20)
        while opened.tag != 3:
            opened = self.node.next_conditional_request(20)
        opened.decline()
        with self.assertRaises(pagewire.Error) as declined:
            held.wait()
        self.assertEqual(declined.exception.code, ErrorCode.DECLINED)
        self.assertFalse(self.table.any())
        with self.assertRaises(pagewire.TimeoutError):
            self.node.next_conditional_request(0)
        with self.assertRaises(ValueError):
            self.writer.conditional_write(b"short", 1, np.arange(5))


class Arrays(Alone):
    def test_zeros_are_registered_memory_and_go_back(self) -> None:
        self.assertTrue(pagewire.is_registered(self.table))
        self.assertFalse(pagewire.is_registered(np.zeros(8)))
        live = pagewire.heap_statistics().live
        array = self.node.zeros((1024, 1024), np.float32)
        view = array[5:7, ::2]
        self.assertEqual((array.shape, array.dtype, array.any()), ((1024, 1024), np.float32, False))
        self.assertGreaterEqual(pagewire.heap_statistics().live, live + array.nbytes)
        del array
        self.assertGreaterEqual(pagewire.heap_statistics().live, live + (4 << 20))
        view[0, 0] = 3
        del view
        gc.collect()
        self.assertLessEqual(pagewire.heap_statistics().live, live)
        self.assertEqual(self.node.zeros(0).size, 0)
        self.assertEqual(self.node.zeros(()).shape, ())

    def test_what_is_retained_of_freed_memory_stays(self) -> None:
        pagewire.purge_heap()
        before = pagewire.heap_statistics().resident
        array = self.node.zeros(96 << 20, np.uint8)
        array.fill(1)
        pagewire.retain_heap((1 << 64) - 1)
        del array
        gc.collect()
        self.assertGreaterEqual(pagewire.heap_statistics().resident, before + (96 << 20))
        pagewire.retain_heap(64 << 20)
        for _ in range(200):
            # Nothing is allocated in the heap meanwhile, or freed.
            if pagewire.heap_statistics().resident <= before + (80 << 20):
                break
            time.sleep(0.1)
        self.assertLessEqual(pagewire.heap_statistics().resident, before + (80 << 20))
        for size in (-1, 1 << 64):
            with self.assertRaisesRegex(ValueError, "stays resident"):
                pagewire.retain_heap(size)

    def test_shapes_that_cannot_be(self) -> None:
        with self.assertRaises(MemoryError):
            self.node.zeros(1 << 60)
        with self.assertRaises(TypeError):
            self.node.zeros(3, object)

    def test_what_is_exported_stays_until_it_is_unexported(self) -> None:
        array = np.arange(4.0)
        remote = self.node.open(self.node.export(array, read=True), np.float64)
        del array
        gc.collect()
        self.assertEqual(remote[:].tolist(), [0, 1, 2, 3])

    def test_exports_that_cannot_be(self) -> None:
        array = np.zeros((4, 4))
        with self.assertRaisesRegex(ValueError, "gaps"):
            self.node.export(array[:, 1], read=True)
        array.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "cannot be written"):
            self.node.export(array, write=True)
        with self.assertRaisesRegex(pagewire.Error, "'rights' must be"):
            self.node.export(array)
        self.assertEqual(self.node.open(self.node.export(array, read=True), float)[15], 0)
        self.assertEqual(bytes(self.node.open(self.node.export(bytearray(b"abc"), read=True))[:]), b"abc")


class Transfers(Alone):
    def test_elements_and_slices(self) -> None:
        self.remote[3] = 7
        self.remote[10:20] = np.arange(10)
        self.remote[20:30:3] = 5
        self.remote[-1] = -9
        self.assertEqual(self.table[3], 7)
        self.assertEqual(self.table[10:20].tolist(), list(range(10)))
        self.assertEqual(self.table[20:30].tolist(), [5, 0, 0, 5, 0, 0, 5, 0, 0, 5])
        self.assertEqual(self.remote[-1], -9)
        self.table[:] = np.arange(100)
        self.assertEqual(self.remote[:].tolist(), list(range(100)))
        self.assertEqual(self.remote[7:40:4].tolist(), list(range(7, 40, 4)))
        self.assertEqual(self.remote[98:500].tolist(), [98, 99])
        self.assertEqual(self.remote[50:50].tolist(), [])
        self.assertEqual((len(self.remote), self.remote.nbytes), (100, 800))
        with self.assertRaises(ValueError):
            self.remote[::-1]
        with self.assertRaises(ValueError):
            self.remote[0:3] = [1, 2]
        with self.assertRaises(TypeError):
            self.remote["a"]

    def test_operations_own_their_buffers(self) -> None:
        puts = [self.remote.put(i, np.full(1, i)) for i in range(100)]
        gc.collect()
        for put in puts:
            self.assertIsNone(put.wait())
            self.assertIsNone(put.wait())
        self.assertEqual(self.table.tolist(), list(range(100)))
        into = np.empty(2, np.int64)
        got = self.remote.get_into(4, into).wait()
        self.assertIs(got, into)
        self.assertEqual(into.tolist(), [4, 5])
        with self.assertRaises(TypeError):
            self.remote.get_into(0, np.empty(4, np.int64)[::2])

    def test_atomics(self) -> None:
        self.assertEqual(self.remote.fetch_add(2, -5).wait(), 0)
        self.assertEqual(self.remote.compare_swap(2, -5, 8).wait(), -5)
        self.assertEqual(self.remote.swap(2, 1).wait(), 8)
        self.assertEqual(self.table[2], 1)
        unsigned = self.node.open(self.token, np.uint64)
        self.table[3] = -1
        self.assertEqual(unsigned.fetch_add(3, 1).wait(), 2**64 - 1)
        with self.assertRaisesRegex(TypeError, "uint64 or int64"):
            self.node.open(self.token, np.float64).fetch_add(0, 1)

    def test_signals_come_behind_their_bytes(self) -> None:
        signal = self.node.signal(self.table, 99)
        put = self.remote.put_signal(0, [4, 5], 99 * 8, add=2)
        self.assertEqual((signal.wait(at_least=2, timeout=10), self.table[:2].tolist()), (2, [4, 5]))
        put.wait()
        self.remote.put_signal(0, 6, 99 * 8, set=9).wait()
        self.assertEqual(signal.value, 9)
        start = time.monotonic()
        with self.assertRaises(TimeoutError):
            signal.wait(at_least=10, timeout=0.05)
        self.assertGreater(time.monotonic() - start, 0.04)
        with self.assertRaises(TypeError):
            self.remote.put_signal(0, 6, 0)
        with self.assertRaises(IndexError):
            self.node.signal(self.table, 100)


class Errors(Alone):
    def test_they_say_which_rule(self) -> None:
        with self.assertRaisesRegex(IndexError, "bytes 800 to 808 are not inside the 800 bytes of the token") as raised:
            self.remote[100] = 1
        self.assertEqual(raised.exception.code, ErrorCode.BOUNDS)
        with self.assertRaises(IndexError):
            self.remote[-101]
        reads = self.node.open(self.node.export(self.table, read=True), np.int64)
        with self.assertRaisesRegex(pagewire.Error, "does not give the right to put") as raised:
            reads[0] = 1
        self.assertEqual(raised.exception.code, ErrorCode.RIGHTS)
        self.node.unexport(self.token)
        with self.assertRaises(pagewire.Error) as raised:
            self.remote[0]
        self.assertEqual(raised.exception.code, ErrorCode.KEY)
        with self.assertRaises(pagewire.Error):
            self.node.unexport(self.token)

    def test_truncated_memory_says_so(self) -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(1 << 16)
            memory = mmap.mmap(file.fileno(), 1 << 16)
            token = self.node.export(memory, read=True, write=True)
            remote = self.node.open(token, np.uint8)
            remote[0] = 7
            file.truncate(1 << 12)
            for access in (lambda: remote[1 << 15], lambda: remote[4090:4100], lambda: remote.put(1 << 12, np.zeros(9)).wait()):
                with self.assertRaisesRegex(pagewire.Error, "truncated") as raised:
                    access()
                self.assertEqual(raised.exception.code, ErrorCode.MEMORY)
            self.assertEqual(remote[0], 7)
            self.node.unexport(token)

    def test_errors_name_calls_of_python(self) -> None:
        # Of the heap, which the crate in Rust and the environment make.
        with self.assertRaises(pagewire.Error) as raised:
            self.node.hash_table(1 << 40)
        self.assertNotRegex(str(raised.exception), "`|::|pw_")
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(pagewire.Error, "Scheme.NEAREST") as raised:
                self.node.hash_table(10, scheme=pagewire.Scheme.BY_OPERATIONS, durable=pagewire.Durable(folder))
            self.assertNotRegex(str(raised.exception), "`|::|pw_|PW_")

    def test_tokens_that_are_none(self) -> None:
        with self.assertRaisesRegex(ValueError, "a token has 56 bytes"):
            self.node.open(b"short")
        damaged = bytearray(self.token)
        damaged[20] ^= 1
        with self.assertRaisesRegex(pagewire.Error, "checksum"):
            self.node.open(bytes(damaged))

    def test_the_failure_of_a_dropped_operation_comes_with_a_flush(self) -> None:
        self.remote.put(100, 1)
        gc.collect()
        with self.assertRaises(pagewire.BoundsError):
            self.remote.flush()
        self.remote.flush()
        self.remote.put(0, np.full(50, 3))
        self.node.flush()
        self.assertEqual(self.table[49], 3)

    def test_a_node_that_was_left(self) -> None:
        self.node.leave()
        self.node.leave()
        with self.assertRaisesRegex(ValueError, "has left"):
            self.node.barrier()
        with self.assertRaises(ConnectionError):
            self.remote[0]
        self.remote.close()
        with self.assertRaisesRegex(pagewire.Error, "NULL"):
            self.remote[0]

    def test_a_library_that_is_not_there(self) -> None:
        environment = {**os.environ, "PAGEWIRE_LIBRARY": "/nowhere/libpagewire.so.1"}
        run = subprocess.run([sys.executable, "-c", "from pagewire import Node"], env=environment, capture_output=True, text=True)
        self.assertIn("its library libpagewire.so.1 cannot be loaded", run.stderr)
        self.assertIn("/nowhere/libpagewire.so.1", run.stderr)

    def test_a_library_on_the_search_path_is_loaded(self) -> None:
        folder = os.path.dirname(os.environ.get("PAGEWIRE_LIBRARY") or pagewire.library_path())
        environment = {**os.environ, "LD_LIBRARY_PATH": folder}
        run = subprocess.run([sys.executable, "-c", "import pagewire; pagewire.version()"], env=environment, capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_a_library_that_is_loaded_already_is_used(self) -> None:
        program = "import pagewire, os; print(pagewire.library_path(), open('/proc/self/maps').read().count('r-xp'))"
        path = os.environ.get("PAGEWIRE_LIBRARY") or pagewire.library_path()
        environment = {**os.environ, "LD_PRELOAD": path, "PAGEWIRE_LIBRARY": "/nowhere/libpagewire.so.1"}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        self.assertTrue(run.stdout.startswith("libpagewire.so.1 "), run.stderr)


class Coroutines(Alone):
    def test_many_at_once(self) -> None:
        async def main() -> list[int]:
            await asyncio.gather(*(self.remote.put(i, np.full(1, i * i)) for i in range(100)))
            return [int(got[0]) for got in await asyncio.gather(*(self.remote.get(i, 1) for i in range(100)))]

        for _ in range(3):
            self.assertEqual(asyncio.run(main()), [i * i for i in range(100)])

    def test_failures_and_signals(self) -> None:
        async def main() -> int:
            with self.assertRaises(pagewire.BoundsError):
                await self.remote.put(100, 1)
            reached = asyncio.ensure_future(self.node.signal(self.table, 5).reaches(3))
            await asyncio.sleep(0.01)
            self.assertFalse(reached.done())
            await self.remote.fetch_add(5, 3)
            return await asyncio.wait_for(reached, 10)

        self.assertEqual(asyncio.run(main()), 3)

    def test_a_cancelled_coroutine_leaves_its_operation(self) -> None:
        async def wait(operation: pagewire.Operation[None]) -> None:
            await operation

        async def main() -> None:
            for i in range(50):
                task = asyncio.ensure_future(wait(self.remote.put(0, np.full(100, i))))
                await asyncio.sleep(0)
                task.cancel()
            await self.remote.put(0, np.full(100, 77))

        asyncio.run(main())
        self.remote.flush()
        self.assertEqual(set(self.table.tolist()), {77})

    def test_threads_go_on_while_one_waits(self) -> None:
        waiter = threading.Thread(target=self.node.signal(self.table, 9).wait, args=(1,))
        waiter.start()
        counted = sum(range(1000))
        self.assertTrue(waiter.is_alive() and counted > 0)
        self.remote.fetch_add(9, 1).wait()
        waiter.join(10)
        self.assertFalse(waiter.is_alive())


MEMBER = """
import numpy as np, pagewire
with pagewire.Node.from_env() as node:
    table = node.zeros((4, 4), np.float64)
    tokens = node.all_gather(node.export(table, read=True, write=True, atomic=True))
    assert all(isinstance(token, pagewire.Token) for token in tokens) and len(tokens) == node.size == 3
    assert node.all_gather(bytes([node.rank])) == [b"\\0", b"\\1", b"\\2"]
    assert node.broadcast(1, b"abc" if node.rank == 1 else b"   ") == b"abc"
    next = (node.rank + 1) % node.size
    remote = node.open(tokens[next], np.float64)
    remote[4:8] = np.arange(4) + 10 * node.rank
    node.barrier()
    before = (node.rank - 1) % node.size
    assert table[1].tolist() == [10 * before + i for i in range(4)], table
    assert remote[7] == 10 * node.rank + 3
    assert node.explain(tokens[next])
    counts = node.open(tokens[0], np.uint64)
    for _ in range(10):
        counts.fetch_add(0, 1).wait()
    node.barrier()
    assert counts[0] == 30
    node.barrier()
"""


class Jobs(unittest.TestCase):
    def run_job(self, size: int, path: str, *program: str) -> list[str]:
        """What the processes of a job say, sorted."""
        with tempfile.TemporaryDirectory() as folder:
            job = {"PAGEWIRE_JOB_FILE": folder, "PAGEWIRE_SIZE": str(size), "PAGEWIRE_PATH": path}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            members = [
                subprocess.Popen([sys.executable, *program], env={**os.environ, **job}, text=True, **pipes)
                for _ in range(size)
            ]
            said = []
            for member in members:
                lines, told = member.communicate(timeout=120)
                self.assertEqual(member.returncode, 0, told)
                said.append(lines)
            return sorted(said)

    def test_three_processes(self) -> None:
        for path in ["local", "udp"]:
            with self.subTest(path=path):
                self.run_job(3, path, "-c", MEMBER)

    def test_the_first_put(self) -> None:
        example = str(Path(__file__).parent.parent / "examples" / "first_put.py")
        said = self.run_job(2, "local", example)
        expected = ["0 got [1.0, 2.0, 3.0] and gets 9.0\n", "1 got [0.0, 1.0, 2.0] and gets 10.0\n"]
        self.assertEqual(said, expected)


# Knows nothing of Pagewire.
PLAIN = """
import os, threading
import numpy as np

def is_of_the_heap(array):
    address = array.__array_interface__["data"][0]
    for line in open("/proc/self/maps"):
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return "/memfd:pagewire-heap" in line
    return False

def work(seed):
    random = np.random.default_rng(seed)
    for size in (10, 1000, 100_000, 3_000_000):
        numbers = random.integers(0, 1000, size)
        assert is_of_the_heap(numbers), size
        ordered = np.sort(numbers)
        assert int(ordered.sum()) == sum(numbers.tolist()) and (np.diff(ordered) >= 0).all()
        doubled = np.concatenate([numbers, numbers])
        assert (doubled.reshape(2, -1)[1] == numbers).all()
    square = random.random((300, 300))
    assert np.allclose(square @ np.linalg.inv(square), np.eye(300), atol=1e-6)
    signal = random.random(1 << 16)
    assert np.allclose(np.fft.irfft(np.fft.rfft(signal)), signal)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
kept = np.arange(1 << 20)
child = os.fork()
if child == 0:
    kept += 1
    os._exit(0 if int(kept[-1]) == 1 << 20 and np.zeros(1000).sum() == 0 else 1)
assert os.waitpid(child, 0)[1] == 0
for thread in threads:
    thread.join()
assert int(kept[-1]) == (1 << 20) - 1
print("done")
"""


class UnmodifiedPrograms(unittest.TestCase):
    @unittest.skipUnless("PAGEWIRE_COMMAND" in os.environ, "PAGEWIRE_COMMAND names no command pagewire")
    def test_numpy_runs_with_memory_of_the_heap(self) -> None:
        command = [os.environ["PAGEWIRE_COMMAND"], "run", "--heap", "--", sys.executable, "-c", PLAIN]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
