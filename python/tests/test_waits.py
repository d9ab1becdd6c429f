"""Waits for several, parts of a job, a node's descriptor and all atomics: python -m unittest discover python/tests"""

import asyncio
import math
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Callable

import numpy as np

import pagewire
from pagewire import ErrorCode, experimental

SOON = 0.005


class Pair(unittest.TestCase):
    """Two nodes of this process, and a table of one."""

    def setUp(self) -> None:
        self.node, self.caller = pagewire.Node.alone(), pagewire.Node.alone()
        self.addCleanup(self.node.leave)
        self.addCleanup(self.caller.leave)
        self.table = self.node.zeros(16, np.int64)
        self.token = self.node.export(self.table, read=True, write=True, atomic=True)
        self.remote = self.caller.open(self.token, np.int64)


class Operations(Pair):
    def test_any_all_and_some(self) -> None:
        held = self.caller.conditional_write(self.node.identity, 7, np.array([5]))
        for wait in (pagewire.wait_any, pagewire.wait_some, pagewire.wait_all):
            self.assertRaises(pagewire.TimeoutError, wait, [held], 0)
            self.assertRaises(pagewire.TimeoutError, wait, [held], SOON)
        self.assertRaises(pagewire.TimeoutError, held.wait, SOON)
        self.assertRaises(ValueError, pagewire.wait_any, [])
        self.assertEqual(pagewire.wait_all([]), [])
        put, add, refused = self.remote.put(1, [1]), self.remote.fetch_add(2, 4), self.remote.put(16, [1])
        self.assertIn(pagewire.wait_any([held, put, add]), (1, 2))
        self.assertRaises(pagewire.BoundsError, pagewire.wait_all, [put, refused])
        self.assertEqual(pagewire.wait_all([put, add]), [None, 0])
        self.assertEqual(pagewire.wait_some([held, refused, add]), [1, 2])
        self.assertRaises(pagewire.BoundsError, refused.wait)
        self.assertEqual(self.node.accept_conditional_write(self.caller.identity, 7, self.token).wait(60), 8)
        self.assertEqual(pagewire.wait_any([held]), 0)
        self.assertIsNone(held.wait(0))
        self.assertEqual(self.table[:3].tolist(), [5, 1, 4])

    def test_lost_peer_ends_the_wait(self) -> None:
        held = self.caller.conditional_write(self.node.identity, 7, np.array([5]))
        self.assertRaises(pagewire.TimeoutError, pagewire.wait_any, [held], SOON)
        self.node.leave()
        self.assertEqual(pagewire.wait_any([held], 60), 0)
        self.assertRaises(pagewire.PeerLostError, held.wait)

    def test_descriptor_is_ready_while_a_result_was_not_taken(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.caller, selectors.EVENT_READ)
            self.assertEqual(selector.select(0), [])
            put = self.remote.put(0, [1])
            self.assertEqual(len(selector.select(60)), 1)
            put.wait()
            self.assertEqual(selector.select(0), [])
        self.assertEqual(self.caller.fileno(), self.caller.fileno())

    def test_descriptor_in_an_event_loop(self) -> None:
        async def run() -> int:
            loop, done = asyncio.get_running_loop(), asyncio.Event()
            added = []

            def ready() -> None:
                added.extend(operation for operation in started if operation.done())
                done.set()

            loop.add_reader(self.caller, ready)
            started = [self.remote.fetch_add(0, 3)]
            await asyncio.wait_for(done.wait(), 60)
            loop.remove_reader(self.caller)
            return int(added[0].wait())

        self.assertEqual(asyncio.run(run()), 0)
        self.assertEqual(self.table[0], 3)


class Sentences(Pair):
    """A timeout names the time that the caller gave, whatever slices the wait was cut into."""

    def sentence(self, wait: Callable[[float], object], timeout: float) -> str:
        with self.assertRaises(pagewire.TimeoutError) as caught:
            wait(timeout)
        return str(caught.exception)

    def test_time_of_caller_is_named(self) -> None:
        held = self.caller.conditional_write(self.node.identity, 7, np.array([5]))
        self.node.next_conditional_request(60)
        signal = self.node.signal(self.table, 3)
        wishes = [signal.wish(greater=3)]
        waits: dict[str, Callable[[float], object]] = {
            "the signal was not as wished": lambda time: signal.wait(equal=3, timeout=time),
            "none of the signals was as wished": lambda time: pagewire.signal_wait_any(wishes, time),
            "not all signals were as wished at once": lambda time: pagewire.signal_wait_all(wishes, time),
            "no peer has opened a conditional write or read": self.node.next_conditional_request,
            "the operation has not ended": held.wait,
            "none of the operations has ended": lambda time: pagewire.wait_any([held], time),
            "not all operations have ended": lambda time: pagewire.wait_all([held], time),
        }
        for what, wait in waits.items():
            # Two slices.
            for timeout, named in ((0.15, "0.15 s"), (0, "0 s"), (-1, "0 s"), (-math.inf, "0 s")):
                with self.subTest(what, timeout=timeout):
                    self.assertEqual(self.sentence(wait, timeout), f"{what} within {named}")
        self.assertIn("within 0.15 s", self.sentence(lambda time: pagewire.signal_wait_some(wishes, time), 0.15))
        self.assertIn("within 0.15 s", self.sentence(lambda time: pagewire.wait_some([held], time), 0.15))
        held.cancel()

    def test_sentence_of_library_names_no_slice(self) -> None:
        with experimental.Listener(self.node) as listener:
            self.assertNotRegex(self.sentence(listener.accept, 0.15), r"\d")


class Signals(Pair):
    def test_every_comparison(self) -> None:
        wished = {
            "equal": (False, True, False),
            "not_equal": (True, False, True),
            "greater": (False, False, True),
            "at_least": (False, True, True),
            "less": (True, False, False),
            "at_most": (True, True, False),
        }
        signal = self.node.signal(self.table, 3)
        for name, holds in wished.items():
            for value, expected in zip((6, 7, 8), holds):
                self.table[3] = value
                if expected:
                    self.assertEqual(signal.wait(timeout=0, **{name: 7}), value)
                else:
                    self.assertRaises(pagewire.TimeoutError, signal.wait, timeout=SOON, **{name: 7})
        self.assertRaises(TypeError, signal.wait)
        self.assertRaises(TypeError, signal.wait, 1, less=2)
        self.assertRaises(OverflowError, signal.wait, 1 << 64)

    def test_any_all_and_some(self) -> None:
        one, other = self.node.signal(self.table, 3), self.node.signal(self.table, 4)
        wishes = [one.wish(greater=3), other.wish(equal=1)]
        for wait in (pagewire.signal_wait_any, pagewire.signal_wait_some, pagewire.signal_wait_all):
            self.assertRaises(pagewire.TimeoutError, wait, wishes, 0)
            self.assertRaises(ValueError, wait, [])
        late = threading.Timer(SOON, lambda: self.remote.put_signal(0, [5], 32, set=1).wait())
        late.start()
        self.assertEqual(pagewire.signal_wait_any(wishes), 1)
        self.assertEqual(self.table[0], 5)
        late.join()
        self.assertRaises(pagewire.TimeoutError, pagewire.signal_wait_all, wishes, SOON)
        self.remote.put_signal(0, [5], 24, add=4).wait()
        pagewire.signal_wait_all(wishes)
        self.assertEqual(pagewire.signal_wait_some(wishes), [0, 1])
        self.assertEqual(asyncio.run(one.reaches(less=5)), 4)


class Atomics(Pair):
    def test_words_of_8_bytes(self) -> None:
        self.table[3] = 6
        remote = self.remote
        self.assertEqual([remote.fetch_and(3, 3).wait(), remote.fetch_or(3, 8).wait(), remote.fetch_xor(3, 2).wait()], [6, 2, 10])
        self.assertEqual([remote.fetch_min(3, -5).wait(), remote.fetch_max(3, 7).wait()], [8, -5])
        self.assertEqual(self.table[3], 7)
        unsigned = self.caller.open(self.token, np.uint64)
        self.assertEqual([unsigned.fetch_max(3, (1 << 64) - 1).wait(), unsigned.fetch_min(3, 2).wait()], [7, (1 << 64) - 1])
        self.assertRaises(OverflowError, unsigned.fetch_max, 3, 1 << 64)

    def test_words_of_4_bytes(self) -> None:
        for dtype in (np.int32, np.uint32):
            self.table[4] = 0
            remote = self.caller.open(self.token, dtype)
            self.assertEqual([remote.fetch_add(9, 5).wait(), remote.compare_swap(9, 5, 6).wait(), remote.swap(9, 7).wait()], [0, 5, 6])
            self.assertEqual([remote.fetch_and(9, 6).wait(), remote.fetch_or(9, 8).wait(), remote.fetch_xor(9, 2).wait()], [7, 6, 14])
            self.assertEqual([remote.fetch_min(9, 4).wait(), remote.fetch_max(9, 9).wait()], [12, 4])
            self.assertEqual(self.table[4], 9 << 32)
            self.assertRaises(OverflowError, remote.fetch_add, 9, 1 << 32)
        self.assertEqual(self.caller.open(self.token, np.int32).fetch_min(9, -3).wait(), 9)
        self.assertEqual(self.caller.open(self.token, np.int32).fetch_max(9, -2).wait(), -3)
        self.assertRaises(TypeError, self.caller.open(self.token, np.int16).fetch_add, 0, 1)
        part = self.node.export(self.table.view(np.int32)[1:3], atomic=True)
        with self.assertRaises(pagewire.BoundsError) as caught:
            self.caller.open(part, np.int32).swap(0, 1).wait()
        self.assertIn("half of a word of 8", str(caught.exception))


MEMBER = """
import os, pathlib, time
import pagewire
from pagewire import ErrorCode

node = pagewire.Node.from_env()
rank, size = node.rank, node.size
handshake = pathlib.Path(os.environ["HANDSHAKE"])
if rank + 1 < size:
    try:
        node.barrier(0 if rank == 0 else 0.02)
        raise SystemExit("the last one has not come")
    except pagewire.TimeoutError:
        pass
    try:
        node.all_gather(b"other")
        raise SystemExit("a barrier is under way")
    except pagewire.Error as error:
        assert error.code == ErrorCode.UNFINISHED, error
    (handshake / str(rank)).touch()
else:
    # It comes when all others have done so.
    end = time.monotonic() + 60
    while len(list(handshake.iterdir())) + 1 < size:
        assert time.monotonic() < end, "the others have not tried"
        time.sleep(0.001)
node.barrier()
assert node.all_gather(bytes([rank]), 60) == [bytes([other]) for other in range(size)]
part = node.split(rank % 2, -rank)
members = [other for other in reversed(range(size)) if other % 2 == rank % 2]
assert part is not None and part.size == len(members) and [part.job_rank(member) for member in range(part.size)] == members
assert part.all_gather(bytes([rank])) == [bytes([other]) for other in members]
assert part.broadcast(0, bytes([rank])) == bytes([members[0]])
table = node.zeros(4)
token = node.export(table, read=True)
assert part.all_gather(token, 60)[part.rank] == token
inner = part.split(None if part.rank == 0 else 3)
assert (inner is None) == (part.rank == 0)
if inner is not None:
    inner.barrier(60)
    inner.close()
part.barrier()
part.close()
assert node.split(None) is None
node.barrier()
node.leave()
print("all is so")
"""


class Parts(unittest.TestCase):
    def run_job(self, program: str, size: int) -> list[str]:
        with tempfile.TemporaryDirectory() as job, tempfile.TemporaryDirectory() as handshake:
            environment = dict(os.environ, PAGEWIRE_JOB_FILE=job, PAGEWIRE_SIZE=str(size), HANDSHAKE=handshake)
            command = [sys.executable, "-c", program]
            members = [
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                for _ in range(size)
            ]
            for member in members:
                self.addCleanup(member.kill)
            return [member.communicate(timeout=120)[0] for member in members]

    def test_five_processes(self) -> None:
        self.assertEqual(self.run_job(MEMBER, 5), ["all is so\n"] * 5)

    def test_member_that_is_killed_ends_its_part(self) -> None:
        program = """
import os, signal
import pagewire
node = pagewire.Node.from_env()
part = node.split(0)
part.barrier()
if part.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    part.barrier()
except pagewire.Error as error:
    print(error.code.name)
"""
        begun = time.monotonic()
        said = self.run_job(program, 3)
        self.assertEqual(sorted(said), ["", "JOB\n", "JOB\n"])
        # The timeout of the job is 300 s.
        self.assertLess(time.monotonic() - begun, 100)

    def test_alone(self) -> None:
        with pagewire.Node.alone() as node:
            node.barrier(0)
            part = node.split(7)
            assert part is not None
            with part:
                self.assertEqual((part.rank, part.size, part.all_gather(b"mine", 0)), (0, 1, [b"mine"]))
            self.assertRaises(ValueError, part.barrier)
            self.assertRaises(OverflowError, node.split, -1)
            with self.assertRaises(pagewire.Error) as caught:
                other = node.split(7)
                assert other is not None
                other.job_rank(1)
            self.assertEqual(caught.exception.code, ErrorCode.JOB)
            self.assertEqual(str(caught.exception), "rank 1 is not in the part: its ranks are 0 to 0")
            with self.assertRaises(pagewire.Error) as caught:
                other.broadcast(1, b"x")
            self.assertEqual(caught.exception.code, ErrorCode.ARGUMENT)
            self.assertEqual(str(caught.exception), "rank 1 is not in the part: its ranks are 0 to 0")


if __name__ == "__main__":
    unittest.main()
