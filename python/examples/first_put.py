"""Your first put, in Python. Alone, or as a job: mpirun -n 4 --oversubscribe python first_put.py"""

import asyncio

import numpy as np

import pagewire


async def main() -> None:
    node = pagewire.Node.from_env()
    table = node.zeros(1024, np.float64)  # a numpy array in registered memory
    tokens = node.all_gather(node.export(table, read=True, write=True))
    remote = node.open(tokens[(node.rank + 1) % node.size], np.float64)
    remote[10:20] = np.arange(10.0) + node.rank  # a put
    node.barrier()
    print(node.rank, "got", table[10:13].tolist(), "and gets", float(remote[19]))
    node.barrier()
    await remote.put(100, table[:10])
    node.barrier()
    node.leave()


asyncio.run(main())
