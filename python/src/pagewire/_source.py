"""Who accesses: the peers behind the sources of access logs and of statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._conditional import Peer
from ._errors import check
from ._library import ffi, lib

#: PW_NO_RANK of pagewire.h.
NO_RANK = 2**64 - 1


@dataclass(frozen=True)
class Source:
    """Who made an access: a node, or a queue pair of the verbs."""

    #: The node. None: it is a queue pair.
    peer: Peer | None
    #: The rank of the node, if it belongs to the same job.
    rank: int | None
    #: The GID of the port of the queue pair. None: it is a node.
    gid: bytes | None
    #: The number of the queue pair at its port. None: it is a node.
    queue_pair: int | None


def find_source(node: Any, number: int) -> Source:
    place = ffi.new("pw_source *")
    check(lib.pw_source_find(node, number, place))
    if place.kind == lib.PW_SOURCE_NODE:
        rank = None if place.rank == NO_RANK else int(place.rank)
        return Source(Peer(bytes(ffi.buffer(ffi.addressof(place, "peer")))), rank, None, None)
    return Source(None, None, bytes(place.gid), int(place.queue_pair))
