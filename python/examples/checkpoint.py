"""A counter that peers put to, and that goes on where it was after its process was killed (docs/guide/checkpoint.md)."""

import sys

import numpy as np

import pagewire

path = sys.argv[1] if len(sys.argv) > 1 else "counter.checkpoint"
with pagewire.Node.alone() as node:
    table = node.zeros(1000 * 512, np.uint64)  # a thousand pages
    token = node.export(table, read=True, write=True, atomic=True)
    checkpoint = node.checkpoint(path, token)
    restored = checkpoint.restore()
    print(f"checkpoint {restored.number}: the counter is {table[0]}" if restored else "no checkpoint yet")

    # This could be any other process that has the token.
    remote = node.open(token, np.uint64)
    for turn in range(3):
        count = remote.fetch_add(0, 1).wait()
        remote[512 * (1 + count % 900)] = count
        saved = checkpoint.save()
        print(f"round {turn}: checkpoint {saved.number}")
