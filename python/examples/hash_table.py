"""A hash table over the processes of a job (docs/guide/hash-table.md)."""

import pagewire

with pagewire.Node.from_env() as node:  # mpirun, srun, a rendezvous, or alone
    table = node.hash_table(1000)  # cells of this process

    table[7] = b"seven"
    table.insert_batch((key, b"one of many") for key in range(100, 200))
    table.flush()  # what this process has inserted is found by everyone
    node.barrier()

    print(f"7: {table[7].decode()}")
    node.barrier()  # all have looked
    del table[7]
    table.flush()
    print(f"7 is {'there' if 7 in table else 'gone'}, {table.volume().elements} elements here")
    node.barrier()  # a process that leaves takes its part along
