"""A role of mooncake.toml: mooncake_role.py target|initiator DIRECTORY. The two meet in the directory.

The exit status of an initiator tells what Mooncake has refused: 3 the engine, 4 the registration, 5 the READ, 6 the WRITE; it is 7 where
a READ was said to be done and has brought other bytes.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

from mooncake.engine import TransferEngine

SIZE = 1 << 20
BEFORE, AFTER = b"\x5a" * SIZE, b"\x17" * SIZE
PATIENCE = 30


def main():
    role, directory = sys.argv[1], Path(sys.argv[2])
    engine = TransferEngine()
    name = "127.0.0.1:17771" if role == "target" else "127.0.0.1:17772"
    if engine.initialize(name, "P2PHANDSHAKE", "rdma", "") != 0:
        return 3
    memory = (ctypes.c_char * SIZE).from_buffer_copy(BEFORE if role == "target" else bytes(SIZE))
    address = ctypes.addressof(memory)
    if engine.register_memory(address, SIZE) != 0:
        return 4
    if role == "target":
        tell(directory / "address", f"127.0.0.1:{engine.get_rpc_port()} {address}")
        wait_for(directory / "done")
        tell(directory / "verdict", "whole" if memory.raw == AFTER else "wrong")
        return 0
    segment, remote = (directory / "address").read_text().split()
    if engine.transfer_sync_read(segment, address, int(remote), SIZE) != 0:
        return 5
    if memory.raw != BEFORE:
        return 7
    ctypes.memmove(memory, AFTER, SIZE)
    if engine.transfer_sync_write(segment, address, int(remote), SIZE) != 0:
        return 6
    tell(directory / "done", "")
    wait_for(directory / "verdict")
    return 0


def tell(file, text):
    """Whoever finds the file finds all of its text."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.rename(file)


def wait_for(file):
    until = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.01)


status = main()
sys.stdout.flush()
# The engine's destructors wait for its idle workers.
os._exit(status)
