"""The experimental part of the shared object, which has it if it was built with the feature `experimental`."""

from __future__ import annotations

import os
from typing import Any

from .._library import library_path
from ._abi import ffi

# The file that is open already: these declarations have a handle of their own.
lib: Any = ffi.dlopen(library_path(), os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_NOLOAD)

try:
    lib.pw_stream_listen
except AttributeError as absent:
    raise ImportError(f"pagewire.experimental: the library {library_path()} was built without experimental applications") from absent

__all__ = ["ffi", "lib"]
