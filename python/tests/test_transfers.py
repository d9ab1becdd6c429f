"""Pieces that go together, and files that are mapped."""

import os
import tempfile
import unittest

import numpy as np

import pagewire
from pagewire import ErrorCode, Node


class Pieces(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Node.alone()
        self.addCleanup(self.node.leave)
        self.table = self.node.zeros(64, np.int32)
        self.remote = self.node.open(self.node.export(self.table, read=True, write=True), np.int32)

    def test_pieces_go_to_their_places(self) -> None:
        self.remote.put_scattered([(0, 2), (-1, 1), (8, 3)], range(1, 7)).wait()
        self.assertEqual(list(self.table[:2]) + list(self.table[8:11]) + [self.table[63]], [1, 2, 4, 5, 6, 3])
        self.assertEqual(np.count_nonzero(self.table), 6)

    def test_pieces_come_together(self) -> None:
        self.table[:] = range(64)
        got = self.remote.get_scattered(((row * 8, 2) for row in range(3))).wait()
        self.assertEqual((list(got), got.dtype), ([0, 1, 8, 9, 16, 17], np.int32))

    def test_wrong_pieces_are_refused(self) -> None:
        for pieces, values, code in (
            ([(0, 2)], [1], ErrorCode.PIECES),
            ([(63, 2)], [1, 2], ErrorCode.BOUNDS),
        ):
            with self.assertRaises(pagewire.Error) as caught:
                self.remote.put_scattered(pieces, values).wait()
            self.assertEqual(caught.exception.code, code)
        self.assertRaises(pagewire.BoundsError, self.remote.get_scattered, [(-65, 1)])
        self.assertRaises(TypeError, self.remote.get_scattered, [1])
        self.assertFalse(self.table.any())


class MappedFiles(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Node.alone()
        self.addCleanup(self.node.leave)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "file")

    def test_peers_write_to_the_file(self) -> None:
        with self.node.map_file(self.path, writable=True, length=8192) as file:
            self.assertEqual(file.nbytes, 8192)
            remote = self.node.open(file.export(4096, read=True, write=True))
            self.assertEqual(len(remote), 4096)
            remote[4:8] = list(b"seen")
            file.sync()
            with open(self.path, "rb") as plain:
                self.assertEqual(plain.read()[4100:4104], b"seen")
        with self.assertRaises(pagewire.Error) as caught:
            remote[0]
        self.assertEqual(caught.exception.code, ErrorCode.KEY)
        self.assertRaises(ValueError, file.sync)

    def test_a_file_is_read_in_place(self) -> None:
        with open(self.path, "wb") as plain:
            plain.write(b"contents")
        file = self.node.map_file(self.path)
        remote = self.node.open(file.export(3, 4, read=True))
        self.assertEqual(bytes(remote[:]), b"tent")
        for call, code in (
            (lambda: file.export(write=True), ErrorCode.ENGINE),
            (lambda: file.export(4, 5, read=True), ErrorCode.BOUNDS),
            (lambda: self.node.map_file(self.path + ".none"), ErrorCode.SYSTEM),
        ):
            with self.assertRaises(pagewire.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, code)
        self.assertRaises(TypeError, self.node.map_file, self.path, length=8)
        # The node leaves, and closes it.
        self.node.leave()
        self.assertRaises(ValueError, lambda: file.nbytes)


if __name__ == "__main__":
    unittest.main()
