"""A sort of the keys of several processes. Any of them may die, and is started again with the same arguments (docs/guide/experimental-sort.md)."""

import sys

import numpy as np

from pagewire import Node, experimental

folder, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count = int(sys.argv[4]) if len(sys.argv) > 4 else 100_000
# The same keys when it is started again.
keys = np.arange(rank * count + 1, (rank + 1) * count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

with Node.alone() as node:
    part = experimental.sort(node, folder, rank, size, keys)
    assert (part.keys[:-1] <= part.keys[1:]).all()
    first, last, total = int(part.keys[0]), int(part.keys[-1]), int(part.keys.sum())
    print(f"process {rank}: {len(part.keys)} keys from position {part.position} on, {first:016x} to {last:016x}, their sum {total:016x}")
    print(f"{part.gets} gets, {part.from_logs} keys from logs, {part.peers_lost} times a process was lost", file=sys.stderr)
