"""musl_program.py FILE: writes the least ELF program that names musl's loader. It is looked at, and never started."""

import os
import struct
import sys

LOADER = b"/lib/ld-musl-x86_64.so.1\0"
HEADER = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
INTERPRETER = struct.pack("<IIQQQQQQ", 3, 4, 120, 120, 120, len(LOADER), len(LOADER), 1)

with open(sys.argv[1], "wb") as file:
    file.write(HEADER + INTERPRETER + LOADER)
os.chmod(sys.argv[1], 0o755)
