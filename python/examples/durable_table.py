"""A hash table that outlives its process: start it twice. (docs/guide/durable-tables.md)"""

import os
import sys

import pagewire

node = pagewire.Node.from_env()  # mpirun, srun, a rendezvous, or alone
folder = sys.argv[1] if len(sys.argv) > 1 else "table"
table = node.hash_table(1000, durable=pagewire.Durable(folder))
print(f"{table.volume().elements} elements were there", flush=True)

for key in range(1, 101):
    table[key] = b"it stays"
table.flush()
os._exit(0)  # as if it was killed: nothing is closed, and nothing was saved
