"""Distributed transactions on cells of several stores."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, TypeVar

from .._applications import ABSENT, _Application, _path
from .._errors import CLASSES, Error, check
from .._integers import count as _count
from .._integers import number, unsigned
from ._library import ffi, lib

if TYPE_CHECKING:
    from .._node import Node

T = TypeVar("T")


class ConflictError(Error):
    """Another transaction has won, and nothing of this one was done: start it again."""


CLASSES[lib.PW_CONFLICT] = ConflictError


class TransactionStoreToken(bytes):
    """What clients and other stores need to reach a store. It is plain bytes: send them by any means."""

    SIZE: int = lib.PW_TRANSACTION_STORE_TOKEN_SIZE

    def __new__(cls, data: bytes) -> TransactionStoreToken:
        if len(data) != cls.SIZE:
            raise ValueError(f"a token of a store has {cls.SIZE} bytes, and these are {len(data)}")
        return super().__new__(cls, data)

    def __repr__(self) -> str:
        return f"TransactionStoreToken({bytes(self[:16]).hex()}...)"


def _tokens(tokens: Iterable[bytes]) -> tuple[Any, int]:
    array = [{"bytes": TransactionStoreToken(token)} for token in tokens]
    return ffi.new("pw_transaction_store_token[]", array), len(array)


class Cell(NamedTuple):
    """A cell as a store or a transaction has it."""

    value: bytes
    #: How many transactions have written it. None: this transaction has put it, and the version is not known before the commit.
    version: int | None


def _cell_number(cell: int) -> int:
    return unsigned(cell, "a cell", bits=32)


class TransactionStore(_Application):
    """Cells of this process, which transactions of any process get and put. Their values have one length, and are zeros at first.

    All owners tell each other their tokens, in one order, and each calls serve().
    """

    _end = staticmethod(lib.pw_transaction_store_free)
    _what = "store"

    def __init__(self, node: Node, cells: int, value_bytes: int, journal: str | os.PathLike[str] | None = None) -> None:
        """Makes a store of cells, each of which has a value of `value_bytes` bytes: a multiple of 8, 4,096 at most. journal: the file in which what is committed
        survives the death of the process."""
        self._value_bytes = _count(value_bytes, "bytes")
        file = ffi.NULL if journal is None else ffi.from_buffer(_path(journal) + b"\0")
        numbers = {"cells": unsigned(cells, "a number of cells", bits=32), "value_bytes": self._value_bytes, "journal": file}
        place = ffi.new("pw_transaction_store **")
        check(lib.pw_transaction_store_make(node._open(), ffi.new("pw_transaction_store_options *", numbers), place))
        super().__init__(node, place[0])

    @property
    def token(self) -> TransactionStoreToken:
        """By which clients and other stores reach it."""
        place = ffi.new("pw_transaction_store_token *")
        self._call(lib.pw_transaction_store_export, place)
        return TransactionStoreToken(bytes(ffi.buffer(place)))

    def serve(self, position: int, tokens: Iterable[bytes]) -> None:
        """Takes up what the journal has, and starts the thread that handles accesses. tokens: of all stores, in the order that all have; this one is at
        `position`."""
        array, count = _tokens(tokens)
        self._call(lib.pw_transaction_store_serve, number(position, "a store"), array, count)

    def replace(self, position: int, token: bytes) -> None:
        """A store that was lost is back, at the position that it had, with another token."""
        self._call(lib.pw_transaction_store_replace, number(position, "a store"), _tokens([token])[0])

    def __getitem__(self, cell: int) -> Cell:
        """The committed value of a cell."""
        value, version = ffi.new("char[]", self._value_bytes), ffi.new("uint64_t *")
        self._call(lib.pw_transaction_store_cell, _cell_number(cell), value, self._value_bytes, version)
        return Cell(bytes(ffi.buffer(value)), int(version[0]))

    # Else Python would ask for the cells 0, 1, 2, ...
    __iter__ = None

    @property
    def held(self) -> int:
        """How many attempts of transactions hold cells now. Raises Error: the journal cannot be written, and the store commits nothing any more."""
        place = ffi.new("size_t *")
        self._call(lib.pw_transaction_store_check, place)
        return int(place[0])


class Transaction:
    """A transaction of a client. `with` commits it at the end, and gives it up behind an exception.

    Each call may raise ConflictError: another transaction has won, and nothing of this one is done.
    """

    def __init__(self, client: TransactionClient, again: bool) -> None:
        self._client = client
        #: commit() or abort() was called.
        self._is_ended = False
        with client._held():
            client._call(lib.pw_transaction_start, again)
            client._started = self

    def _call(self, function: Any, *arguments: Any) -> None:
        # Threads that share a client give up each other's transactions, and learn it here.
        with self._client._held():
            if self._client._started is not self:
                why = "has ended" if self._is_ended else "was given up, as its client has started another one"
                raise ValueError(f"the transaction {why}")
            self._client._call(function, *arguments)

    def get(self, store: int, cell: int) -> bytes:
        """Gets the value of a cell. Values may not belong together before the transaction learns of its conflict: it does not commit then."""
        return self.get_versioned(store, cell).value

    def get_versioned(self, store: int, cell: int) -> Cell:
        """get() with the version."""
        position, named = number(store, "a store"), _cell_number(cell)
        size = self._client._value_bytes[position] if position < len(self._client._value_bytes) else 0
        value, version = ffi.new("char[]", max(size, 1)), ffi.new("uint64_t *")
        self._call(lib.pw_transaction_get, position, named, value, size, version)
        return Cell(bytes(ffi.buffer(value, size)), None if version[0] == ABSENT else int(version[0]))

    def put(self, store: int, cell: int, value: Any) -> None:
        """Puts a value into a cell, when the transaction commits: as many bytes as the cells of the store have."""
        buffer = ffi.from_buffer(value)
        self._call(lib.pw_transaction_put, number(store, "a store"), _cell_number(cell), buffer, len(buffer))

    def commit(self) -> None:
        """Commits: when it returns, all is done, and every transaction that starts later sees it. The transaction has ended, whatever comes of it."""
        try:
            self._call(lib.pw_transaction_commit)
        finally:
            self._end()

    def abort(self) -> None:
        """Gives it up: nothing of it is done. Nothing happens if it has ended."""
        with self._client._held():
            if self._client._started is self:
                self._client._call(lib.pw_transaction_abort)
            self._end()

    def _end(self) -> None:
        self._is_ended = True
        with self._client._held():
            if self._client._started is self:
                self._client._started = None

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.abort()
        elif not self._is_ended:
            self.commit()


class TransactionClient(_Application):
    """Who makes transactions on the cells of stores, one at a time. A node has one client of a store: threads have a node each."""

    _end = staticmethod(lib.pw_transaction_client_close)
    _what = "client of stores"

    def __init__(self, node: Node, tokens: Iterable[bytes]) -> None:
        """Connects to stores, by the tokens of all of them in the order that all have."""
        array, count = _tokens(tokens)
        place = ffi.new("pw_transaction_client **")
        check(lib.pw_transaction_client_open(node._open(), array, count, place))
        self._started: Transaction | None = None
        self._lock = threading.RLock()
        super().__init__(node, place[0])
        self._value_bytes = [int(lib.pw_transaction_client_value_bytes(place[0], at)) for at in range(count)]

    def _held(self) -> threading.RLock:
        """The lock. A forked child does not wait for it, because a thread of the parent may have had it."""
        self._check_process()
        return self._lock

    def start(self, again: bool = False) -> Transaction:
        """Starts a transaction. One that was started and has not ended is given up. again=True: the last one is tried again, behind a pause of up to 3.2 ms,
        and keeps its age, by which it wins in the end."""
        return Transaction(self, again)

    def run(self, body: Callable[[Transaction], T]) -> T:
        """Makes a transaction, again and again until it has no conflict, and gives what `body` does. What that does besides gets and puts it may do several times. An
        exception gives the transaction up."""
        again = False
        while True:
            try:
                with self.start(again) as transaction:
                    value = body(transaction)
                return value
            except ConflictError:
                again = True
