"""Gives this process libibverbs: import it before the first module that loads libibverbs.so.1.

::

    import pagewire.verbs
    import nixl            # finds Pagewire's devices

It is for programs that were not started by `pagewire run`. What they do without is in docs/guide/python-verbs.md. Under `pagewire run` the import
changes nothing.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from ._library import library_path

__all__ = ["library_path"]


def _find_stub() -> Path | None:
    """The library of this name that leads to the engine: of the wheel, or of a distribution's package."""
    places = [Path(__file__).parent / "lib" / "pagewire", Path("/usr/lib/pagewire/pagewire")]
    return next((place / "libibverbs.so.1" for place in places if (place / "libibverbs.so.1").is_file()), None)


_STUB = _find_stub()

# Wheels that carry a copy put a hash behind the first word.
_NAME = re.compile(r"libibverbs(-[0-9a-f]+)?\.so(\.1[.0-9]*)?")


def _other_libibverbs() -> str | None:
    """The file of a libibverbs that the process has already, and that is not Pagewire's."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        files = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    own = {os.path.realpath(path) for path in (_STUB, library_path()) if path}
    return next((file for file in sorted(files) if _NAME.fullmatch(Path(file).name) and os.path.realpath(file) not in own), None)


def _is_engine(library: ctypes.CDLL) -> bool:
    return hasattr(library, "pw_version")


def _take_name() -> None:
    other = _other_libibverbs()
    if other:
        raise ImportError(
            f"pagewire.verbs: the process has another libibverbs already: {other}\n"
            "Import pagewire.verbs before the module that loads it, or start the program by `pagewire run`."
        )
    try:
        # Of `pagewire run`: its library answers this name.
        present = ctypes.CDLL("libibverbs.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        present = None
    if present is not None and _is_engine(present):
        return
    if _STUB is None:
        raise ImportError(
            "pagewire.verbs: this package was installed from a source tree, and has no libibverbs.so.1.\n"
            "Install the wheel, or start the program by `pagewire run`."
        )
    # Local: what this library has of the C library's functions must not stand before those of modules.
    ctypes.CDLL(str(_STUB), mode=os.RTLD_NOW | os.RTLD_LOCAL)


_take_name()
