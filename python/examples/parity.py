"""Three processes keep checkpoints of each other without a disk; one of them dies (docs/guide/parity.md). Here they are nodes of one process."""

import numpy as np

import pagewire

keeper = pagewire.Node.alone()
parity = keeper.parity(3, 1 << 20)  # three members of up to a mebibyte

members = []
for rank in range(3):
    node = pagewire.Node.alone()
    table = node.zeros(100_000, np.uint64)
    table[50_000] = 10 * rank
    member = node.join_parity(parity.token(rank), rank)
    print(f"member {rank} saves round {member.save(table)}")
    members.append(member)
members[0].wait(timeout=10)

print("member 1 dies")
members[1].close()

node = pagewire.Node.alone()
others = [members[0].token(), members[2].token()]
member, rebuilt = node.rebuild_parity(parity.token(1), 1, others)
table = node.zeros(100_000, np.uint64)
member.restore(table)
print(f"{rebuilt.size} bytes of round {rebuilt.round} are rebuilt: it had {table[50_000]}")
