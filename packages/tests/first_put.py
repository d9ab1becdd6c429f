"""A put and a get between two nodes of one process, and one to a forked process's array, with the bytes compared."""

import subprocess
import sys

import numpy as np

import pagewire

CHILD = """
import sys, numpy as np, pagewire
node = pagewire.Node.from_env()
remote = node.open(bytes.fromhex(sys.argv[1]), np.float64)
remote[10:20] = np.arange(10.0)
"""

node = pagewire.Node.from_env()
table = node.zeros(1024, np.float64)
token = node.export(table, read=True, write=True)
remote = node.open(token, np.float64)
remote[0:4] = np.full(4, 7.0)
subprocess.run([sys.executable, "-c", CHILD, bytes(token).hex()], check=True)
assert (np.asarray(table)[10:20] == np.arange(10.0)).all(), table[10:20]
assert remote[3] == 7.0
print("pagewire", pagewire.version(), "from", pagewire.library_path())
