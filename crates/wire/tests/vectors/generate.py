#!/usr/bin/env python3
"""Writes packets.txt: RoCEv2 packets made and decoded by implementations other than Pagewire's.

    apt-get install python3-scapy tshark
    /usr/bin/python3 generate.py > packets.txt

Bytes: scapy makes the IP, UDP, BTH, GRH and AETH headers and the ICRC over IPv4; the extended headers that it
does not know are packed by hand from the InfiniBand specification's figures. Fields: tshark's reading of
those bytes. scapy has no ICRC over IPv6: there it is zlib's CRC-32 over what annex A17 lists, with the masked
fields set through scapy's layers. One packet carries the ICRC that an adapter computed.

The output: a block for each packet, "packet NAME", then lines "bytes HEX" (from the IP header, or the GRH, on),
"icrc HEX BY-WHOM" (as it stands on the wire) and "field NAME VALUE": tshark's names, and
four of our own ("payload", "xrceth.srq", "feth.plt", "feth.sel") where tshark does not look.
"""

import logging
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib

logging.getLogger("scapy").setLevel(logging.ERROR)

from scapy.all import IP, UDP, Ether, IPv6, Raw, raw, wrpcap  # noqa: E402
from scapy.contrib.roce import AETH, BTH, GRH, cnp  # noqa: E402

rng = random.Random(4791)

# tshark's fields, without those of the layers below, which the IP addresses of a vector already show.
FIELDS = """
ip.version ip.dsfield ip.len ip.id ip.flags.df ip.ttl ip.proto ip.src ip.dst
ipv6.version ipv6.tclass ipv6.flow ipv6.plen ipv6.nxt ipv6.hlim ipv6.src ipv6.dst
udp.srcport udp.dstport udp.length udp.checksum udp.checksum.status
infiniband.grh.ipver infiniband.grh.tclass infiniband.grh.flowlabel infiniband.grh.paylen
infiniband.grh.nxthdr infiniband.grh.hoplmt infiniband.grh.sgid infiniband.grh.dgid
infiniband.bth.opcode infiniband.bth.se infiniband.bth.m infiniband.bth.padcnt infiniband.bth.tver
infiniband.bth.p_key infiniband.bth.destqp infiniband.bth.a infiniband.bth.psn
infiniband.deth.q_key infiniband.deth.srcqp
infiniband.reth.va infiniband.reth.r_key infiniband.reth.dmalen
infiniband.atomiceth.swapdt infiniband.atomiceth.cmpdt
infiniband.aeth.syndrome.opcode infiniband.aeth.syndrome.credit_count infiniband.aeth.syndrome.timer
infiniband.aeth.syndrome.error_code infiniband.aeth.msn
infiniband.atomicacketh.origremdt infiniband.immdt infiniband.ieth
data.data infiniband.invariant.crc
""".split()

GUESSES = "rpcrdma_infiniband mellanox_eoib iser_infiniband smb_direct_infiniband smcr_infiniband sdp_infiniband".split()

RC = {
    0x00: "send_first", 0x01: "send_middle", 0x02: "send_last", 0x03: "send_last_immediate",
    0x04: "send_only", 0x05: "send_only_immediate",
    0x06: "write_first", 0x07: "write_middle", 0x08: "write_last", 0x09: "write_last_immediate",
    0x0A: "write_only", 0x0B: "write_only_immediate",
    0x0C: "read_request", 0x0D: "read_response_first", 0x0E: "read_response_middle",
    0x0F: "read_response_last", 0x10: "read_response_only",
    0x11: "acknowledge", 0x12: "atomic_acknowledge", 0x13: "compare_swap", 0x14: "fetch_add",
    0x16: "send_last_invalidate", 0x17: "send_only_invalidate",
}
NO_PAYLOAD = {"read_request", "acknowledge", "atomic_acknowledge", "compare_swap", "fetch_add"}


def bits(count):
    return rng.getrandbits(count)


def reth():
    return struct.pack("!QII", bits(64), bits(32), bits(31))


def aeth(syndrome=None):
    return raw(AETH(syndrome=0x1F if syndrome is None else syndrome, msn=bits(24)))


def extensions(name, syndrome=None):
    """The extended headers of an RC operation."""
    out = b""
    if name in ("write_first", "write_only", "write_only_immediate", "read_request"):
        out += reth()
    if name in ("compare_swap", "fetch_add"):
        out += struct.pack("!QIQQ", bits(64), bits(32), bits(64), bits(64))
    if name in ("acknowledge", "atomic_acknowledge") or name.startswith("read_response") and "middle" not in name:
        out += aeth(syndrome)
    if name == "atomic_acknowledge":
        out += struct.pack("!Q", bits(64))
    if name.endswith("immediate") or name.endswith("invalidate"):
        out += struct.pack("!I", bits(32))
    return out


def network(version):
    ports = UDP(sport=rng.randrange(0xC000, 0x10000), dport=4791)
    if version == 4:
        ports.chksum = 0
        df = rng.choice(["DF", 0])
        return IP(src="198.51.100.%d" % rng.randrange(1, 255), dst="203.0.113.%d" % rng.randrange(1, 255),
                  id=bits(16), flags=df, tos=bits(8), ttl=rng.randrange(1, 256)) / ports
    return IPv6(src="2001:db8::%x" % rng.randrange(1, 65536), dst="2001:db8:1::%x" % rng.randrange(1, 65536),
                tc=bits(8), fl=bits(20), hlim=rng.randrange(1, 256)) / ports


def icrc_over_ipv6(packet):
    """Annex A17, over a packet whose ICRC is still to come, as zeros."""
    masked = IPv6(raw(packet))
    masked.tc, masked.fl, masked.hlim, masked[UDP].chksum = 0xFF, 0xFFFFF, 0xFF, 0xFFFF
    bth = bytearray(raw(masked[UDP].payload))
    bth[4] = 0xFF
    covered = b"\xff" * 8 + raw(masked)[:48] + bytes(bth[:-4])
    return struct.pack("<I", zlib.crc32(covered))


def roce(version, code, extension, payload=b""):
    """A datagram with a good ICRC. The pad count is scapy's to be told."""
    pad = -len(payload) % 4
    bth = BTH(opcode=code, solicited=bits(1), migreq=bits(1), padcount=pad, pkey=bits(16), fecn=bits(1),
              becn=bits(1), dqpn=bits(24), ackreq=bits(1), psn=bits(24))
    body = Raw(extension + payload + b"\0" * pad)
    if version == 4:
        return raw(network(4) / bth / body), "scapy"
    bth.icrc = 0
    inner = raw(bth)[:12] + raw(body) + b"\0" * 4
    packet = network(6) / Raw(inner)
    icrc = icrc_over_ipv6(packet)
    # Built anew: the UDP checksum covers the ICRC.
    packet[UDP].payload = Raw(inner[:-4] + icrc)
    return raw(packet), "annex-A17"


def packets():
    for version in (4, 6):
        for transport, base, codes in (("rc", 0x00, RC), ("uc", 0x20, [c for c in RC if c <= 0x0B])):
            for code in codes:
                name = RC[code]
                payload = b"" if name in NO_PAYLOAD else rng.randbytes(rng.choice([1, 2, 3, 4, 37, 256]))
                yield f"{transport}_{name}_v{version}", *roce(version, base | code, extensions(name), payload)
        for code in (0x64, 0x65):
            deth = struct.pack("!II", bits(32), bits(24))
            yield f"ud_{RC[code & 31]}_v{version}", *roce(version, code, deth + extensions(RC[code & 31]), rng.randbytes(41))
    for syndrome in (0x00, 0x0A, 0x20, 0x2C, 0x3F, 0x60, 0x61, 0x62, 0x63, 0x64):
        yield f"rc_acknowledge_{syndrome:02x}", *roce(4, 0x11, aeth(syndrome))
    yield "rc_send_only_empty", *roce(4, 0x04, b"")
    yield "rc_write_only_empty", *roce(4, 0x0A, struct.pack("!QII", bits(64), bits(32), 0))
    yield "rc_write_middle_4096", *roce(4, 0x07, b"", rng.randbytes(4096))
    yield "rc_write_middle_4096_v6", *roce(6, 0x07, b"", rng.randbytes(4096))
    # XRC: requests have the XRCETH (8 reserved bits, 24 of SRQ number) in front of what RC has. tshark 4.0
    # reads the BTH only, so what was put in is told beside it.
    for code, name in RC.items():
        request = not (name.startswith("read_response") or name.endswith("acknowledge"))
        xrceth = struct.pack("!I", bits(24)) if request else b""
        payload = b"" if name in NO_PAYLOAD else rng.randbytes(24)
        known = {"payload": payload.hex() or "-"}
        if request:
            known["xrceth.srq"] = f"0x{xrceth.hex()}"
        yield f"xrc_{name}", *roce(4, 0xA0 | code, xrceth + extensions(name), payload), known
    yield "cnp", raw(network(4) / cnp(bits(24))), "scapy"
    # A CNP that a ConnectX-4 Lx sent; its fields and ICRC are reported in scapy's regression tests.
    adapter = cnp(0x118)
    adapter.icrc = 0x82FD002A
    yield "cnp_connectx", raw(
        IP(src="10.0.17.1", dst="10.0.18.1", id=0x718C, flags="DF", tos=0xC2, ttl=64) /
        UDP(sport=0, dport=4791, chksum=0) / adapter), "ConnectX-4-Lx"


def atomic_writes():
    """Annex A19: tshark 4.0 reads the BTH only, so what was put in is told beside it."""
    for name, version, base in (("rc_atomic_write_v4", 4, 0x00), ("rc_atomic_write_v6", 6, 0x00), ("xrc_atomic_write", 4, 0xA0)):
        address, key, payload = bits(64), bits(32), rng.randbytes(8)
        xrceth = struct.pack("!I", bits(24)) if base else b""
        known = {"payload": payload.hex()} | ({"xrceth.srq": f"0x{xrceth.hex()}"} if base else {
            "infiniband.reth.va": f"0x{address:016x}", "infiniband.reth.r_key": f"0x{key:08x}",
            "infiniband.reth.dmalen": "8",
        })
        yield name, *roce(version, base | 0x1D, xrceth + struct.pack("!QII", address, key, 8), payload), known


def flushes():
    """Annex A19: FETH and RETH, without a payload. Told as for atomic WRITEs."""
    for name, version, base, sel, plt in (
        ("rc_flush_global_v4", 4, 0x00, 0, 1), ("rc_flush_persistent_v4", 4, 0x00, 0, 2),
        ("rc_flush_region_v6", 6, 0x00, 1, 3), ("xrc_flush", 4, 0xA0, 1, 1),
    ):
        address, key, length = bits(64), bits(32), bits(31)
        xrceth = struct.pack("!I", bits(24)) if base else b""
        known = {"payload": "-", "feth.plt": str(plt), "feth.sel": str(sel)} | (
            {"xrceth.srq": f"0x{xrceth.hex()}"} if base else {
                "infiniband.reth.va": f"0x{address:016x}", "infiniband.reth.r_key": f"0x{key:08x}",
                "infiniband.reth.dmalen": str(length),
            })
        headers = xrceth + struct.pack("!IQII", sel << 4 | plt, address, key, length)
        yield name, *roce(version, base | 0x1C, headers), known


def global_routes():
    """RoCE v1 frames, for tshark's reading of the GRH."""
    for index in range(4):
        body = raw(BTH(opcode=0x04, migreq=1, dqpn=bits(24), psn=bits(24), icrc=0))
        yield f"grh_{index}", raw(GRH(tclass=bits(8), flowlabel=bits(20), paylen=len(body), nexthdr=0x1B,
                                      hoplmt=bits(8), sgid=bits(128), dgid=bits(128))) + body


def decode(frames):
    """tshark's fields of each frame."""
    with tempfile.TemporaryDirectory() as directory:
        capture = os.path.join(directory, "vectors.pcap")
        wrpcap(capture, frames)
        command = ["tshark", "-r", capture, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f",
                   "-o", "udp.check_checksum:TRUE", "-o", "ip.defragment:FALSE"]
        # tshark guesses what a SEND's payload is by dissectors that call random bytes malformed.
        for guess in GUESSES:
            command += ["--disable-heuristic", guess]
        for field in FIELDS + ["_ws.malformed"]:
            command += ["-e", field]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    for line in out.splitlines():
        *values, malformed = line.split("|")
        yield {name: value for name, value in zip(FIELDS, values) if value}, malformed


def main():
    made, frames = [], []
    for name, datagram, by, *known in packets():
        made.append((name, datagram, by, known[0] if known else {}))
        frames.append(Ether(type=0x86DD if datagram[0] >> 4 == 6 else 0x0800) / Raw(datagram))
    for name, bytes_ in global_routes():
        made.append((name, bytes_, None, {}))
        frames.append(Ether(type=0x8915) / Raw(bytes_))
    for name, datagram, by, known in (*atomic_writes(), *flushes()):
        made.append((name, datagram, by, known))
        frames.append(Ether(type=0x86DD if datagram[0] >> 4 == 6 else 0x0800) / Raw(datagram))
    decoded = list(decode(frames))
    assert len(decoded) == len(made), (len(decoded), len(made))
    print("# Made by generate.py; see there.")
    for (name, bytes_, by, known), (fields, malformed) in zip(made, decoded):
        assert not malformed, name
        print(f"\npacket {name}")
        print(f"bytes {bytes_.hex()}")
        if by:
            print(f"icrc {bytes_[-4:].hex()} {by}")
        for field, value in (fields | known).items():
            print(f"field {field} {value}")


if __name__ == "__main__":
    sys.exit(main())
