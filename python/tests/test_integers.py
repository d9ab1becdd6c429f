"""Integers that do not fit: each call that takes one raises OverflowError, and nothing was done."""

import inspect
import re
import tempfile
import threading
import unittest
from typing import Any, Callable

import numpy as np

import pagewire
from pagewire import Chain, Node, Place, experimental

TOO_LONG = [2**64, 2**70, -(2**63) - 1, 10**30]
Call = Callable[[Any], Any]


class Integers(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.node = Node.alone()
        self.addCleanup(self.node.leave)
        self.table = self.node.zeros(1024, np.uint64)
        self.token = self.node.export(self.table, read=True, write=True, atomic=True)
        self.remote = self.node.open(self.token, np.uint64)
        self.signed = self.node.open(self.token, np.int64)
        self.peer = self.node.identity

    def path(self) -> str:
        return self.folder.name + "/file"

    def unsigned(self) -> dict[str, Call]:
        """By the name of the argument: a call with it, which a negative integer does not fit either."""
        node, remote, path = self.node, self.remote, self.path()
        durable = pagewire.Durable(path + ".table", sync=False)
        calls: dict[str, Call] = {
            "Node.broadcast.root": lambda n: node.broadcast(n, b"x"),
            "Node.zeros.shape": lambda n: node.zeros(n),
            "Node.access_log.size": lambda n: node.access_log(n),
            "Node.access_log.sources": lambda n: node.access_log(1 << 14, sources=n),
            "Node.hash_table.cells": lambda n: node.hash_table(n),
            "Node.hash_table.spare": lambda n: node.hash_table(10, spare=n),
            "Node.hash_table.value_bytes": lambda n: node.hash_table(10, value_bytes=n),
            "Node.restart_hash_table.cells": lambda n: node.restart_hash_table(n, durable, 0, []),
            "Node.restart_hash_table.rank": lambda n: node.restart_hash_table(10, durable, n, []),
            "Node.restart_hash_table.spare": lambda n: node.restart_hash_table(10, durable, 0, [], spare=n),
            "Node.restart_hash_table.value_bytes": lambda n: node.restart_hash_table(10, durable, 0, [], value_bytes=n),
            "Durable.log_bytes": lambda n: node.hash_table(10, durable=pagewire.Durable(path + ".table", log_bytes=n)),
            "Node.logged_process.rank": lambda n: node.logged_process(path, n, 2, 4096),
            "Node.logged_process.count": lambda n: node.logged_process(path, 0, n, 4096),
            "Node.logged_process.size": lambda n: node.logged_process(path, 0, 2, n),
            "Node.logged_process.log_bytes": lambda n: node.logged_process(path, 0, 2, 4096, log_bytes=n),
            "Node.parity.members": lambda n: node.parity(n, 4096),
            "Node.parity.size": lambda n: node.parity(2, n),
            "Node.join_parity.member": lambda n: node.join_parity(self.token, n),
            "Node.rebuild_parity.member": lambda n: node.rebuild_parity(self.token, n, []),
            "GlobalMemory.pages_each": lambda n: experimental.GlobalMemory(node, n),
            "Listener.buffer": lambda n: experimental.Listener(node, n),
            "sort.rank": lambda n: experimental.sort(node, path + ".sort", n, 2, np.zeros(1, np.uint64), 0.1),
            "sort.size": lambda n: experimental.sort(node, path + ".sort", 0, n, np.zeros(1, np.uint64), 0.1),
            "Stream.connect.buffer": lambda n: experimental.Stream.connect(node, self.token, n, 0.1),
            "TransactionStore.cells": lambda n: experimental.TransactionStore(node, n, 8),
            "TransactionStore.value_bytes": lambda n: experimental.TransactionStore(node, 4, n),
            "Node.peer.rank": lambda n: node.peer(n),
            "Node.conditional_write.tag": lambda n: node.conditional_write(self.peer, n, [1]),
            "Node.accept_conditional_write.tag": lambda n: node.accept_conditional_write(None, n, self.token),
            "Node.conditional_read.tag": lambda n: node.conditional_read(self.peer, n, self.token),
            "Node.map_file.length": lambda n: node.map_file(path + ".mapped", writable=True, length=n),
            "Node.source.number": lambda n: node.source(n),
            "Node.split.colour": lambda n: node.split(n),
            "Signal.wait.at_least": lambda n: node.signal(self.table).wait(n, 0),
            "Signal.wait.equal": lambda n: node.signal(self.table).wait(timeout=0, equal=n),
            "Signal.wait.not_equal": lambda n: node.signal(self.table).wait(timeout=0, not_equal=n),
            "Signal.wait.greater": lambda n: node.signal(self.table).wait(timeout=0, greater=n),
            "Signal.wait.less": lambda n: node.signal(self.table).wait(timeout=0, less=n),
            "Signal.wait.at_most": lambda n: node.signal(self.table).wait(timeout=0, at_most=n),
            "Signal.wish.at_least": lambda n: node.signal(self.table).wish(n),
            "Signal.wish.equal": lambda n: node.signal(self.table).wish(equal=n),
            "Signal.wish.not_equal": lambda n: node.signal(self.table).wish(not_equal=n),
            "Signal.wish.greater": lambda n: node.signal(self.table).wish(greater=n),
            "Signal.wish.less": lambda n: node.signal(self.table).wish(less=n),
            "Signal.wish.at_most": lambda n: node.signal(self.table).wish(at_most=n),
            "Remote.get.count": lambda n: remote.get(0, n),
            "Remote.put_signal.offset": lambda n: remote.put_signal(0, [1], n, add=1),
            "Remote.put_scattered.pieces": lambda n: remote.put_scattered([(0, n)], [1]),
            "Remote.get_scattered.pieces": lambda n: remote.get_scattered([(0, n)]),
            "Remote.fetch_add.add": lambda n: remote.fetch_add(0, n),
            "Remote.compare_swap.compare": lambda n: remote.compare_swap(0, n, 1),
            "Remote.compare_swap.swap": lambda n: remote.compare_swap(0, 1, n),
            "Remote.swap.swap": lambda n: remote.swap(0, n),
            "Remote.fetch_and.bits": lambda n: remote.fetch_and(0, n),
            "Remote.fetch_or.bits": lambda n: remote.fetch_or(0, n),
            "Remote.fetch_xor.bits": lambda n: remote.fetch_xor(0, n),
            "Remote.fetch_min.value": lambda n: remote.fetch_min(0, n),
            "Remote.fetch_max.value": lambda n: remote.fetch_max(0, n),
            "Remote.flush_handled.domain": lambda n: remote.flush_handled(n),
            "Chain.read.size": lambda n: Chain().read(0, n),
            "Chain.append.area": lambda n: Chain().append(n, b"x"),
            "Place.behind.pointer": lambda n: Place.behind(n),
            "Place.behind.by": lambda n: Place.behind(0, n),
            "Place.found.step": lambda n: Place.found(n),
            "Place.found.by": lambda n: Place.found(0, n),
            "retain_heap.size": lambda n: pagewire.retain_heap(n),
        }
        return {**calls, **self.unsigned_of_objects()}

    def unsigned_of_objects(self) -> dict[str, Call]:
        node, path = self.node, self.path()
        log = node.access_log(1 << 14)
        table = node.hash_table(10)
        statistics = node.access_statistics(self.token)
        checkpoint = node.checkpoint(path + ".checkpoint", self.table, sync=False)
        process = node.logged_process(path + ".process", 0, 2, 4096)
        memory = node.zeros(64, np.uint64)
        built_ins = node.built_ins(memory)
        served = node.batches_to_memory(node.zeros(64, np.uint64))
        batch = node.open_batch(served.address)
        parity = node.parity(2, 4096)
        store = experimental.TransactionStore(node, 4, 8)
        store.serve(0, [store.token])
        client = experimental.TransactionClient(node, [store.token])
        file = node.map_file(path + ".mapped", writable=True, length=4096)
        part = node.split(0)
        # It asks the kernel for nothing before it looks at the integer.
        memory_of_all = object.__new__(experimental.GlobalMemory)
        listener = experimental.Listener(node)
        other = Node.alone()
        self.addCleanup(other.leave)
        stream = self.stream(other, listener)
        calls: dict[str, Call] = {
            "AccessLog.poll.most": lambda n: log.poll(print, n),
            "AccessLog.serve.threshold": lambda n: log.serve(print, threshold=n),
            "HashTable.insert.key": lambda n: table.insert(n, b""),
            "HashTable.insert_batch.elements": lambda n: table.insert_batch({n: b""}),
            "HashTable.lookup.key": table.lookup,
            "HashTable.delete.key": table.delete,
            "HashTable.compare_and_set.key": lambda n: table.compare_and_set(n, None, b""),
            "HashTable.resize.cells": table.resize,
            "HashTable.readmit.rank": lambda n: table.readmit(n, bytes(pagewire.VolumeTicket.SIZE)),
            "AccessStatistics.page.page": statistics.page,
            "AccessStatistics.hottest.most": statistics.hottest,
            "Checkpoint.restore.number": checkpoint.restore,
            "LoggedProcess.ticket.peer": process.ticket,
            "LoggedProcess.put.peer": lambda n: process.put(n, 0, b"x"),
            "LoggedProcess.put.offset": lambda n: process.put(1, n, b"x"),
            "LoggedProcess.get.peer": lambda n: process.get(n, 0, 1),
            "LoggedProcess.get.offset": lambda n: process.get(1, n, 1),
            "LoggedProcess.get.size": lambda n: process.get(1, 0, n),
            "BuiltIns.begin_area.area": lambda n: built_ins.begin_area(n, 64, 128),
            "BuiltIns.begin_area.first": lambda n: built_ins.begin_area(0, n, 128),
            "BuiltIns.begin_area.end": lambda n: built_ins.begin_area(0, 64, n),
            "GlobalMemory.home.rank": memory_of_all.home,
            "Batch.put.offset": lambda n: batch.put(n, b"x"),
            "Parity.token.member": parity.token,
            "TransactionStore.serve.position": lambda n: store.serve(n, [store.token]),
            "TransactionStore.replace.position": lambda n: store.replace(n, store.token),
            "Transaction.get.store": lambda n: client.start().get(n, 0),
            "Transaction.get.cell": lambda n: client.start().get(0, n),
            "Transaction.get_versioned.store": lambda n: client.start().get_versioned(n, 0),
            "Transaction.get_versioned.cell": lambda n: client.start().get_versioned(0, n),
            "Transaction.put.store": lambda n: client.start().put(n, 0, bytes(8)),
            "Transaction.put.cell": lambda n: client.start().put(0, n, bytes(8)),
            "Part.job_rank.rank": part.job_rank,
            "Part.broadcast.root": lambda n: part.broadcast(n, b"x"),
            "Part.split.colour": lambda n: part.split(n),
            "MappedFile.export.offset": lambda n: file.export(n, read=True),
            "MappedFile.export.length": lambda n: file.export(0, n, read=True),
            "Stream.receive.size": lambda n: stream.receive(n, 0),
        }
        return calls

    def stream(self, other: Node, listener: Any) -> Any:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(experimental.Stream.connect(other, listener.token)))
        thread.start()
        listener.accept(60)
        thread.join(60)
        return made[0]

    #: They take negative ones, too.
    def with_sign(self) -> dict[str, Call]:
        remote, signed = self.remote, self.signed
        part = self.node.split(0)
        return {
            "Node.split.key": lambda n: self.node.split(0, n),
            "Part.split.key": lambda n: part.split(0, n),
            "Node.signal.index": lambda n: self.node.signal(self.table, n),
            "Remote.put.index": lambda n: remote.put(n, [1]),
            "Remote.get.index": lambda n: remote.get(n, 1),
            "Remote.get_into.index": lambda n: remote.get_into(n, np.zeros(1, np.uint64)),
            "Remote.put_signal.index": lambda n: remote.put_signal(n, [1], 0, add=1),
            "Remote.fetch_add.index": lambda n: remote.fetch_add(n, 1),
            "Remote.compare_swap.index": lambda n: remote.compare_swap(n, 1, 1),
            "Remote.swap.index": lambda n: remote.swap(n, 1),
            "Remote.fetch_and.index": lambda n: remote.fetch_and(n, 1),
            "Remote.fetch_or.index": lambda n: remote.fetch_or(n, 1),
            "Remote.fetch_xor.index": lambda n: remote.fetch_xor(n, 1),
            "Remote.fetch_min.index": lambda n: remote.fetch_min(n, 1),
            "Remote.fetch_max.index": lambda n: remote.fetch_max(n, 1),
            "Remote.put_signal.add": lambda n: remote.put_signal(0, [1], 8, add=n),
            "Remote.put_signal.set": lambda n: remote.put_signal(0, [1], 8, set=n),
            "Chain.fetch_add.add": lambda n: Chain().fetch_add(0, n),
            "of int64: fetch_add": lambda n: signed.fetch_add(0, n),
            "of int64: compare": lambda n: signed.compare_swap(0, n, 1),
            "of int64: swap": lambda n: signed.swap(0, n),
            "of int64: fetch_and": lambda n: signed.fetch_and(0, n),
            "of int64: fetch_or": lambda n: signed.fetch_or(0, n),
            "of int64: fetch_xor": lambda n: signed.fetch_xor(0, n),
            "of int64: fetch_min": lambda n: signed.fetch_min(0, n),
            "of int64: fetch_max": lambda n: signed.fetch_max(0, n),
            "remote[n]": lambda n: remote[n],
            "remote[n] = ": lambda n: remote.__setitem__(n, 1),
        }

    def test_integers_that_do_not_fit_are_refused(self) -> None:
        for name, call in self.unsigned().items():
            for number in [*TOO_LONG, -1, np.int64(-1)]:
                with self.subTest(name, number=number), self.assertRaises(OverflowError):
                    call(number)
        for name, call in self.with_sign().items():
            for number in TOO_LONG:
                with self.subTest(name, number=number), self.assertRaises(OverflowError):
                    call(number)
        self.assertFalse(self.table.any())

    def test_integers_that_fit_are_taken(self) -> None:
        self.assertEqual(self.remote.fetch_add(0, 2**64 - 1).wait(), 0)
        self.assertEqual(self.signed.fetch_add(0, -1).wait(), -1)
        self.assertEqual(self.signed.swap(0, -(2**63)).wait(), -2)
        self.assertEqual(self.remote.compare_swap(0, 2**63, 0).wait(), 2**63)
        self.remote.put_signal(1, [5], 0, add=-1).wait()
        self.assertEqual(self.node.split(0, -(2**63)).split(2**64 - 2, -1).size, 1)
        self.assertRaises(OverflowError, self.node.split, 2**64 - 1)
        self.assertEqual(list(self.table[:2]), [2**64 - 1, 5])
        with self.assertRaises(OverflowError):
            self.signed.swap(0, 2**63)
        # They fit into 64 bits, and no memory has so many elements.
        for index in (2**61, 2**63 - 1, -(2**63)):
            self.assertRaises(pagewire.BoundsError, lambda: self.remote.get(index, 1).wait())
        for wrong in (1.5, "1", None):
            self.assertRaises(TypeError, self.remote.fetch_add, 0, wrong)
            self.assertRaises(TypeError, self.node.peer, wrong)

    def test_sentences_have_the_names_of_python(self) -> None:
        durable = pagewire.Durable(self.path(), sync=False)
        sentences: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
            "domain 1024: the logs of a process have domains from 0 to 1023": (pagewire.Error, lambda: self.remote.flush_handled(1024)),
            "0 cells: the volume of a process has 1 or more": (pagewire.Error, lambda: self.node.hash_table(0)),
            f"{2**64} for a colour: an integer from 0 to {2**64 - 2} is needed": (OverflowError, lambda: self.node.split(2**64)),
            f"{2**64} for a rank: an integer from 0 to {2**64 - 2} is needed": (OverflowError, lambda: self.node.peer(2**64)),
            "a colour is an integer, not 'red'": (TypeError, lambda: self.node.split("red")),  # type: ignore[arg-type]
        }
        for sentence, (kind, call) in sentences.items():
            with self.subTest(sentence), self.assertRaises(kind) as caught:
                call()
            self.assertEqual(str(caught.exception), sentence)
            if isinstance(caught.exception, pagewire.Error):
                self.assertEqual(caught.exception.code, pagewire.ErrorCode.ARGUMENT)
        self.assertRaises(pagewire.Error, self.node.restart_hash_table, 0, durable, 0, [])
        self.remote.flush_handled(1023).wait()

    def test_every_argument_is_tried(self) -> None:
        """Of each public call, those that are annotated as integers."""
        tried = set(self.unsigned()) | set(self.with_sign())
        # They are no integer, or their calls hold them already.
        aliases = {
            "Chain.": "at is tried by Place and read",
            "HashTable.__": "insert, lookup and delete",
            "TransactionStore.__getitem__": "Transaction.get.cell",
            "Remote.__": "remote[n]",
            "Signal.reaches": "Signal.wait",
        }
        results = {"Place", "Remote.put_signal.values"}
        missing = []
        public = {name: getattr(package, name) for package in (pagewire, experimental) for name in package.__all__}
        for name, made in public.items():
            functions = {name: made} if inspect.isfunction(made) else {}
            if inspect.isclass(made) and not issubclass(made, (tuple, Exception, int)):
                functions = {
                    f"{name}.{of}": inspect.unwrap(getattr(made, of))
                    for of, value in vars(made).items()
                    if callable(getattr(made, of)) and (not of.startswith("_") or of in ("__getitem__", "__setitem__"))
                }
            for called, function in functions.items():
                for argument, parameter in inspect.signature(function).parameters.items():
                    annotation = str(parameter.annotation)
                    if not re.search(r"\bint\b", annotation) or "Callable" in annotation:
                        continue
                    whole = f"{called}.{argument}"
                    if whole not in tried and not any(whole.startswith(alias) for alias in aliases) and called not in results:
                        missing.append(whole)
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
