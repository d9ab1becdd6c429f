"""The experimental part of the shared object, which has it if it was built with the feature `experimental`."""

from __future__ import annotations

from importlib import resources

from .._library import ffi, lib, library_path

ffi.cdef(resources.files(__package__).joinpath("_declarations.h").read_text(encoding="ascii"))

try:
    lib.pw_stream_listen
except AttributeError as absent:
    raise ImportError(f"pagewire.experimental: the library {library_path()} was built without experimental applications") from absent

__all__ = ["ffi", "lib"]
