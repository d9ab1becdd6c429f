"""Verified READs and WRITEs between two processes with NIXL's backend UCX.

Without an argument this is the initiator, and starts itself again as the target. The two talk through pipes.
With "measure" as its argument the initiator prints, for each operation and size, the median of the microseconds that a transfer takes.
"--target-host" has the words that stand before the target, which have it run on another host.
"""

import argparse
import ctypes
import os
import shlex
import statistics
import subprocess
import sys
import time

from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZES = (8, 65536, 1 << 20, 4 << 20)
SIZE = SIZES[-1]
PATTERN = bytes(index * 7 & 255 for index in range(256)) * (SIZE // 256)
FILL = b"\x5a"
SECONDS = 0.5


def start(name):
    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = (ctypes.c_char * SIZE)()
    registered = agent.register_memory([(ctypes.addressof(memory), SIZE, 0, "")], "DRAM")
    assert registered is not None
    return agent, memory


def descriptors(agent, address, size):
    return agent.get_xfer_descs([(address, size, 0)], "DRAM")


def target():
    agent, memory = start("target")
    ctypes.memset(memory, FILL[0], SIZE)
    print("reply", agent.get_agent_metadata().hex(), ctypes.addressof(memory), flush=True)
    for line in sys.stdin:
        size = int(line)
        is_whole = memory.raw == PATTERN[:size] + FILL * (SIZE - size)
        # The initiator writes again once it has the reply.
        ctypes.memset(memory, FILL[0], SIZE)
        print("reply", "whole" if is_whole else "wrong", flush=True)


def reply(peer):
    """The words of the target's next reply: NIXL and UCX write to the standard output, too."""
    for line in peer.stdout:
        if line.startswith("reply "):
            return line.split()[1:]
    raise AssertionError("the target ended")


def transfer(agent, request):
    state = agent.transfer(request)
    while state == "PROC":
        state = agent.check_xfer_state(request)
    assert state == "DONE", state


def request(agent, operation, ends, size):
    mine, theirs, peer = ends
    local, remote = descriptors(agent, mine, size), descriptors(agent, theirs, size)
    return agent.initialize_xfer(operation, local, remote, peer)


def verify(agent, memory, ends, peer):
    for size in SIZES:
        ctypes.memset(memory, 0, SIZE)
        transfer(agent, request(agent, "READ", ends, size))
        assert memory.raw == FILL * size + bytes(SIZE - size), f"READ of {size} bytes"
    for size in SIZES:
        ctypes.memmove(memory, PATTERN, SIZE)
        transfer(agent, request(agent, "WRITE", ends, size))
        print(size, file=peer.stdin, flush=True)
        verdict = reply(peer)
        assert verdict == ["whole"], f"WRITE of {size} bytes: {verdict}"
    print("nixl: READs and WRITEs of 8 bytes to 4 MiB verified", flush=True)


def measure(agent, ends):
    for operation in ("WRITE", "READ"):
        for size in SIZES:
            prepared = request(agent, operation, ends, size)
            transfer(agent, prepared)
            times, end = [], time.perf_counter() + SECONDS
            while time.perf_counter() < end:
                before = time.perf_counter()
                transfer(agent, prepared)
                times.append(time.perf_counter() - before)
            print(f"measured {operation.lower()} {size} {statistics.median(times) * 1e6:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", nargs="?", default="verify", choices=("verify", "measure", "target"))
    parser.add_argument("--target-host", type=shlex.split, default=[])
    arguments = parser.parse_args()
    if arguments.role == "target":
        return target()
    words = [*arguments.target_host, sys.executable, __file__, "target"]
    peer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        agent, memory = start("initiator")
        metadata, remote = reply(peer)
        name = agent.add_remote_agent(bytes.fromhex(metadata))
        name = name.decode() if isinstance(name, bytes) else name
        ends = (ctypes.addressof(memory), int(remote), name)
        if arguments.role == "measure":
            measure(agent, ends)
            peer.kill()
            # Without NIXL's destructors, which crash over tcp when the target is gone.
            os._exit(0)
        else:
            verify(agent, memory, ends, peer)
    finally:
        peer.kill()


main()
