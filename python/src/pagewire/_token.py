"""Tokens: what names exported memory to other processes."""

from __future__ import annotations

from typing import Any

from ._library import ffi, lib


class Token(bytes):
    """Names exported memory. It is plain bytes: send them by any means. Who holds them can open it."""

    SIZE: int = lib.PW_TOKEN_SIZE

    def __new__(cls, data: bytes) -> Token:
        if len(data) != cls.SIZE:
            raise ValueError(f"a token has {cls.SIZE} bytes, and these are {len(data)}")
        return super().__new__(cls, data)

    def __repr__(self) -> str:
        return f"Token({bytes(self[:16]).hex()}...)"


def c_token(token: bytes) -> Any:
    """A token as the library takes it."""
    return ffi.new("pw_token *", {"bytes": Token(token)})
