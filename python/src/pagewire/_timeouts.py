"""Timeouts of callers. Long waits are cut into slices, so that Python sees Ctrl-C between them."""

from __future__ import annotations

import time
from typing import Callable

from ._errors import TimeoutError, check, last_error
from ._library import lib

# How long one call of the library waits, in nanoseconds.
SLICE = 100_000_000

# PW_FOREVER (pagewire.h).
FOREVER = 2**64 - 1


def nanoseconds(seconds: float | None) -> int:
    """A time as the library takes it. None: without a bound. A negative one is 0."""
    if seconds is None or seconds * 1e9 >= FOREVER:
        return FOREVER
    return 0 if seconds <= 0 else int(seconds * 1e9)


def code_in_slices(timeout: float | None, call: Callable[[int], int], late: str | None, unfinished: int) -> int:
    """Waits by a call that takes a time in nanoseconds and gives `unfinished` when that is over. Gives the first other code.

    late: what has not happened. The sentence of the library would name the last slice, and not the time of the caller. None: it names no time.
    """
    bound = nanoseconds(timeout)
    end = None if bound == FOREVER else time.monotonic_ns() + bound
    while True:
        code = call(SLICE if end is None else min(SLICE, max(0, end - time.monotonic_ns())))
        if code != unfinished:
            return code
        if end is not None and time.monotonic_ns() >= end:
            raise last_error(code) if late is None else TimeoutError(lib.PW_TIMEOUT, f"{late} within {bound / 1e9:g} s")


def in_slices(timeout: float | None, call: Callable[[int], int], late: str | None = None) -> None:
    """Waits by a call that gives PW_TIMEOUT when its time is over, and raises what else it gives: see code_in_slices()."""
    check(code_in_slices(timeout, call, late, lib.PW_TIMEOUT))
