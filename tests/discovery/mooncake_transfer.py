"""Verified READs and WRITEs between two processes with Mooncake's transfer engine over rdma, which finds the device itself.

Without an argument this is the initiator, and starts itself again as the target. The two talk through pipes.
With "measure" and a protocol as its arguments the initiator prints, for each operation and size, the median of the microseconds
that a transfer takes. "--addresses" has those of initiator and target, and "--target-host" the words that stand before the target,
which have it run on another host.
"""

import argparse
import ctypes
import os
import shlex
import statistics
import subprocess
import sys
import time

from mooncake.engine import TransferEngine

SIZE = 4 << 20
PATTERN = bytes(index * 7 & 255 for index in range(256)) * (SIZE // 256)
FILL = b"\x5a"
SIZES = (8, 65536, 1 << 20, SIZE)
SECONDS = 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", nargs="?", default="verify", choices=("verify", "measure", "target"))
    parser.add_argument("protocol", nargs="?", default="rdma")
    parser.add_argument("--addresses", nargs=2, default=["127.0.0.1"] * 2)
    parser.add_argument("--target-host", type=shlex.split, default=[])
    arguments = parser.parse_args()
    is_target = arguments.role == "target"
    initiator_address, target_address = arguments.addresses
    engine = TransferEngine()
    name = f"{target_address}:17771" if is_target else f"{initiator_address}:17772"
    assert engine.initialize(name, "P2PHANDSHAKE", arguments.protocol, "") == 0
    memory = (ctypes.c_char * SIZE)()
    address = ctypes.addressof(memory)
    if is_target:
        ctypes.memset(memory, FILL[0], SIZE)
    assert engine.register_memory(address, SIZE) == 0
    if is_target:
        print(engine.get_rpc_port(), address, flush=True)
        sys.stdin.readline()
        print("whole" if memory.raw == PATTERN else "wrong", flush=True)
        end()
    words = [*arguments.target_host, sys.executable, __file__, "target", arguments.protocol]
    words += ["--addresses", *arguments.addresses]
    peer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port, remote = peer.stdout.readline().split()
        segment = f"{target_address}:{port}"
        if arguments.role == "measure":
            measure(engine, segment, address, int(remote))
            peer.kill()
            end()
        for size in SIZES:
            ctypes.memset(memory, 0, SIZE)
            assert engine.transfer_sync_read(segment, address, int(remote), size) == 0
            assert memory.raw == FILL * size + bytes(SIZE - size), f"READ of {size} bytes"
        ctypes.memmove(memory, PATTERN, SIZE)
        for size in SIZES:
            assert engine.transfer_sync_write(segment, address, int(remote), size) == 0
        print("done", file=peer.stdin, flush=True)
        verdict = peer.stdout.readline().strip()
        assert verdict == "whole", verdict
    finally:
        peer.kill()
    print("mooncake: READs and WRITEs of 8 bytes to 4 MiB verified")
    end()


def measure(engine, segment, address, remote):
    for name, transfer in (("write", engine.transfer_sync_write), ("read", engine.transfer_sync_read)):
        for size in SIZES:
            assert transfer(segment, address, remote, size) == 0
            times, last = [], time.perf_counter() + SECONDS
            while time.perf_counter() < last:
                before = time.perf_counter()
                assert transfer(segment, address, remote, size) == 0
                times.append(time.perf_counter() - before)
            print(f"measured {name} {size} {statistics.median(times) * 1e6:.2f}", flush=True)


def end():
    """Ends the process without the engine's destructors, which wait for its idle workers."""
    sys.stdout.flush()
    os._exit(0)


main()
