"""Two stores, and two clients that move money between their accounts at the same time (docs/guide/experimental-transactions.md). Here all are nodes of one process."""

import threading

from pagewire import Node, experimental

owners = [Node.alone(), Node.alone()]
stores = [experimental.TransactionStore(owner, cells=16, value_bytes=8) for owner in owners]
tokens = [store.token for store in stores]  # they go to others by any means
for position, store in enumerate(stores):
    store.serve(position, tokens)


def number(value: bytes) -> int:
    return int.from_bytes(value, "little", signed=True)


def work(amount: int) -> None:
    def transfer(transaction: experimental.Transaction) -> None:
        for store, cell, given in ((0, 3, -amount), (1, 5, amount)):
            balance = number(transaction.get(store, cell)) + given
            transaction.put(store, cell, balance.to_bytes(8, "little", signed=True))

    with Node.alone() as node, experimental.TransactionClient(node, tokens) as client:
        for _ in range(100):
            client.run(transfer)  # tried again until it has no conflict


clients = [threading.Thread(target=work, args=(amount,)) for amount in (1, 2)]
for client in clients:
    client.start()
for client in clients:
    client.join()
balances = number(stores[0][3].value), number(stores[1][5].value)
print(f"account 3: {balances[0]}, account 5: {balances[1]}, after {stores[0][3].version} transactions")
for store in stores:
    store.close()
