"""The process that has made an object. A forked child has no part in the objects of its parent."""

from __future__ import annotations

import os

from ._errors import Error
from ._library import lib

# Forks between the process that has imported the package and this one. A child in another PID namespace may have the PID of its parent.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class ProcessObject:
    """An object of the library that belongs to the process that has made it.

    The library refuses its calls in a forked child. _check_process() is for what Python answers by itself, or by a call that gives no code. Destructors do not
    call it, because they are silent in the child.
    """

    #: Names it in sentences.
    _what: str

    def __init__(self) -> None:
        self._forks = _forks

    def _check_process(self) -> None:
        """Raises Error with the code FORKED in a forked child."""
        if self._forks != _forks:
            # The library has the same sentence.
            why = f"this process was forked from the one that has the {self._what}, which stays the parent's: make one here"
            raise Error(lib.PW_FORKED, why)
