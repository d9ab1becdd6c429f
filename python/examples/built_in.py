"""Built-in handlers: chains of steps that run on another process's memory, and no code of its own. (docs/guide/built-in.md)"""

import numpy as np

import pagewire
from pagewire import Chain, Place

with pagewire.Node.alone() as node:
    memory = node.zeros(512, np.uint64)
    served = node.built_ins(memory)
    served.begin_area(64, 128, 4096)  # where values are appended

    # This could be any process that has the address.
    remote = node.open_built_ins(served.address)
    remote.run(Chain().fetch_add(0, 1))  # a count

    # A value is appended, and the pointer at 8 names it if it is 0 still.
    push = Chain().append(64, b"hello").compare_swap(8, bytes(8), np.uint64(128))
    appended, named = remote.run(push)
    print(f"appended at {appended.word}, {'and named' if named.swapped else 'and not named'}")

    # What the pointer names.
    (value,) = remote.run(Chain().read(Place.behind(8), 5))
    print(f"the pointer names: {value.data.decode()}")
