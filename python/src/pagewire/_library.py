"""The shared object of Pagewire, of which a process has one."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from ._abi import ffi as ffi

NAME = "libpagewire.so.1"


def _candidates() -> list[str]:
    chosen = os.environ.get("PAGEWIRE_LIBRARY")
    if chosen:
        return [chosen]
    carried = Path(__file__).parent / "lib" / NAME
    return ([str(carried)] if carried.is_file() else []) + [NAME]


def _is_loaded() -> bool:
    """Whether the process has the library already: `pagewire run`, or another module."""
    try:
        # By ctypes: where the library is found but not loaded, dlopen(3) fails without a message, which cffi 2.1 reads all the same.
        ctypes.CDLL(NAME, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _load() -> tuple[Any, str]:
    flags = os.RTLD_NOW | os.RTLD_LOCAL
    if _is_loaded():
        # A second one would be a second engine.
        return ffi.dlopen(NAME, flags | os.RTLD_NOLOAD), NAME
    reasons = []
    for candidate in _candidates():
        try:
            return ffi.dlopen(candidate, flags), candidate
        except OSError as error:
            reasons.append(f"  {error}")
    told = "\n".join(reasons)
    raise ImportError(
        f"pagewire: its library {NAME} cannot be loaded:\n{told}\n"
        "Install the package again, or set PAGEWIRE_LIBRARY to the file."
    )


lib, _path = _load()

# What this package was written for; the library says whether it serves that.
HEADER = lib.PW_VERSION


def library_path() -> str:
    """The file of the library, or its name if the process had it before."""
    return _path


def version() -> str:
    """The version of the library."""
    return str(ffi.string(lib.pw_version_text()), "utf-8")
