"""Experimental applications: global memory, a sort, streams and transactions. Names, promises and formats may change with any release.

Each object is made from a node, and closed before it leaves::

    from pagewire import Node, experimental

    node = Node.from_env()
    listener = experimental.Listener(node)
    stream = experimental.Stream.connect(node, token)
"""

from ._global_memory import GlobalCounts, GlobalMemory
from ._sort import Sorted, sort
from ._stream import Listener, Stream
from ._transactions import Cell, ConflictError, Transaction, TransactionClient, TransactionStore, TransactionStoreToken

__all__ = [
    "Cell",
    "ConflictError",
    "GlobalCounts",
    "GlobalMemory",
    "Listener",
    "Sorted",
    "Stream",
    "Transaction",
    "TransactionClient",
    "TransactionStore",
    "TransactionStoreToken",
    "sort",
]
