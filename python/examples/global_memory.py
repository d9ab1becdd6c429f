"""Every process of a job stores to global memory, and loads what the next process has stored (docs/guide/experimental-gas.md)."""

from pagewire import Node, experimental

node = Node.from_env()
memory = experimental.GlobalMemory(node, 64)  # pages of 4,096 bytes, of each process
words = memory.words()
next_rank = (node.rank + 1) % node.size
own, other = memory.home(node.rank), memory.home(next_rank)

# Stores to own memory, then loads of what lies in the next process.
words[own.start : own.stop] = range(len(own))
node.barrier()
print(f"the words of process {next_rank} make {words[other.start : other.stop].sum()}")

# The same bytes for whatever takes a buffer.
assert memory.view()[8 * other.start + 8] == 1
memory.leave()  # when all have finished
