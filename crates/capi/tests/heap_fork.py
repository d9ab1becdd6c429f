"""Children of a Python program whose malloc(3) is the registered heap, with threads and the name service used before."""

import os
import pwd
import threading

FORKS = int(os.environ.get("PAGEWIRE_HEAP_FORKS", "50"))


def allocate(stop):
    while not stop.is_set():
        [bytes(1000 + number) for number in range(100)]


def check(kept):
    good = all(data == bytes([number]) * 5000 for number, data in enumerate(kept))
    kept[0][:] = b"x" * 5000
    return good and len([bytes(3000) for _ in range(200)]) == 200 and pwd.getpwuid(0).pw_uid == 0


stop = threading.Event()
pwd.getpwuid(0)
stream = open(__file__)
kept = [bytearray([number]) * 5000 for number in range(100)]
threads = [threading.Thread(target=allocate, args=(stop,)) for _ in range(2)]
for thread in threads:
    thread.start()
bad = 0
for _ in range(FORKS):
    child = os.fork()
    if child == 0:
        os._exit(0 if check(kept) else 1)
    bad += os.waitpid(child, 0)[1] != 0
    bad += kept[0] != bytes(5000)
stop.set()
for thread in threads:
    thread.join()
print(f"{bad} of {FORKS} children are bad")
