"""Experimental applications of the package. python -m unittest discover python/tests"""

import gc
import os
import re
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
from pagewire import ErrorCode, experimental

ROOT = Path(__file__).parent.parent
# Words of a page.
PAGE = 512


def run_job(program: list[str], size: int, **variables: str) -> list[str]:
    """Runs a program as a job; gives what the processes have said, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        job = {**os.environ, **variables, "PAGEWIRE_JOB_FILE": folder, "PAGEWIRE_SIZE": str(size)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        members: list[Any] = [subprocess.Popen([sys.executable, *program], env=job, **pipes) for _ in range(size)]  # type: ignore[call-overload]
        said = []
        try:
            for member in members:
                output, errors = member.communicate(timeout=60)
                if member.returncode:
                    raise AssertionError(errors)
                said.append(output)
        finally:
            for member in members:
                member.kill()
        return sorted(said)


def has_global_memory() -> bool:
    """Whether there is userfaultfd(2) for this user."""
    try:
        with pagewire.Node.alone() as node:
            experimental.GlobalMemory(node, 1).close()
    except pagewire.Error as error:
        if error.code != ErrorCode.SYSTEM:
            raise
        print(f"not checked: global memory from Python: {error}", file=sys.stderr)
        return False
    return True


def guide_with(page: str, name: str) -> str:
    """A page of the guide, after it has been seen to have a program."""
    text = (ROOT.parent / "docs" / "guide" / f"{page}.md").read_text()
    _, program = (ROOT / "examples" / f"{name}.py").read_text().split('"""\n\n', 1)
    if f"```python\n# {name}.py\n{program}```" not in text:
        raise AssertionError(f"the guide has another {name}.py")
    return text


def shown(page: str, name: str) -> str:
    """What a page of the guide says that a program prints, after it has been seen to have the program."""
    text = guide_with(page, name)
    found = re.search(rf"\$ python {name}.py\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


class Sort(unittest.TestCase):
    KEYS = 30_000

    def start(self, folder: str, path: str, rank: int) -> Any:
        words = [sys.executable, str(ROOT / "examples" / "sort.py"), folder, str(rank), "2", str(self.KEYS)]
        return subprocess.Popen(words, env={**os.environ, "PAGEWIRE_PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def part(self, rank: int) -> str:
        keys = np.sort(np.arange(1, 2 * self.KEYS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        own = keys[rank * self.KEYS : (rank + 1) * self.KEYS]
        position, total = rank * self.KEYS, int(own.sum())
        return f"process {rank}: {self.KEYS} keys from position {position} on, {int(own[0]):016x} to {int(own[-1]):016x}, their sum {total:016x}\n"

    def test_a_process_is_killed_and_started_again(self) -> None:
        guide_with("experimental-sort", "sort")
        for path in ("local", "udp"):
            with self.subTest(path=path), tempfile.TemporaryDirectory() as folder:
                survivor, victim = self.start(folder, path, 0), self.start(folder, path, 1)
                end = time.monotonic() + 60
                while not all((Path(folder) / f"token-{rank}").exists() for rank in (0, 1)):
                    self.assertLess(time.monotonic(), end, "no process has begun")
                    time.sleep(0.001)
                victim.kill()
                victim.communicate()
                for rank, member in enumerate((survivor, self.start(folder, path, 1))):
                    output, errors = member.communicate(timeout=60)
                    self.assertEqual(output, self.part(rank), errors)

    def test_what_cannot_be_sorted_says_why(self) -> None:
        keys = np.array([3, 1, 2], np.uint64)
        with pagewire.Node.alone() as node, tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(pagewire.Error, "process 2 of 2"):
                experimental.sort(node, folder, 2, 2, keys)
            with self.assertRaisesRegex(TimeoutError, "process 1 is not there"):
                experimental.sort(node, folder, 0, 2, keys, patience=0)
            with self.assertRaisesRegex(pagewire.Error, "nowhere"):
                experimental.sort(node, Path(folder) / "nowhere", 0, 1, keys)
            with self.assertRaisesRegex(TypeError, "uint64"):
                experimental.sort(node, folder, 0, 1, [1.5])
            # The folder has the run of the first call that got that far.
            done = experimental.sort(node, folder, 0, 1, keys)
            self.assertEqual(done.keys.tolist(), [1, 2, 3])
            self.assertEqual((done.position, done.run_was_saved), (0, True))
            self.assertTrue(pagewire.is_registered(done.keys))
        with pagewire.Node.alone() as node, tempfile.TemporaryDirectory() as folder:
            self.assertEqual(experimental.sort(node, folder, 0, 1, keys[:0]).keys.size, 0)


JOB = """
import numpy as np
import pagewire
from pagewire import experimental

node = pagewire.Node.from_env()
memory = experimental.GlobalMemory(node, 4)
words, view = memory.words(), memory.view()
own, other = memory.home(node.rank), memory.home((node.rank + 1) % node.size)
words[own.start : own.stop] = np.arange(len(own)) + 1000 * node.rank
node.barrier()
expected = np.arange(len(own)) + 1000 * ((node.rank + 1) % node.size)
assert np.array_equal(words[other.start : other.stop], expected)
assert bytes(view[8 * other.start + 8 : 8 * other.start + 16]) == int(expected[1]).to_bytes(8, "little")
assert len(view) == 8 * len(words) == 4 * 4096 * node.size
# Each adds to its own word of one page.
node.barrier()
for _ in range(300):
    words[node.rank] += 1
node.barrier()
assert [int(words[rank]) for rank in range(node.size)] == [300 + rank for rank in range(node.size)]
assert memory.counts.pages_in > 0 and memory.counts.lost_stores == 0 and memory.lost == []
if node.rank == 0:
    assert 0 in memory.take_dirty()
memory.leave()
del words, view
node.leave()
print("well done")
"""


@unittest.skipUnless(has_global_memory(), "the kernel has no userfaultfd(2) for this user")
class GlobalMemory(unittest.TestCase):
    def test_processes_load_what_others_store(self) -> None:
        for size, path in ((1, "local"), (2, "local"), (2, "udp"), (3, "local")):
            with self.subTest(size=size, path=path):
                self.assertEqual(run_job(["-c", JOB], size, PAGEWIRE_PATH=path), ["well done\n"] * size)

    def test_the_guide(self) -> None:
        expected = shown("experimental-gas", "global_memory")
        example = str(ROOT / "examples" / "global_memory.py")
        self.assertEqual(run_job([example], 1), [expected])
        both = [expected, expected.replace("process 0", "process 1")]
        self.assertEqual(run_job([example], 2), both)

    def test_arrays_hold_the_memory(self) -> None:
        node = pagewire.Node.alone()
        memory = experimental.GlobalMemory(node, 2)
        words = memory.words(np.uint32)
        self.assertEqual(words.size, 2 * 2 * PAGE)
        memory.close()
        self.assertRaises(ValueError, memory.words)
        words[7] = 70
        tail = words[7:]
        del words
        gc.collect()
        with self.assertRaises(pagewire.Error) as caught:
            node.leave()
        self.assertEqual(caught.exception.code, ErrorCode.IN_USE)
        self.assertEqual(tail[0], 70)
        del tail
        gc.collect()
        node.leave()

    def test_more_dirty_pages_than_are_taken_at_once(self) -> None:
        with pagewire.Node.alone() as node, experimental.GlobalMemory(node, 1100) as memory:
            words = memory.words()
            words[::PAGE] = 1
            self.assertEqual(memory.take_dirty(), list(range(0, 1100 * PAGE, PAGE)))
            del words

    def test_misuse(self) -> None:
        with pagewire.Node.alone() as node:
            for pages in (0, 1 << 40):
                with self.assertRaises(pagewire.Error) as caught:
                    experimental.GlobalMemory(node, pages)
                self.assertEqual(caught.exception.code, ErrorCode.LIMIT)
            self.assertRaises(ValueError, experimental.GlobalMemory, node, -1)
            self.assertRaises(TypeError, experimental.GlobalMemory, node, "1")
            memory = experimental.GlobalMemory(node, 1)
            self.assertRaises(TypeError, memory.words, object)
            with self.assertRaises(pagewire.Error):
                memory.home(1)
            # A system call does not wait for a page.
            with tempfile.TemporaryFile() as file, self.assertRaises(OSError):
                os.writev(file.fileno(), [memory.view()])
            memory.leave()
            self.assertRaises(ValueError, memory.leave)
            self.assertRaises(ValueError, memory.take_dirty)


ECHO = """
import sys
import pagewire
from pagewire import experimental

with pagewire.Node.alone() as node, experimental.Stream.connect(node, bytes.fromhex(sys.argv[1])) as stream:
    while part := stream.receive(1 << 16):
        stream.send(part)
    stream.shutdown()
"""


class Streams(unittest.TestCase):
    def setUp(self) -> None:
        self.node = pagewire.Node.alone()
        self.addCleanup(self.node.leave)

    def pair(self, buffer: int = 1 << 16) -> tuple[experimental.Stream, experimental.Stream]:
        listener = experimental.Listener(self.node, buffer)
        made: list[experimental.Stream] = []
        thread = threading.Thread(target=lambda: made.append(experimental.Stream.connect(self.node, listener.token, buffer)))
        thread.start()
        server = listener.accept(10)
        thread.join()
        listener.close()
        return server, made[0]

    def test_another_process_gives_back_what_it_gets(self) -> None:
        data = np.arange(300_000, dtype=np.uint32)
        for path in ("local", "udp"):
            with self.subTest(path=path), experimental.Listener(self.node) as listener:
                command = [sys.executable, "-c", ECHO, listener.token.hex()]
                other = subprocess.Popen(command, env={**os.environ, "PAGEWIRE_PATH": path})
                self.addCleanup(other.kill)
                with listener.accept(60) as stream:
                    sending = threading.Thread(target=lambda: (stream.send(data), stream.shutdown()))
                    sending.start()
                    found = np.zeros_like(data).view(np.uint8)
                    at = 0
                    while count := stream.receive_into(found[at:], 60) if at < len(found) else 0:
                        at += count
                    sending.join()
                    self.assertEqual(stream.receive(1), b"")
                    self.assertTrue(np.array_equal(found.view(np.uint32), data))
                self.assertEqual(other.wait(60), 0)

    def test_a_peer_that_is_killed_is_an_error(self) -> None:
        with experimental.Listener(self.node) as listener:
            other = subprocess.Popen([sys.executable, "-c", ECHO, listener.token.hex()])
            self.addCleanup(other.kill)
            stream = listener.accept(60)
            stream.send(b"hello")
            self.assertEqual(stream.receive(5, 60), b"hello")
            other.kill()
            other.wait()
            self.assertRaises(pagewire.PeerLostError, stream.receive, 5, 60)
            stream.close()

    def test_waits_have_bounds_and_let_others_run(self) -> None:
        server, client = self.pair(4096)
        self.assertRaises(TimeoutError, server.receive, 10, 0.05)
        with self.assertRaises(TimeoutError):
            for _ in range(1000):
                server.send(bytes(1000), 0.05)
        self.assertRaises(TimeoutError, server.flush, 0.05)
        self.assertRaises(TimeoutError, server.shutdown, 0.05)
        parts = []
        receiving = threading.Thread(target=lambda: parts.extend(iter(lambda: client.receive(100), b"")))
        receiving.start()
        server.shutdown(10)
        receiving.join(10)
        self.assertFalse(receiving.is_alive())
        self.assertTrue(parts)
        # A thread that waits does not hold close() back.
        refused: list[BaseException] = []

        def wait() -> None:
            try:
                server.receive(1)
            except ValueError as error:
                refused.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.05)
        server.close()
        waiting.join(10)
        self.assertEqual(len(refused), 1)
        client.close()

    def test_misuse(self) -> None:
        def refused(code: ErrorCode, call: Any) -> None:
            with self.assertRaises(pagewire.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, code)

        refused(ErrorCode.ARGUMENT, lambda: experimental.Listener(self.node, 4095))
        own = self.node.export(self.node.zeros(10), read=True, write=True)
        refused(ErrorCode.TOKEN, lambda: experimental.Stream.connect(self.node, own))
        listener = experimental.Listener(self.node)
        token = listener.token
        self.assertRaises(TimeoutError, listener.accept, 0.01)
        self.assertRaises(TimeoutError, experimental.Stream.connect, self.node, token, timeout=0.05)
        listener.close()
        self.assertRaises(ValueError, listener.accept)
        refused(ErrorCode.CONNECT, lambda: experimental.Stream.connect(self.node, token))
        server, client = self.pair()
        refused(ErrorCode.ARGUMENT, lambda: server.receive(0))
        self.assertRaises(TypeError, server.send, "text")
        self.assertRaises(BufferError, server.receive_into, b"bytes")
        server.shutdown()
        refused(ErrorCode.STREAM, lambda: server.send(b"more"))
        client.close()
        self.assertEqual(server.receive(10, 10), b"")
        server.close()
        self.assertRaises(ValueError, server.receive, 1)


STORE = """
import sys
import pagewire
from pagewire import experimental

with pagewire.Node.alone() as node, experimental.TransactionStore(node, 4, 8, journal=sys.argv[1]) as store:
    print(store.token.hex(), flush=True)
    store.serve(0, [store.token])
    print("serves", flush=True)
    sys.stdin.read()
"""


class Transactions(unittest.TestCase):
    def setUp(self) -> None:
        self.node, self.owner = pagewire.Node.alone(), pagewire.Node.alone()
        self.addCleanup(self.owner.leave)
        self.addCleanup(self.node.leave)

    def refused(self, code: ErrorCode, call: Any) -> None:
        with self.assertRaises(pagewire.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertTrue(str(caught.exception))

    def served(self) -> experimental.TransactionStore:
        store = experimental.TransactionStore(self.owner, 4, 16)
        store.serve(0, [store.token])
        return store

    def test_what_is_committed_outlives_the_process(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for life in range(2):
                command = [sys.executable, "-c", STORE, str(Path(folder) / "journal")]
                owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.addCleanup(owner.communicate)
                self.addCleanup(owner.kill)
                assert owner.stdout
                token = bytes.fromhex(owner.stdout.readline())
                self.assertEqual(owner.stdout.readline(), "serves\n")
                client = experimental.TransactionClient(self.node, [token])
                with client.start() as transaction:
                    found = transaction.get_versioned(0, 2)
                    self.assertEqual(found, ((7 * life).to_bytes(8, "little"), life))
                    transaction.put(0, 2, (7).to_bytes(8, "little"))
                    self.assertEqual(transaction.get_versioned(0, 2).version, None)
                owner.kill()
                owner.wait()
                with self.assertRaises(pagewire.PeerLostError), client.start() as transaction:
                    transaction.get(0, 2)
                client.close()

    def test_who_loses_a_conflict_is_told(self) -> None:
        store = self.served()
        other = pagewire.Node.alone()
        self.addCleanup(other.leave)
        first, second = experimental.TransactionClient(self.node, [store.token]), experimental.TransactionClient(other, [store.token])
        older = first.start()
        older.get(0, 1)
        younger = second.start()
        older.put(0, 1, b"o" * 16)
        with self.assertRaises(experimental.ConflictError):
            # It may learn of it at once.
            try:
                younger.put(0, 1, b"y" * 16)
            finally:
                older.commit()
            younger.commit()
        self.assertEqual(store[1], experimental.Cell(b"o" * 16, 1))
        with second.start(again=True) as younger:
            self.assertEqual(younger.get(0, 1), b"o" * 16)
        # An exception gives a transaction up.
        with self.assertRaises(KeyError), first.start() as given_up:
            given_up.put(0, 1, b"g" * 16)
            raise KeyError
        with self.assertRaises(ZeroDivisionError):
            first.run(lambda transaction: transaction.put(0, 1, b"g" * 16) or 1 // 0)  # type: ignore[func-returns-value]
        self.assertEqual(store[1].version, 1)
        self.assertRaises(ValueError, older.get, 0, 1)
        self.assertRaises(ValueError, given_up.commit)
        given_up.abort()
        # The one that is started next ends the one before.
        before = first.start()
        first.start().abort()
        self.assertRaises(ValueError, before.get, 0, 1)
        self.assertEqual(first.run(lambda transaction: transaction.get(0, 1)), b"o" * 16)
        # One that was given up so does not look as if it was committed.
        with self.assertRaises(ValueError), first.start() as before:
            before.put(0, 2, b"b" * 16)
            first.run(lambda transaction: transaction.get(0, 1))
        self.assertEqual(store[2].version, 0)

    def test_misuse(self) -> None:
        for cells, size in ((0, 8), (1, 0), (1, 9), (1, 8192)):
            self.refused(ErrorCode.ARGUMENT, lambda: experimental.TransactionStore(self.owner, cells, size))
        self.assertRaises(ValueError, experimental.TransactionStore, self.owner, 1 << 32, 8)
        self.assertRaises(ValueError, experimental.TransactionStoreToken, b"short")
        self.refused(ErrorCode.TOKEN, lambda: experimental.TransactionClient(self.node, [bytes(experimental.TransactionStoreToken.SIZE)]))
        store = experimental.TransactionStore(self.owner, 4, 16)
        self.refused(ErrorCode.ARGUMENT, lambda: store[0])
        self.refused(ErrorCode.ARGUMENT, lambda: store.held)
        self.refused(ErrorCode.ARGUMENT, lambda: store.serve(1, [store.token]))
        store.serve(0, [store.token])
        self.refused(ErrorCode.ARGUMENT, lambda: store.serve(0, [store.token]))
        self.refused(ErrorCode.ARGUMENT, lambda: store[4])
        self.refused(ErrorCode.LIMIT, lambda: experimental.TransactionClient(self.node, [store.token] * 65))
        client = experimental.TransactionClient(self.node, [store.token])
        transaction = client.start()
        self.refused(ErrorCode.ARGUMENT, lambda: transaction.get(1, 0))
        self.refused(ErrorCode.ARGUMENT, lambda: transaction.get(0, 4))
        self.refused(ErrorCode.ARGUMENT, lambda: transaction.put(0, 0, b"short"))
        self.assertRaises(TypeError, transaction.put, 0, 0, "text")
        transaction.put(0, 0, np.arange(2, dtype=np.uint64))
        transaction.commit()
        self.assertEqual(store[0].value, np.arange(2, dtype=np.uint64).tobytes())
        client.close()
        self.assertRaises(ValueError, client.start)
        store.close()
        self.assertRaises(ValueError, lambda: store.token)


if __name__ == "__main__":
    unittest.main()
