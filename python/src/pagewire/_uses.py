"""Calls of the library that use a handle, so that nobody frees it meanwhile."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from typing import Iterator


class Uses:
    """`with uses:` around each call. `with uses.none():` around what frees the handle."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._waiting = 0

    def __enter__(self) -> None:
        with self._changed:
            # Else calls of several threads in turn would hold the end back for ever.
            while self._waiting:
                self._changed.wait()
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def none(self) -> Iterator[None]:
        """Waits until no call is under way, and lets none begin within. Ctrl-C ends the wait, and then nothing was done."""
        with self._changed:
            self._waiting += 1
            try:
                while self._count:
                    self._changed.wait()
                yield
            finally:
                self._waiting -= 1
                self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._count > 0


_all: weakref.WeakSet[Uses] = weakref.WeakSet()


def _begin_in_child() -> None:
    """A forked child has none of the threads that were within calls, or held the locks."""
    for uses in list(_all):
        uses._begin()


os.register_at_fork(after_in_child=_begin_in_child)
