from ._access import Access, AccessKind, AccessLog, Attributes, Counts, Faults, Pages, Serving
from ._applications import (
    ACCESS_COUNTS,
    AccessCounts,
    AccessStatistics,
    Checkpoint,
    Durable,
    HashTable,
    LocalWrites,
    LoggedProcess,
    Restored,
    Saved,
    Scheme,
    Ticket,
    Volume,
    VolumeTicket,
)
from ._batch import Batch, BatchAddress, BatchCounts, BatchedPut, Batches
from ._built_in import BuiltIns, Chain, ChainAddress, Outcome, Place, RemoteBuiltIns
from ._conditional import HeldWrite, ConditionalRequest, Peer
from ._errors import BoundsError, Error, ErrorCode, PeerLostError, TimeoutError
from ._library import library_path, version
from ._mapped_file import MappedFile
from ._node import Node, Signal, HeapUsage, heap_statistics, is_registered, purge_heap, retain_heap
from ._operation import Operation
from ._parity import Parity, ParityMember, Rebuilt
from ._part import Part
from ._remote import Remote
from ._source import Source
from ._token import Token
from ._waits import Wish, signal_wait_all, signal_wait_any, signal_wait_some, wait_all, wait_any, wait_some

__all__ = [
    "ACCESS_COUNTS",
    "Access",
    "AccessCounts",
    "AccessKind",
    "AccessLog",
    "AccessStatistics",
    "Attributes",
    "Batch",
    "BatchAddress",
    "BatchCounts",
    "BatchedPut",
    "Batches",
    "BoundsError",
    "BuiltIns",
    "Chain",
    "ChainAddress",
    "Checkpoint",
    "Counts",
    "Durable",
    "Error",
    "ErrorCode",
    "Faults",
    "HashTable",
    "HeldWrite",
    "LocalWrites",
    "LoggedProcess",
    "MappedFile",
    "Node",
    "ConditionalRequest",
    "Operation",
    "Outcome",
    "Pages",
    "Parity",
    "ParityMember",
    "Part",
    "Peer",
    "PeerLostError",
    "Place",
    "Rebuilt",
    "Remote",
    "RemoteBuiltIns",
    "Restored",
    "Saved",
    "Scheme",
    "Serving",
    "Signal",
    "Source",
    "HeapUsage",
    "Ticket",
    "TimeoutError",
    "Token",
    "Volume",
    "VolumeTicket",
    "Wish",
    "heap_statistics",
    "is_registered",
    "library_path",
    "purge_heap",
    "retain_heap",
    "signal_wait_all",
    "signal_wait_any",
    "signal_wait_some",
    "version",
    "wait_all",
    "wait_any",
    "wait_some",
]
