"""import pagewire.verbs: what loads libibverbs.so.1 afterwards finds a device, and another libibverbs is named."""

import ctypes
import subprocess
import sys

FIRST = """
import time, threading, sys
begun = time.perf_counter()
import pagewire.verbs
took = time.perf_counter() - begun
assert threading.active_count() == 1
import os
threads = len(os.listdir("/proc/self/task"))
assert threads == 1, threads
assert "numpy" not in sys.modules
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
count = ctypes.c_int(-1)
devices = verbs.ibv_get_device_list(ctypes.byref(count))
assert count.value >= 1, count.value
assert verbs.ibv_get_device_name(devices[0]) == b"pagewire0"
assert open("/proc/self/maps").read().count("libpagewire.so.1") > 0
print(f"import pagewire.verbs: {took * 1000:.1f} ms")
"""
subprocess.run([sys.executable, "-c", FIRST], check=True)

SECOND = """
import ctypes
ctypes.CDLL("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
import pagewire.verbs
"""
late = subprocess.run([sys.executable, "-c", SECOND], capture_output=True, text=True)
assert late.returncode == 1, late
assert "has another libibverbs already: /usr/lib/x86_64-linux-gnu/libibverbs.so.1" in late.stderr, late.stderr
print("a libibverbs that is there already is named")
