"""Calls in a random order with random arguments: each gives a result or an exception, and none ends the process.

PAGEWIRE_FUZZ_SEED is the seed, 1 by default; PAGEWIRE_FUZZ_SECONDS has it go on for so long.
"""

import faulthandler
import gc
import math
import os
import random
import tempfile
import time
import unittest
import warnings
from typing import Any, Callable

import numpy as np

import pagewire
from pagewire import ErrorCode, experimental

CALLS = 4000
# Memory behind and before what calls may write.
GUARD = 4096
TAGS = 6

# What Python itself raises for arguments that make no sense.
REFUSALS = (pagewire.Error, TypeError, ValueError, LookupError, OverflowError, MemoryError, BufferError, AttributeError)


class World:
    """The objects that calls are made with. Some of them are closed, cancelled or of the wrong kind."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = [pagewire.Node.alone(), pagewire.Node.alone()]
        # Peers may write the middle of it.
        self.arena = self.nodes[0].zeros(2 * GUARD + 1024, np.uint8)
        self.arena[:] = 0xEE
        self.table = self.arena[GUARD : GUARD + 1024].view(np.int64)
        self.tokens: list[Any] = [self.nodes[0].export(self.table, read=True, write=True, atomic=True)]
        self.remotes: list[Any] = [self.nodes[1].open(self.tokens[0], np.int64)]
        self.operations: list[Any] = []
        self.opened: list[Any] = []
        self.left: list[Any] = []
        self.servings: list[Any] = []
        self.logs: list[Any] = [self.served_log()]
        self.folder = tempfile.TemporaryDirectory()
        self.tables: list[Any] = [self.nodes[0].hash_table(20)]
        self.statistics: list[Any] = [self.nodes[0].access_statistics(self.tokens[0])]
        self.processes: list[Any] = [self.process(rank) for rank in (0, 1)]
        self.checkpoints: list[Any] = [self.nodes[0].checkpoint(self.path(), self.tokens[0], sync=False)]
        self.built_ins: list[Any] = [self.nodes[0].built_ins(self.tokens[0])]
        self.chains: list[Any] = [self.nodes[1].open_built_ins(self.built_ins[0].address)]
        self.served: list[Any] = [self.nodes[0].batches_to_memory(self.tokens[0])]
        self.batches: list[Any] = [self.nodes[1].open_batch(self.served[0].address)]
        self.durable = self.nodes[0].hash_table(20, durable=pagewire.Durable(self.folder.name + "/table", sync=False))
        self.ticket: Any = self.durable.ticket()
        # Flushes of others do not wait for what streams have not received, and clients and stores have not read.
        self.separate_nodes = [pagewire.Node.alone(), pagewire.Node.alone()]
        self.parity = self.nodes[0].parity(2, 8192)
        self.members: list[Any] = [self.nodes[1].join_parity(self.parity.token(0), 0)]
        self.listener = experimental.Listener(self.separate_nodes[0])
        self.streams: list[Any] = []
        self.store = experimental.TransactionStore(self.separate_nodes[0], 4, 16)
        self.store.serve(0, [self.store.token])
        self.client = experimental.TransactionClient(self.separate_nodes[1], [self.store.token])
        self.transactions: list[Any] = [self.client.start()]

    def path(self) -> Any:
        """Of a file of checkpoints."""
        return os.path.join(self.folder.name, self.random.choice("abc"))

    def served_log(self) -> Any:
        """Some thread reads it, so that no put waits for space for ever."""
        log = self.nodes[0].access_log(1 << 14)
        log.serve(lambda access: repr(access))
        return log

    def node(self) -> Any:
        return self.pick(self.left) if self.left and self.random.random() < 0.1 else self.pick(self.nodes)

    def pick(self, of: list[Any]) -> Any:
        return self.random.choice(of) if of else None

    def number(self) -> Any:
        draw = self.random
        return draw.choice(
            [
                draw.randrange(-2, 140),
                draw.randrange(-2, 140),
                draw.choice([0, -1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30]),
                draw.getrandbits(64),
                draw.choice([None, 1.5, math.nan, math.inf, "7", b"7", [], np.int64(3), np.array(3), True]),
            ]
        )

    def array(self) -> Any:
        draw = self.random
        kind = draw.choice([np.int64, np.float64, np.uint8, np.complex128, ">i8", "datetime64[s]"])
        values = np.zeros(draw.randrange(0, 140), kind)
        return draw.choice(
            [
                values,
                values,
                values[::2],
                values[::-1],
                np.zeros((3, 4), kind).T,
                np.zeros((2, 0), kind),
                self.table,
                np.array([object(), None]),
                np.array(["text"]),
                draw.choice([None, 7, "text", b"bytes", [1, 2], [[1], [2, 3]], {}, memoryview(b"bytes")]),
                read_only(values),
            ]
        )

    def token(self) -> Any:
        draw, token = self.random, self.pick(self.tokens)
        changed = bytearray(token)
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        return draw.choice([token, token, token, bytes(token), bytes(changed), token[:-1], b"", None, "token"])

    def peer(self) -> Any:
        peer = self.pick(self.nodes).identity
        return self.random.choice([peer, peer, peer, bytes(peer), peer[1:], b"", None, 7, self.token()])

    def seconds(self) -> Any:
        return self.random.choice([0, 0, 0.001, -1, -math.inf, math.nan, "1"])

    def index(self) -> Any:
        draw = self.random
        parts = [draw.choice([None, draw.randrange(-150, 150)]) for _ in range(3)]
        return draw.choice([self.number(), slice(*parts), slice(self.number(), self.number()), (1, 2), ...])

    def remote(self) -> Any:
        return self.pick(self.remotes)

    def keep(self, operation: Any) -> None:
        self.operations.append(operation)

    # Each is a call.

    def zeros(self) -> None:
        shape = self.random.choice([self.random.randrange(0, 200), -1, (3, 4), (), (2**40, 2**40), None, "1", 2.5])
        kind = self.random.choice([np.int64, np.float32, "i4", "S0", "O", "wrong", None, [("a", "i8")]])
        self.node().zeros(shape, kind)

    def export(self) -> None:
        flags = {name: self.random.choice([True, False, 1, 0]) for name in ("read", "write", "atomic")}
        array = self.array()
        if isinstance(array, np.ndarray) and not array.flags.owndata and array is not self.table:
            flags["write"] = flags["atomic"] = False
        self.tokens.append(self.node().export(array, **flags))

    def unexport(self) -> None:
        token = self.token()
        if token != self.tokens[0]:
            self.node().unexport(token)

    def open(self) -> None:
        kind = self.random.choice([np.int64, np.float64, np.uint8, "O", "S0", None, "wrong"])
        self.remotes.append(self.node().open(self.token(), kind))

    def close(self) -> None:
        if len(self.remotes) > 3:
            self.remote().close()

    def put(self) -> None:
        self.keep(self.remote().put(self.number(), self.array()))

    def get(self) -> None:
        count = self.number()
        # Not so much that this machine has no memory for it.
        if not isinstance(count, (int, float)) or abs(count) < 1 << 20 or abs(count) > 1 << 50:
            self.keep(self.remote().get(self.number(), count))

    def get_into(self) -> None:
        array = self.array()
        if array is not self.table:
            self.keep(self.remote().get_into(self.number(), array))

    def put_signal(self) -> None:
        changes = self.random.choice([{"add": self.number()}, {"set": self.number()}, {}, {"add": 1, "set": 2}])
        self.keep(self.remote().put_signal(self.number(), self.array(), self.number(), **changes))

    def atomic(self) -> None:
        remote, (one, other) = self.remote(), (self.number(), self.number())
        call = self.random.randrange(3)
        if call == 0:
            self.keep(remote.fetch_add(self.number(), one))
        elif call == 1:
            self.keep(remote.swap(self.number(), one))
        else:
            self.keep(remote.compare_swap(self.number(), one, other))

    def items(self) -> None:
        remote = self.remote()
        if self.random.random() < 0.5:
            remote[self.index()]
        else:
            remote[self.index()] = self.random.choice([self.array(), self.number()])

    def signal(self) -> None:
        self.node().signal(self.array(), self.number()).wait(self.number(), self.seconds())

    def conditional_write(self) -> None:
        held = self.node().conditional_write(self.peer(), self.random.choice([self.random.randrange(TAGS), self.number()]), self.array())
        self.keep(held.within(self.random.choice([0, 0.01, 0.1])))

    def release(self) -> None:
        self.keep(self.node().accept_conditional_write(self.peer(), self.random.randrange(TAGS), self.token()))

    def conditional_read(self) -> None:
        self.keep(self.node().conditional_read(self.peer(), self.random.randrange(TAGS), self.token()))

    def next_conditional_request(self) -> None:
        self.opened.append(self.node().next_conditional_request(self.seconds()))

    def answer(self) -> None:
        opened = self.pick(self.opened)
        call = self.random.randrange(3)
        if call == 0:
            self.keep(opened.accept(self.token()))
        elif call == 1:
            self.keep(opened.supply(self.array()))
        else:
            opened.decline()

    def operation(self) -> None:
        operation = self.pick(self.operations)
        call = self.random.randrange(4)
        if call == 0:
            operation.cancel()
        elif call == 1:
            operation.within(self.seconds())
        elif operation.done():
            operation.wait()

    def forget(self) -> None:
        for kept in (self.operations, self.opened):
            del kept[: len(kept) // 2]
        del self.tokens[4:], self.remotes[8:]
        if self.random.random() < 0.1:
            gc.collect()

    def flush(self) -> None:
        self.random.choice([self.node(), self.remote()]).flush()

    def job(self) -> None:
        node = self.node()
        node.barrier()
        node.all_gather(self.random.choice([b"", b"some bytes", self.token(), 7]))
        node.broadcast(self.random.choice([0, 0, 1, -1, None]), self.random.choice([b"bytes", b"", None]))

    def questions(self) -> None:
        node, remote = self.node(), self.remote()
        node.explain(self.token())
        node.peer(self.number())
        len(remote), repr(remote), remote.nbytes, node.rank, node.size, node.identity
        pagewire.is_registered(self.array())
        pagewire.heap_statistics()

    def attributes(self) -> None:
        draw = self.random
        page = self.nodes[0].attributes(self.token())[draw.choice([slice(None), slice(0, 1024), self.index()])]
        for _ in range(draw.randrange(3)):
            page = draw.choice([page.redirect_puts, page.log_puts, page.log_gets, page.log_put_data, page.log_get_data])()
        if draw.random() < 0.1:
            page = draw.choice([page.refuse_puts, page.refuse_gets])()
        draw.choice([page.set, page.set, page.to_fault_log, lambda: page.to(self.pick(self.logs)), lambda: page.to(None)])()

    def log(self) -> None:
        draw, log = self.random, self.pick(self.logs)
        call = draw.randrange(6)
        if call == 0:
            log.poll(draw.choice([repr, self.fails, None, 7]), draw.choice([None, 1, self.number()]))
        elif call == 1:
            options = {"threshold": draw.choice([1, 1, self.number()]), "interval": draw.choice([0.01, self.seconds()])}
            self.servings.append(log.serve(draw.choice([repr, self.fails, None]), **options))
            self.servings[:-4] = []
        elif call == 2:
            self.pick(self.servings).end()
        elif call == 3:
            log.domain, self.pick(self.servings).counts, self.node().take_faults()
        elif call == 4 and len(self.logs) < 3:
            self.logs.append(self.served_log())
        elif draw.random() < 0.2:
            self.logs.pop().close()
            self.logs.append(self.served_log())
        else:
            self.node().access_log(self.number(), sources=self.number()).close()

    def fails(self, access: Any) -> None:
        raise SystemExit(repr(access))  # threading.excepthook says nothing of it

    def flush_handled(self) -> None:
        self.remote().flush_handled(self.random.choice([None, None, self.number()])).wait()

    def process(self, rank: Any) -> Any:
        return self.nodes[0].logged_process(os.path.join(self.folder.name, f"process-{rank}"), rank, 2, 1000, sync=False)

    def logged_process(self) -> None:
        draw, process = self.random, self.pick(self.processes)
        rank = draw.choice([0, 1, self.number()])
        call = draw.randrange(7)
        if call == 0:
            process.close()
            self.processes[:-1] = []
            self.processes.append(self.process(rank))
        elif call == 1:
            process.connect(draw.choice([self.pick(self.processes).ticket(rank)] * 3 + [b"", None, bytes(pagewire.Ticket.SIZE)]))
        elif call == 2:
            process.put(rank, draw.choice([0, 64, self.number()]), self.value())
        elif call == 3:
            process.get(rank, draw.choice([0, 64, self.number()]), draw.randrange(100))
        elif call == 4:
            process.memory(draw.choice([np.uint8, np.int64, "O", "S0", None, [("a", "i8")]]))[:3] = 1
        elif call == 5:
            process.next_epoch(), process.checkpoint(self.value())
        else:
            process.note, process.is_replaying, process.replay()

    def value(self) -> Any:
        draw = self.random
        return draw.choice([b"", bytes(draw.randrange(3000)), bytearray(b"bytes"), self.array(), None, "text", 7])

    def hash_table(self) -> None:
        draw, table, key = self.random, self.pick(self.tables), self.random.choice([self.number(), self.random.randrange(1, 60)])
        call = draw.randrange(8)
        if call == 0:
            cells = draw.choice([0, -1, 1, 100, None, "7", 2**63, 10**30])
            self.tables.append(self.node().hash_table(cells, spare=draw.choice([0, 9, -1]), scheme=draw.choice([0, 1, 2, 3])))
            self.tables[:-3] = []
        elif call == 1:
            table.insert(key, self.value())
        elif call == 2:
            table.insert_batch(draw.choice([{key: self.value()}, [(key, b"bytes")] * 5, [key], None, [(key, self.value())] * 3]))
        elif call == 3:
            table.lookup(key), key in table, table[key]
        elif call == 4:
            table.delete(key)
        elif call == 5:
            table.flush(), table.volume()
        elif call == 6:
            table.resize(draw.choice([0, 1, 500, -1, None, 2**62]))
        elif draw.random() < 0.1:
            table.close()

    def count(self) -> None:
        draw, statistics = self.random, self.pick(self.statistics)
        call = draw.randrange(5)
        if call == 0:
            statistics.close()
            self.statistics[:-1] = []
            options = {name: draw.random() < 0.8 for name in ("puts", "gets")}
            self.statistics.append(self.node().access_statistics(self.token(), **options))
        elif call == 1:
            statistics.total(), statistics.page(self.number())
        elif call == 2:
            statistics.hottest(self.number()), statistics.sources()
        elif call == 3:
            statistics.reset()
        else:
            self.nodes[1].open(statistics.export(), pagewire.ACCESS_COUNTS)[self.index()]

    def checkpoint(self) -> None:
        draw, checkpoint = self.random, self.pick(self.checkpoints)
        call = draw.randrange(6)
        if call == 0:
            checkpoint.close()
            memories = [draw.choice([self.token(), self.array()]) for _ in range(draw.randrange(3))]
            path = draw.choice([self.path(), self.path(), "/nowhere/at/all", None, "a\0b"])
            self.checkpoints[:-2] = []
            self.checkpoints.append(self.node().checkpoint(path, *memories, sync=False))
        elif call == 1:
            checkpoint.save(draw.choice([b"", b"a note", self.value()]))
        elif call == 2:
            checkpoint.save_together(draw.choice([[], [self.remote()], [None], 7]), b"a note")
        elif call == 3:
            checkpoint.restore(draw.choice([None, 1, self.number()]))
        elif call == 4:
            checkpoint.restore_together()
        else:
            checkpoint.numbers, checkpoint.local_writes

    def place(self) -> Any:
        draw = self.random
        offset = draw.choice([draw.randrange(1040), 8 * draw.randrange(130), self.number()])
        if draw.random() < 0.7:
            return offset
        return draw.choice([pagewire.Place.behind, pagewire.Place.found])(draw.choice([0, 1, offset]), draw.choice([0, 8, offset]))

    def chain(self) -> None:
        draw = self.random
        chain = pagewire.Chain()
        for _ in range(draw.randrange(5)):
            if draw.random() < 0.2:
                chain.if_swapped()
            step = draw.randrange(6)
            if step == 0:
                chain.fetch_add(self.place(), draw.choice([1, -1, self.number()]))
            elif step == 1:
                length = draw.randrange(40)
                chain.compare_swap(self.place(), bytes(length), draw.choice([bytes(length), self.value()]), compared=draw.choice([None, bytes(length), b"1"]))
            elif step == 2:
                chain.read(self.place(), draw.choice([draw.randrange(300), self.number()]))
            elif step == 3:
                chain.write(self.place(), self.value())
            elif step == 4:
                chain.xor(self.place(), self.value())
            else:
                chain.append(self.place(), self.value())
        self.pick(self.chains).run(chain)

    def built_ins_of(self) -> None:
        draw, call = self.random, self.random.randrange(3)
        if call == 0:
            self.pick(self.built_ins).close()
            self.built_ins[:-1] = []
            memory = draw.choice([self.tokens[0], self.token(), self.array()])
            self.built_ins.append(self.node().built_ins(memory))
        elif call == 1:
            self.pick(self.chains).close()
            address = self.pick(self.built_ins).address
            self.chains[:-2] = []
            self.chains.append(self.node().open_built_ins(draw.choice([address, address, address[1:], bytes(address), None, self.token()])))
        else:
            self.pick(self.built_ins).begin_area(self.number(), self.number(), self.number())

    def handle_put(self, put: Any) -> None:
        repr(put), put.value(np.int64), put.array(np.uint8)
        put.write()

    def batched(self) -> None:
        draw, batch, call = self.random, self.pick(self.batches), self.random.randrange(12)
        if call == 0:
            self.pick(self.served).close()
            self.served[:-1] = []
            if draw.random() < 0.5:
                self.served.append(self.node().redirect_batches(self.token(), draw.choice([self.handle_put, self.handle_put, None, 7])))
            else:
                self.served.append(self.node().batches_to_memory(draw.choice([self.tokens[0], self.token(), self.array()])))
        elif call == 1:
            batch.close()
            address = self.pick(self.served).address
            self.batches[:-2] = []
            self.batches.append(self.node().open_batch(draw.choice([address, address, address[1:], bytes(address), None])))
        elif call == 2:
            batch.send(), batch.wait(), self.pick(self.served).counts
        elif call == 3:
            batch.flush_handled()
        else:
            batch.put(draw.choice([draw.randrange(1040), self.number()]), draw.choice([self.value(), self.array()]))
            batch.unsent, len(batch)

    def durable_table(self) -> None:
        draw, call = self.random, self.random.randrange(5)
        if call == 0:
            # It waits for the end of the one that has the folder.
            self.durable.close()
            durable = pagewire.Durable(draw.choice([self.folder.name + "/table", "/proc/none", None, "a\0b"]), draw.choice([0, -1, 1 << 16]), draw.choice([False, False, 0]))
            ticket = self.ticket
            tickets = draw.choice([[ticket], [ticket, ticket], [], [ticket[1:]], None])
            rank = draw.choice([0, 0, 1, self.number()])
            make = draw.choice([lambda: self.node().hash_table(20, durable=durable), lambda: self.node().restart_hash_table(20, durable, rank, tickets)])
            self.durable = make()
        elif call == 1:
            self.ticket = draw.choice([self.durable, self.pick(self.tables)]).ticket()
        elif call == 2:
            draw.choice([self.durable, self.durable, self.pick(self.tables)]).checkpoint()
        elif call == 3:
            self.durable.readmit(draw.choice([0, 1, self.number()]), draw.choice([self.ticket, self.ticket[1:], None]))
        else:
            self.durable[draw.randrange(60)] = self.value()
            self.durable.flush(), self.durable.volume()

    def parities(self) -> None:
        draw, member, call = self.random, self.pick(self.members), self.random.randrange(8)
        memory = draw.choice([self.tokens[0], self.token(), self.array(), self.array()])
        if call == 0:
            member.close()
            self.members[:-1] = []
            token = draw.choice([self.parity.token(0), self.parity.token(1), self.token(), self.parity.token(0)[1:]])
            other = draw.choice([member, self.pick(self.members)])
            others = draw.choice([[], [self.token()], [other.token()], None])
            make = draw.choice([lambda of: self.node().join_parity(token, of), lambda of: self.node().rebuild_parity(token, of, others)[0]])
            self.members.append(make(draw.choice([0, 0, 1, self.number()])))
        elif call == 1:
            self.parity.token(self.number()), self.parity.round, member.token()
        elif call == 2:
            member.restore(memory)
        elif call == 3:
            member.wait(draw.choice([0, 0.001, -1, "1"]))
        elif call == 4:
            self.node().parity(draw.choice([0, -1, 1.5, 1 << 40]), self.number())
        else:
            member.save(*draw.choice([(memory,), (memory, self.array()), ()]))

    def stream(self) -> None:
        draw, stream, call = self.random, self.pick(self.streams), self.random.randrange(8)
        brief = draw.choice([0, 0.0005, -1, "1"])
        if call == 0:
            self.streams[:-2] = []
            self.streams.append(self.listener.accept(brief))
        elif call == 1:
            token = draw.choice([self.listener.token, self.listener.token, self.token()])
            self.streams.append(experimental.Stream.connect(self.pick(self.separate_nodes), token, draw.choice([8192, 8192, self.number()]), brief))
        elif call == 2:
            stream.flush(brief)
        elif call == 3:
            draw.choice([stream.shutdown, stream.flush])(brief)
        elif call == 4:
            stream.receive(draw.choice([10, 0, self.number()]) if draw.random() < 0.9 else None, brief)
        elif call == 5:
            stream.receive_into(draw.choice([bytearray(9), b"bytes", self.array()]), brief)
        elif call == 6 and draw.random() < 0.2:
            stream.close()
        else:
            stream.send(draw.choice([self.value(), self.array()]), brief)

    def transaction(self) -> None:
        draw, transaction, call = self.random, self.pick(self.transactions), self.random.randrange(8)
        store, cell = draw.choice([0, 0, 0, self.number()]), draw.choice([1, 2, 3, self.number()])
        if call < 2:
            self.transactions[:-2] = []
            self.transactions.append(self.client.start(draw.choice([False, True])))
        elif call == 2:
            transaction.abort()
        elif call == 3:
            transaction.commit()
        elif call == 4:
            transaction.get(store, cell)
        elif call == 5:
            self.store[cell], self.store.held, self.store.token
        elif call == 6:
            bad = draw.choice([b"", None, self.token(), bytes(pagewire.TransactionStoreToken.SIZE)])
            draw.choice([lambda: experimental.TransactionClient(self.pick(self.separate_nodes), [bad]), lambda: self.store.replace(0, bad), lambda: self.store.serve(0, [bad])])()
        else:
            transaction.put(store, cell, draw.choice([bytes(16), bytes(16), self.value(), self.array()]))

    def leave(self) -> None:
        if self.random.random() < 0.05:
            node = pagewire.Node.alone()
            node.leave()
            self.left = [node]


def read_only(values: Any) -> Any:
    values.flags.writeable = False
    return values


STEPS: list[Callable[[World], None]] = [
    *[World.put, World.get, World.get_into, World.put_signal, World.atomic, World.items] * 3,
    *[World.conditional_write, World.release, World.conditional_read, World.next_conditional_request, World.answer, World.operation] * 2,
    *[World.zeros, World.export, World.unexport, World.open, World.close, World.signal, World.forget],
    *[World.flush, World.job, World.questions, World.leave],
    *[World.attributes, World.log, World.log, World.flush_handled],
    *[World.hash_table, World.hash_table, World.count, World.checkpoint, World.logged_process],
    *[World.chain, World.built_ins_of, World.batched, World.batched, World.durable_table],
    *[World.parities, World.stream, World.transaction],
]


class Misuse(unittest.TestCase):
    def test_random_calls_are_answered_or_refused(self) -> None:
        seed = int(os.environ.get("PAGEWIRE_FUZZ_SEED", "1"))
        seconds = float(os.environ.get("PAGEWIRE_FUZZ_SECONDS", "0"))
        # Complex numbers are cut, says numpy.
        warnings.simplefilter("ignore")
        # A crash says where, and a call that does not return is one.
        faulthandler.dump_traceback_later(120 + seconds, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        world, end, calls, refused = World(seed), time.monotonic() + seconds, 0, 0
        while calls < CALLS or time.monotonic() < end:
            step = world.random.choice(STEPS)
            calls += 1
            try:
                step(world)
            except REFUSALS as refusal:
                refused += 1
                code = getattr(refusal, "code", None)
                self.assertNotIn(code, (ErrorCode.DEFECT,), f"seed {seed}, call {calls}, {step.__name__}: {refusal}")
            if calls % 256 == 0:
                self.check_guards(world, f"seed {seed}, call {calls}")
        self.check_guards(world, f"seed {seed}")
        self.assertTrue(calls // 10 < refused < calls, f"seed {seed}: {refused} of {calls} refused")

    def check_guards(self, world: World, where: str) -> None:
        guards = np.concatenate([world.arena[:GUARD], world.arena[-GUARD:]])
        self.assertTrue((guards == 0xEE).all(), f"{where}: memory beside what was exported was written")
