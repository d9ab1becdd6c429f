"""Integers of callers, as the library takes them: each call of the package that takes one asks here."""

from __future__ import annotations

from typing import Any

# PW_TO_END and PW_FOREVER (pagewire.h) stand for no number.
MOST_COUNT = 2**64 - 2


class IntegerOverflow(OverflowError, ValueError):
    """The integer has more bits than the argument, or is negative and the argument has no sign."""


def integer(value: Any, what: str) -> int:
    """An integer of any size. `what` names the argument."""
    try:
        return int(value.__index__())
    except AttributeError:
        raise TypeError(f"{what} is an integer, not {value!r}") from None


def _within(number: int, first: int, last: int, what: str) -> int:
    if not first <= number <= last:
        raise IntegerOverflow(f"{number} for {what}: an integer from {first} to {last} is needed")
    return number


def count(value: Any, what: str) -> int:
    """A count, a size or an offset: 64 bits without a sign."""
    return _within(integer(value, f"a number of {what}"), 0, MOST_COUNT, f"a number of {what}")


def number(value: Any, what: str) -> int:
    """What names one of several, as a rank or a colour: 64 bits without a sign."""
    return _within(integer(value, what), 0, MOST_COUNT, what)


def unsigned(value: Any, what: str, bits: int = 64) -> int:
    """An integer of so many bits without a sign."""
    return _within(integer(value, what), 0, 2**bits - 1, what)


def index(value: Any, what: str) -> int:
    """The index of an element, from the end if it is negative."""
    return _within(integer(value, what), -(2**63), 2**63 - 1, what)


def word(value: Any, what: str, is_signed: bool | None = None, bits: int = 64) -> int:
    """The bits of an integer. is_signed: whether its word has a sign; None: nobody knows, and both are taken."""
    half = 1 << (bits - 1)
    first = 0 if is_signed is False else -half
    last = half - 1 if is_signed else 2 * half - 1
    return _within(integer(value, what), first, last, what) % (2 * half)


def signed(value: int, bits: int) -> int:
    """The integer with a sign that has these bits."""
    return value - (1 << bits) if value >> (bits - 1) else value
