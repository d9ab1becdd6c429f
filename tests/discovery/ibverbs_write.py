"""A verified RDMA WRITE between two processes with the PyPI package `ibverbs`.

Without an argument this is the initiator, and starts itself again as the target. The two talk through pipes.
"""

import ctypes
import subprocess
import sys

import ibverbs as ib

SIZE = 1 << 20
ACCESS = ib.AccessFlags.LOCAL_WRITE | ib.AccessFlags.REMOTE_WRITE | ib.AccessFlags.REMOTE_READ
PATTERN = bytes(index * 7 & 255 for index in range(256)) * (SIZE // 256)


def main():
    devices = ib.get_device_list()
    assert devices, "no device is listed"
    context = devices[0].open()
    domain = context.alloc_pd()
    queue = context.create_cq(16)
    memory = (ctypes.c_char * SIZE)()
    region = domain.reg_mr(ctypes.addressof(memory), SIZE, ACCESS)
    pair = domain.create_qp(ib.QPInitAttr(send_cq=queue, recv_cq=queue, qp_type=ib.QPType.RC))
    local = ib.local_qp_info(pair, context.query_port(1), context.query_gid(1, 0), port=1, psn=0)
    mine = f"{local.to_bytes().hex()} {ctypes.addressof(memory)} {region.rkey}"

    if sys.argv[1:] == ["target"]:
        print(mine, flush=True)
        connect(pair, sys.stdin.readline().split()[0])
        print("connected", flush=True)
        sys.stdin.readline()
        print("whole" if memory.raw == PATTERN else "wrong", flush=True)
        return
    peer = subprocess.Popen(
        [sys.executable, __file__, "target"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    info, address, rkey = peer.stdout.readline().split()
    print(mine, file=peer.stdin, flush=True)
    connect(pair, info)
    assert peer.stdout.readline() == "connected\n"
    ctypes.memmove(memory, PATTERN, SIZE)
    pair.post_send(
        ib.SendWR(
            wr_id=1,
            sg_list=[ib.SGE(region, SIZE)],
            opcode=ib.WROpcode.RDMA_WRITE,
            send_flags=ib.SendFlags.SIGNALED,
            remote_addr=int(address),
            rkey=int(rkey),
        )
    )
    completions = []
    while not completions:
        completions = queue.poll(1)
    completions[0].raise_for_status()
    print("done", file=peer.stdin, flush=True)
    verdict = peer.stdout.readline().strip()
    assert peer.wait() == 0 and verdict == "whole", verdict
    print(f"ibverbs: {len(devices)} device(s), a WRITE of {SIZE} bytes verified")


def connect(pair, info):
    ib.connect_rc(pair, ib.QPInfo.from_bytes(bytes.fromhex(info)), port=1, sgid_index=0, access=ACCESS)


main()
