"""Parity of checkpoints. python -m unittest discover python/tests"""

import subprocess
import sys
import threading
import time
import unittest
from typing import Any

import numpy as np

import pagewire
from pagewire import ErrorCode

WORDS = 5 * 512

# A member that saves the values of each line, until it is killed.
MEMBER = """
import sys
import numpy as np
import pagewire

rank, token = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
node = pagewire.Node.alone()
member = node.join_parity(token, rank)
print(member.token().hex(), flush=True)
for line in sys.stdin:
    print(member.save(np.full(5 * 512, int(line), np.uint64)), flush=True)
"""


class Parity(unittest.TestCase):
    def setUp(self) -> None:
        self.keeper, self.node = pagewire.Node.alone(), pagewire.Node.alone()
        self.addCleanup(self.keeper.leave)
        self.addCleanup(self.node.leave)
        self.table = self.node.zeros(WORDS, np.uint64)

    def refused(self, code: ErrorCode, call: Any) -> None:
        with self.assertRaises(pagewire.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertTrue(str(caught.exception))

    def test_a_process_that_is_killed_is_rebuilt(self) -> None:
        parity = self.keeper.parity(2, 8 * WORDS)
        command = [sys.executable, "-c", MEMBER, "1", parity.token(1).hex()]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(other.communicate)
        self.addCleanup(other.kill)
        assert other.stdin and other.stdout
        other.stdout.readline()
        member = self.node.join_parity(parity.token(0), 0)
        for number in (1, 2):
            self.table[:] = number
            other.stdin.write(f"{10 * number}\n")
            other.stdin.flush()
            self.assertEqual(other.stdout.readline(), f"{number}\n")
            self.assertEqual((member.save(self.table), member.wait(10), parity.round), (number, number, number))
        other.kill()
        other.wait()
        # A round that it has not saved.
        self.table[:] = 3
        self.assertEqual(member.save(self.table), 3)
        self.assertRaises(TimeoutError, member.wait, 0.05)
        again, rebuilt = self.node.rebuild_parity(parity.token(1), 1, [member.token()])
        self.assertEqual(rebuilt, pagewire.Rebuilt(2, 8 * WORDS))
        found = np.zeros(WORDS, np.uint64)
        self.assertEqual((again.restore(found), found.tolist()), (2, [20] * WORDS))
        self.assertEqual((member.restore(self.table), self.table.tolist()), (2, [2] * WORDS))
        # It saves what it went on to, and the other one puts once more what it had saved.
        found[:] = 30
        self.assertEqual((again.save(found), member.wait(10), again.wait(10)), (3, 3, 3))
        self.assertEqual((member.restore(self.table), self.table.tolist()), (3, [3] * WORDS))

    def test_several_arrays_and_tokens_make_a_checkpoint(self) -> None:
        with self.keeper.parity(1, 8 * WORDS + 100) as parity, self.node.join_parity(parity.token(0), 0) as member:
            token = self.node.export(self.table, read=True, write=True)
            more = np.arange(100, dtype=np.uint8)
            self.table[5] = 5
            self.assertEqual((member.save(token, more), member.wait()), (1, 1))
            self.table[5], more[7] = 0, 0
            self.assertEqual((member.restore(token, more), self.table[5], more[7]), (1, 5, 7))

    def test_a_wait_holds_no_lock_of_the_interpreter(self) -> None:
        with self.keeper.parity(2, 8) as parity:
            first, second = (self.node.join_parity(parity.token(at), at) for at in (0, 1))
            word = np.ones(1, np.uint64)
            first.save(word)
            waiting = threading.Thread(target=first.wait)
            waiting.start()
            time.sleep(0.05)
            second.save(word)
            waiting.join(10)
            self.assertFalse(waiting.is_alive())

    def test_misuse(self) -> None:
        self.refused(ErrorCode.ARGUMENT, lambda: self.keeper.parity(0, 8))
        self.assertRaises(ValueError, self.keeper.parity, -1, 8)
        parity = self.keeper.parity(2, 8 * WORDS)
        self.refused(ErrorCode.ARGUMENT, lambda: parity.token(2))
        own = self.node.export(self.table, read=True)
        self.refused(ErrorCode.TOKEN, lambda: self.node.join_parity(own, 0))
        self.refused(ErrorCode.ARGUMENT, lambda: self.node.join_parity(parity.token(0), 2))
        self.refused(ErrorCode.TOKEN, lambda: self.node.rebuild_parity(parity.token(0), 0, []))
        self.refused(ErrorCode.TOKEN, lambda: self.node.join_parity(parity.token(1), 0))
        member = self.node.join_parity(parity.token(0), 0)
        self.refused(ErrorCode.TOKEN, lambda: self.node.rebuild_parity(parity.token(0), 0, [member.token()]))
        self.refused(ErrorCode.PARITY, lambda: self.node.rebuild_parity(parity.token(1), 1, [member.token()]))
        self.refused(ErrorCode.PARITY, lambda: member.restore(self.table))
        self.refused(ErrorCode.ARGUMENT, member.save)
        self.assertRaises(TypeError, member.save, b"bytes")
        self.assertRaises(ValueError, member.save, np.zeros((10, 10))[:, 1])
        self.refused(ErrorCode.LIMIT, lambda: member.save(np.zeros(WORDS + 1, np.uint64)))
        member.save(self.table)
        self.refused(ErrorCode.PARITY, lambda: member.save(self.table))
        member.close()
        self.assertRaises(ValueError, member.wait)
        parity.close()
        self.assertRaises(ValueError, parity.token, 0)


if __name__ == "__main__":
    unittest.main()
