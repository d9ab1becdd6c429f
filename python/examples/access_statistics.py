"""Which pages of a table do peers use, and who tries what they may not do? (docs/guide/access-statistics.md)"""

import numpy as np

import pagewire

with pagewire.Node.alone() as node:
    table = node.zeros(100 * 512, np.uint64)  # a hundred pages
    token = node.export(table, read=True, write=True)
    statistics = node.access_statistics(token)

    # These could be any other processes that have the token.
    remote = node.open(token, np.uint64)
    for index in range(1000):
        remote[index * index % 51_200] = index
    remote[:1024]

    total = statistics.total()
    print(f"{total.puts} puts, {total.gets} gets")
    for page, counts in statistics.hottest(3):
        print(f"page {page}: {counts.accesses} accesses")

    # From here on puts are refused, and it is counted that somebody tried.
    statistics.close()
    with node.access_statistics(token, refuse_puts=True) as statistics:
        try:
            remote[0] = 1
        except pagewire.Error as refused:
            print(refused.code.name)
        print(f"{statistics.total().refused} refused")
