#!/usr/bin/python3
"""request.py ADDRESS [PORT]: asks queue pair 1 at ADDRESS for a connection and for a service, as a kernel's connection manager does, and
checks the refusals; with PORT for a connection to that port alone, whose owner may refuse from a direct port. scapy, which shares no code with Pagewire, makes the packets and judges those that come back."""

import socket
import struct
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP

PORT, QKEY = 4791, 0x80010000


def own_address(peer):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, PORT))
        return probe.getsockname()[0]


def icrc(source, target, udp_payload):
    """The ICRC of a packet whose last four bytes are left out."""
    packet = IP(src=source, dst=target, flags="DF", id=0) / UDP(sport=PORT, dport=PORT, chksum=0)
    packet /= BTH(udp_payload + bytes(4))
    packet = IP(bytes(packet))
    return packet[BTH].compute_icrc(bytes(packet[BTH]))[-4:]


def datagram(attribute, service):
    mad = bytearray(256)
    mad[0:4] = bytes([1, 7, 2, 3])
    mad[8:16] = b"transact"
    mad[16:18] = struct.pack(">H", attribute)
    mad[24:28] = bytes([0xA1, 0xA2, 0xA3, 0xA4])
    mad[32:40] = service
    bth = struct.pack(">BBHII", 0x64, 0, 0xFFFF, 1, 7)
    return bth + struct.pack(">II", QKEY, 1) + bytes(mad)


def main():
    peer = sys.argv[1]
    attributes, service = [(0x10, 0x12), (0x17, 0x18)], b"services"
    if len(sys.argv) > 2:
        attributes, service = attributes[:1], struct.pack(">IHH", 0, 0x0106, int(sys.argv[2]))
    own = own_address(peer)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind((own, PORT))
        port.settimeout(20)
        # Do not fragment: the engine's packets have an identification of 0, as these.
        port.setsockopt(socket.IPPROTO_IP, 10, 2)
        for attribute, answer in attributes:
            request = datagram(attribute, service)
            port.sendto(request + icrc(own, peer, request), (peer, PORT))
            reply, source = port.recvfrom(4096)
            assert source == (peer, PORT) or len(sys.argv) > 2 and source[0] == peer, source
            opcode, _, pkey, destination, _ = struct.unpack(">BBHII", reply[:12])
            qkey, queue_pair = struct.unpack(">II", reply[12:20])
            assert (opcode, pkey, destination) == (0x64, 0xFFFF, 1), reply[:12].hex()
            assert (qkey, queue_pair) == (QKEY, 1), reply[12:20].hex()
            mad = reply[20:-4]
            assert len(mad) == 256 and mad[0:4] == bytes([1, 7, 2, 3]) and mad[8:16] == b"transact", mad.hex()
            assert mad[16:18] == struct.pack(">H", answer), mad.hex()
            if answer == 0x12:
                assert mad[28:32] == bytes([0xA1, 0xA2, 0xA3, 0xA4]), mad.hex()
                assert mad[32] >> 6 == 0 and mad[34:36] == struct.pack(">H", 8), mad.hex()
            else:
                assert mad[24:29] == bytes([0xA1, 0xA2, 0xA3, 0xA4, 1]), mad.hex()
            print("refused:", hex(answer))


main()
