"""Arrays in the registered heap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._library import ffi, lib

if TYPE_CHECKING:
    from numpy.typing import NDArray


def heap_array(address: int, elements: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """The array of so many elements at an object of the heap, which is freed when nothing uses the array or a view of it any more."""
    length = elements * kind.itemsize
    owned = ffi.gc(ffi.cast("char *", address), lib.pw_free, length)
    # The array holds the buffer, and that the memory.
    return np.frombuffer(ffi.buffer(owned, length), kind, elements)
