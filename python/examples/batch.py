"""Batches: small puts to one owner go together, to a handler of the owner. (docs/guide/batches.md)"""

import numpy as np

import pagewire

with pagewire.Node.alone() as node:
    histogram = node.zeros(1000, np.uint64)
    token = node.export(histogram, write=True)

    def add(put: pagewire.BatchedPut) -> None:
        """Called by a thread of the library. Each put to a word adds to it."""
        histogram[put.offset // 8] += put.value(np.uint64)

    served = node.redirect_batches(token, add)

    # This could be any process that has the address.
    batch = node.open_batch(served.address)
    one = np.uint64(1)
    for number in range(10_000):
        batch.put(8 * (number * number % 1000), one)
    batch.flush_handled()  # all of them are added

    print(f"{served.counts.puts} puts in {served.counts.messages} messages")
    print(f"{histogram[1]} squares end in 001, and {histogram[2]} in 002")
