"""Two processes with logged puts and gets; one of them dies, and repeats its work (docs/guide/logged-process.md). Here they are two nodes of one process."""

import sys

import numpy as np

import pagewire

folder = sys.argv[1] if len(sys.argv) > 1 else "."


def begin(rank: int) -> pagewire.LoggedProcess:
    node = pagewire.Node.alone()
    return node.logged_process(f"{folder}/process-{rank}.checkpoint", rank, 2, 4096)


def work(worker: pagewire.LoggedProcess) -> None:
    """An epoch of the worker: it gets a number, adds it to its sum, and puts the sum to the other one."""
    sums = worker.memory(np.uint64)
    sums[0] += worker.get(0, 0, 8).view(np.uint64)[0]
    worker.put(0, 8, sums[:1])


giver, worker = begin(0), begin(1)
worker.connect(giver.ticket(1))
giver.connect(worker.ticket(0))
shown = giver.memory(np.uint64)


def epoch(number: int) -> None:
    shown[0] = 10 * number
    work(worker)
    # Here all processes have a barrier.
    giver.next_epoch()
    worker.next_epoch()
    print(f"epoch {number}: the sum is {shown[1]}")


for number in (1, 2, 3, 4):
    epoch(number)
    if number == 2:
        worker.checkpoint(b"two epochs")
worker.close()
print("the worker dies")

# Another process takes its place.
worker = begin(1)
note = worker.note or b""
print(f'it was saved with the note "{note.decode()}" and the sum {worker.memory(np.uint64)[0]}')
worker.connect(giver.ticket(1))
worker.replay()
while worker.is_replaying:
    work(worker)  # its gets come from the log, its puts have arrived before
    worker.next_epoch()
print(f"it has repeated its work: the sum is {worker.memory(np.uint64)[0]}")
giver.connect(worker.ticket(0))
epoch(5)
worker.close()
giver.close()
