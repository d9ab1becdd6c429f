"""Memory that reacts: attributes, logs and handlers of the package. python -m unittest discover python/tests"""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import numpy as np

import pagewire
from pagewire import Access, AccessKind, Counts, ErrorCode

PAGE = 4096


class Logged(unittest.TestCase):
    """A table of four pages, and a log."""

    def setUp(self) -> None:
        self.node = pagewire.Node.alone()
        self.addCleanup(self.node.leave)
        self.table = self.node.zeros(4 * PAGE // 8, np.uint64)
        self.token = self.node.export(self.table, read=True, write=True, atomic=True)
        self.remote = self.node.open(self.token, np.uint64)
        self.log = self.node.access_log(1 << 16)
        self.pages = self.node.attributes(self.token)
        self.failures: list[Any] = []
        former, threading.excepthook = threading.excepthook, self.failures.append
        self.addCleanup(setattr, threading, "excepthook", former)

    def polled(self) -> list[Access]:
        seen: list[Access] = []
        counts = self.log.poll(seen.append)
        self.assertEqual(counts, Counts(len(seen), 0))
        return seen


class Attributes(Logged):
    def test_puts_are_redirected(self) -> None:
        self.pages[:PAGE].redirect_puts().to(self.log)
        begin = time.monotonic_ns()
        self.remote[3] = 5
        self.remote[512] = 6
        access, *others = self.polled()
        self.assertEqual((others, self.table[3], self.table[512]), ([], 0, 6))
        self.assertEqual((access.kind, access.length, access.offset_in(self.table)), (AccessKind.PUT, 8, 24))
        self.assertEqual((access.value(np.uint64), access.array(np.uint32).tolist()), (5, [5, 0]))
        self.assertIsNone(access.value("S9"))
        self.assertEqual(access.domain, self.log.domain)
        self.assertTrue(access.is_first and access.is_last and access.was_redirected)
        self.assertFalse(access.was_refused or access.may_have_written)
        self.assertTrue(begin <= access.stamp <= time.monotonic_ns())
        self.assertIn("PUT of 8 bytes", repr(access))

    def test_puts_gets_and_atomics_are_logged(self) -> None:
        self.pages[:].log_put_data().log_get_data().to(self.log)
        self.remote[0] = 5
        self.assertEqual(self.remote.fetch_add(0, 2).wait(), 5)
        self.assertEqual(self.remote.compare_swap(0, 7, 9).wait(), 7)
        self.assertEqual((self.remote[0], self.table[0]), (9, 9))
        kinds = [AccessKind.PUT, AccessKind.FETCH_ADD, AccessKind.COMPARE_SWAP, AccessKind.GET]
        seen = self.polled()
        self.assertEqual([access.kind for access in seen], kinds)
        self.assertEqual([access.array(np.uint64).tolist() for access in seen], [[5], [2], [7, 9], [9]])
        self.pages[:].log_puts().log_gets().to(self.log)
        self.remote[0] = self.remote[1]
        self.assertEqual([access.data for access in self.polled()], [b"", b""])

    def test_refusals_and_the_fault_log(self) -> None:
        self.node.take_faults()
        self.pages[:PAGE].refuse_puts().refuse_gets().log_puts().to_fault_log()
        for refused in (lambda: self.remote.put(0, [1]).wait(), lambda: self.remote[0]):
            with self.assertRaises(pagewire.Error) as caught:
                refused()
            self.assertEqual(caught.exception.code, ErrorCode.KEY)
        faults = self.node.take_faults()
        self.assertEqual([(access.kind, access.was_refused) for access in faults.records], [(AccessKind.PUT, True)])
        self.assertEqual((faults.dropped, self.table[0]), (0, 0))
        self.pages[:PAGE].refuse_gets().log_puts().set()
        self.remote[0] = 1
        self.assertRaises(pagewire.Error, lambda: self.remote[0])
        self.pages[:PAGE].set()
        self.assertEqual(self.remote[0], 1)
        self.assertEqual(self.node.take_faults().records, [])

    def test_what_cannot_be(self) -> None:
        for wrong in (7, slice(0, PAGE, 2), "all", slice("a", None), (1, 2)):
            self.assertRaises(TypeError, lambda: self.pages[wrong])
        for wrong in (slice(-1, None), slice(0, -1), slice(PAGE, 0), slice(0, 2**64)):
            self.assertRaises(ValueError, lambda: self.pages[wrong])
        for cuts in (slice(0, 100), slice(1, PAGE), slice(0, 5 * PAGE), slice(6 * PAGE, None)):
            with self.assertRaises(pagewire.BoundsError):
                self.pages[cuts].log_puts().to(self.log)
        self.assertRaises(pagewire.Error, self.pages[:].redirect_puts().to_fault_log)
        self.assertRaises(pagewire.Error, self.pages[:].redirect_puts().refuse_puts().to, self.log)
        self.assertRaises(ValueError, self.node.attributes, b"short")
        self.node.unexport(self.token)
        self.assertRaises(pagewire.Error, self.pages[:].log_puts().to, self.log)
        self.assertRaises(pagewire.Error, self.node.access_log, 47)
        self.assertRaises(pagewire.Error, self.node.access_log, PAGE, sources=5000)
        self.assertRaises(ValueError, self.node.access_log, -1)
        self.assertRaises(TypeError, self.node.access_log, "many")
        self.assertRaises(TypeError, self.log.poll, None)
        self.assertRaises(TypeError, self.log.serve, 7)
        self.assertRaises(pagewire.Error, self.log.serve, print, threshold=0)
        self.assertRaises(pagewire.Error, self.log.serve, print, interval=0)


class Handlers(Logged):
    def put_ten(self) -> None:
        self.pages[:PAGE].redirect_puts().to(self.log)
        for value in range(10):
            self.remote[0] = value
        self.remote.flush_handled().wait()

    def fails_at_odd_ones(self, access: Access) -> None:
        if access.value(np.uint64) % 2:
            raise ValueError("odd")

    def test_failures_are_counted_and_reported_and_the_log_goes_on(self) -> None:
        for options in ({}, {"polling": True}, {"threshold": 100, "interval": 0.001}):
            with self.subTest(**options), self.log.serve(self.fails_at_odd_ones, **options) as serving:
                self.put_ten()
                self.assertEqual(serving.counts, Counts(10, 5))
            self.assertEqual(serving.end(), Counts(10, 5))
        self.assertEqual([str(failure.exc_value) for failure in self.failures], ["odd"] * 15)
        del self.failures[:]
        self.remote[0] = 3
        self.assertEqual(self.log.poll(self.fails_at_odd_ones), Counts(1, 1))
        self.assertEqual(len(self.failures), 1)

    def test_polling(self) -> None:
        self.pages[:PAGE].redirect_puts().to(self.log)
        for value in range(5):
            self.remote[0] = value
        seen: list[int] = []
        keep = lambda access: seen.append(int(access.value(np.uint64)))
        self.assertEqual((self.log.poll(keep, most=2), self.log.poll(keep, most=0)), ((2, 0), (0, 0)))
        self.assertEqual((self.log.poll(keep), seen), ((3, 0), [0, 1, 2, 3, 4]))

        def interrupted(_: Access) -> None:
            raise KeyboardInterrupt

        self.remote[0] = 1
        self.remote[0] = 2
        self.assertRaises(KeyboardInterrupt, self.log.poll, interrupted)
        self.assertEqual((self.log.poll(keep), seen[-1], self.failures), ((1, 0), 2, []))

    def test_a_handler_may_call_the_library(self) -> None:
        """It puts and gets by a node of its own: what it starts does not wait behind a flush that waits for it."""
        self.pages[:PAGE].redirect_puts().to(self.log)
        with pagewire.Node.alone() as other:
            remote = other.open(self.token, np.uint64)

            def handle(access: Access) -> None:
                with self.assertRaises(pagewire.Error) as caught:
                    self.log.poll(print)
                self.assertEqual(caught.exception.code, ErrorCode.IN_HANDLER)
                remote[600] = access.value(np.uint64)
                self.assertEqual(remote[600], 7)
                remote.flush()
                remote.flush_handled().wait()
                self.assertEqual(serving.end(), Counts(1, 0))

            serving = self.log.serve(handle)
            self.remote[0] = 7
            self.remote.flush_handled(self.log.domain).wait()
            remote.close()
        self.assertEqual((self.failures, self.table[600]), ([], 7))
        self.remote[0] = 8
        self.assertEqual(len(self.polled()), 1)

    def test_a_handler_cannot_close_its_log(self) -> None:
        codes: list[ErrorCode] = []

        def handle(_: Access) -> None:
            try:
                self.log.close()
            except pagewire.Error as refused:
                codes.append(refused.code)

        self.pages[:PAGE].redirect_puts().to(self.log)
        self.remote[0] = 7
        self.log.poll(handle)
        self.assertEqual(codes, [ErrorCode.IN_HANDLER])
        self.log.close()
        self.log.close()
        self.assertRaises(ValueError, self.log.poll, print)
        # Nobody takes what would be redirected.
        self.assertRaises(pagewire.Error, self.remote.put(0, [1]).wait)

    def test_coroutines_wait_for_handlers(self) -> None:
        gate, seen = threading.Event(), []

        def handle(access: Access) -> None:
            gate.wait(10)
            seen.append(access)

        async def main() -> None:
            flushes = [asyncio.ensure_future(self.flushed()) for _ in range(3)]
            await asyncio.sleep(0.05)
            self.assertFalse(seen or any(flush.done() for flush in flushes))
            gate.set()
            await asyncio.gather(*flushes)
            self.assertEqual(len(seen), 1)

        self.pages[:PAGE].redirect_puts().to(self.log)
        with self.log.serve(handle):
            self.remote[0] = 7
            asyncio.run(main())

    async def flushed(self) -> None:
        await self.remote.flush_handled()

    def test_servings_live_as_long_as_their_log(self) -> None:
        seen: list[Access] = []
        self.pages[:PAGE].redirect_puts().to(self.log)
        self.log.serve(seen.append)
        gc.collect()
        self.remote[0] = 7
        self.remote.flush_handled().wait()
        self.assertEqual(len(seen), 1)
        self.node.leave()
        self.assertRaises(ValueError, self.log.poll, print)

    def test_many_threads_handle_under_load(self) -> None:
        """Four logs, each with a thread of its own, while this one puts and computes."""
        logs = [self.node.access_log(1 << 14) for _ in range(4)]
        sums = [0] * 4

        def adds(index: int) -> Any:
            def handle(access: Access) -> None:
                sums[index] += int(access.value(np.uint64))

            return handle

        for index, log in enumerate(logs):
            self.pages[index * PAGE : (index + 1) * PAGE].redirect_puts().to(log)
            log.serve(adds(index))
        for value in range(400):
            self.remote.put(512 * (value % 4), [value])
        self.remote.flush_handled().wait()
        self.assertEqual(sums, [sum(range(index, 400, 4)) for index in range(4)])


ENDS = """
import os, sys, threading, time
import numpy as np, pagewire
node = pagewire.Node.alone()
table = node.zeros(512, np.uint64)
token = node.export(table, write=True)
log = node.access_log(1 << 16)
node.attributes(token)[:].redirect_puts().to(log)
log.serve(lambda access: time.sleep(0.001), polling=True)
remote = node.open(token, np.uint64)
for value in range(20):
    remote.put(0, [value])
if len(sys.argv) > 1:
    child = os.fork()
    if child == 0:
        sys.exit(0)  # its exit handlers find no thread to wait for
    assert os.waitpid(child, 0)[1] == 0
print("end", flush=True)
"""


class Ends(unittest.TestCase):
    def run_program(self, *program: str) -> str:
        done = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_a_program_ends_while_handlers_run(self) -> None:
        self.assertEqual(self.run_program("-c", ENDS), "end\n")
        self.assertEqual(self.run_program("-c", ENDS, "fork"), "end\n")

    def test_the_program_of_the_guide(self) -> None:
        example = str(Path(__file__).parent.parent / "examples" / "reacts.py")
        expected = "a letter: 7\n24 bytes were put\nin memory: 0 and 1, letters: 1\nCounts(handled=2, failed=0)\n"
        page = Path(__file__).parent.parent.parent / "docs" / "guide" / "active.md"
        _, program = Path(example).read_text().split('"""\n\n', 1)
        self.assertIn(f"```python\n# reacts.py\n{program}```", page.read_text())
        self.assertIn(f"$ python reacts.py\n{expected}```", page.read_text())
        for path in ("local", "udp"):
            with self.subTest(path=path):
                os.environ["PAGEWIRE_PATH"] = path
                self.addCleanup(os.environ.pop, "PAGEWIRE_PATH", None)
                self.assertEqual(self.run_program(example), expected)


if __name__ == "__main__":
    unittest.main()
