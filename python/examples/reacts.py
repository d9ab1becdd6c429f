"""Memory that reacts: a counter and a mailbox made of plain puts.

python reacts.py
"""

import numpy as np

import pagewire

letters = []


def handle(access: pagewire.Access) -> None:
    """Called by a thread of the library, once for each record. The peer does not know."""
    letter = access.value(np.uint64)
    if letter is None:
        print(f"{access.length} bytes were put", flush=True)
    else:
        print(f"a letter: {letter}", flush=True)
        letters.append(letter)


with pagewire.Node.alone() as node:
    table = node.zeros(2 * 512, np.uint64)  # two pages
    token = node.export(table, read=True, write=True)
    log = node.access_log(1 << 20)  # bytes for each source

    # Puts to the first page go to the log, and not to memory. Those to the second are counted, and reach memory.
    node.attributes(token)[:4096].redirect_puts().to(log)
    node.attributes(token)[4096:].log_puts().to(log)
    serving = log.serve(handle)

    # This could be any other process that has the token.
    remote = node.open(token, np.uint64)
    remote[0] = 7
    remote[512:515] = [1, 2, 3]
    remote.flush_handled().wait()  # both handlers have returned; or: await remote.flush_handled()

    print(f"in memory: {table[0]} and {table[512]}, letters: {len(letters)}")
    print(serving.end())
