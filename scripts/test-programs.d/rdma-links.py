#!/usr/bin/python3
"""Stands for `rdma link show -j` in the tests of pyverbs, where the kernel has no NETLINK_RDMA: the links that sysfs shows to this process."""
import json
import os

FOLDER = '/sys/class/infiniband'
links = []
for name in sorted(os.listdir(FOLDER)):
    for interface in os.listdir(f'{FOLDER}/{name}/device/net'):
        links.append({'ifname': name, 'port': 1, 'state': 'ACTIVE', 'netdev': interface})
print(json.dumps(links))
