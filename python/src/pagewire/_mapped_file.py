"""Files as exported memory: a file is mapped, not read in, and peers access its pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._applications import _Application, _path
from ._errors import check
from ._integers import count
from ._library import ffi, lib
from ._token import Token

if TYPE_CHECKING:
    from ._node import Node

# PW_TO_END (pagewire.h).
TO_END = 2**64 - 1


class MappedFile(_Application):
    """A file whose pages peers access, until it is closed. Nothing is read in: pages come when peers access them, and what peers write goes to the file. Others
    may change the file at any time. An access behind the new end of one that was truncated raises Error at its caller."""

    _end = staticmethod(lib.pw_mapped_file_close)
    _what = "mapped file"

    def __init__(self, node: Node, path: str | os.PathLike[str], writable: bool, length: int | None) -> None:
        mode = lib.PW_FILE_WRITABLE if writable else lib.PW_FILE_READ_ONLY
        if length is not None and not writable:
            raise TypeError("a length is for a file that is writable")
        wanted = TO_END if length is None else count(length, "bytes")
        place = ffi.new("pw_mapped_file **")
        check(lib.pw_map_file(node._open(), _path(path), mode, wanted, place))
        super().__init__(node, place[0])

    @property
    def nbytes(self) -> int:
        """Bytes of it: as many as it had when it was mapped."""
        with self._uses:
            return int(lib.pw_mapped_file_length(self._open()))

    def export(
        self, offset: int = 0, length: int | None = None, *, read: bool = False, write: bool = False, atomic: bool = False
    ) -> Token:
        """Makes a token of bytes of it, by default of all. It ends with node.unexport() or close(). write=True and atomic=True are for a file that is writable."""
        rights = read * lib.PW_READ | write * lib.PW_WRITE | atomic * lib.PW_ATOMIC
        token = ffi.new("pw_token *")
        size = TO_END if length is None else count(length, "bytes")
        self._call(lib.pw_mapped_file_export, count(offset, "bytes"), size, rights, token)
        return Token(bytes(ffi.buffer(token)))

    def sync(self) -> None:
        """Waits until what peers have written is on its device."""
        self._call(lib.pw_mapped_file_sync)
