"""Waits for any or all of several operations and signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple

from ._errors import TimeoutError, check
from ._integers import unsigned
from ._library import ffi, lib
from ._operation import Operation
from ._timeouts import code_in_slices, in_slices

if TYPE_CHECKING:
    from ._node import Signal


class Wish(NamedTuple):
    """What a signal is to be: made by `Signal.wish(greater=3)` and the like."""

    signal: Signal
    comparison: int
    value: int


_COMPARISONS = {
    "equal": lib.PW_EQUAL,
    "not_equal": lib.PW_NOT_EQUAL,
    "greater": lib.PW_GREATER,
    "at_least": lib.PW_AT_LEAST,
    "less": lib.PW_LESS,
    "at_most": lib.PW_AT_MOST,
}


def comparison_of(**wished: int | None) -> tuple[int, int]:
    """The comparison and the value of the one argument that is given."""
    given = [(name, value) for name, value in wished.items() if value is not None]
    if len(given) != 1:
        raise TypeError(f"a signal is waited for by exactly one of {', '.join(_COMPARISONS)}")
    name, value = given[0]
    return _COMPARISONS[name], unsigned(value, "what a signal is waited for")


def _handles(operations: Iterable[Operation[Any]]) -> tuple[list[Operation[Any]], Any]:
    kept = list(operations)
    for operation in kept:
        operation._check_process()
    return kept, ffi.new("pw_operation *[]", [operation._handle or ffi.NULL for operation in kept])


def _ends(timeout: float | None, call: Callable[[int], int], late: str) -> None:
    check(code_in_slices(timeout, call, late, lib.PW_UNFINISHED))


def wait_any(operations: Iterable[Operation[Any]], timeout: float | None = None) -> int:
    """Waits until one of several operations has ended, done or not, and gives its place: its wait() then gives the result at once. timeout: seconds; 0
    looks once.

    Raises TimeoutError. Raises ValueError: there are no operations.
    """
    return wait_some(operations, timeout)[0]


def wait_some(operations: Iterable[Operation[Any]], timeout: float | None = None) -> list[int]:
    """Waits until at least one of several operations has ended, and gives the places of all that have. As wait_any()."""
    kept, handles = _handles(operations)
    if not kept:
        raise ValueError("there are no operations to wait for")
    ended = [place for place, operation in enumerate(kept) if operation._handle is None]
    indices, found = ffi.new("size_t[]", len(kept)), ffi.new("size_t *")
    call = lambda time: int(lib.pw_wait_some(handles, len(kept), time, indices, found))
    try:
        _ends(0 if ended else timeout, call, "none of the operations has ended")
    except TimeoutError:
        if not ended:
            raise
    return sorted(ended + [int(indices[number]) for number in range(found[0])])


def wait_all(operations: Iterable[Operation[Any]], timeout: float | None = None) -> list[Any]:
    """Waits until all of several operations have ended, and gives their results. timeout: seconds; 0 looks once.

    Raises TimeoutError: one has not ended. Raises the failure of the first one that has failed.
    """
    kept, handles = _handles(operations)
    failed = ffi.new("int *")

    def call(time: int) -> int:
        failed[0] = lib.pw_wait_all(handles, len(kept), time)
        # Each one raises its own failure.
        return int(failed[0]) if failed[0] == lib.PW_UNFINISHED else 0

    _ends(timeout, call, "not all operations have ended")
    return [operation.wait() for operation in kept]


def _wishes(wishes: Iterable[Wish]) -> tuple[list[Wish], Any, Any]:
    kept = list(wishes)
    if not kept:
        raise ValueError("there are no signals to wait for")
    given = ffi.new("pw_signal_wish[]", len(kept))
    for place, wish in enumerate(kept):
        given[place].word = wish.signal._word()
        given[place].value = wish.value
        given[place].wish = wish.comparison
    return kept, kept[0].signal._node._open(), given


def signal_wait_any(wishes: Iterable[Wish], timeout: float | None = None) -> int:
    """Waits until one of several signals is as wished, and gives its place: `signal_wait_any([one.wish(at_least=1), other.wish(equal=7)])`. timeout: seconds;
    0 looks once.

    Raises TimeoutError. Raises ValueError: there are no signals.
    """
    kept, node, given = _wishes(wishes)
    index = ffi.new("size_t *")
    call = lambda time: int(lib.pw_signal_wait_any(node, given, len(kept), time, index))
    in_slices(timeout, call, "none of the signals was as wished")
    return int(index[0])


def signal_wait_some(wishes: Iterable[Wish], timeout: float | None = None) -> list[int]:
    """Waits until at least one of several signals is as wished, and gives the places of all that are. As signal_wait_any()."""
    kept, node, given = _wishes(wishes)
    indices, found = ffi.new("size_t[]", len(kept)), ffi.new("size_t *")
    call = lambda time: int(lib.pw_signal_wait_some(node, given, len(kept), time, indices, found))
    in_slices(timeout, call, "none of the signals was as wished")
    return [int(indices[number]) for number in range(found[0])]


def signal_wait_all(wishes: Iterable[Wish], timeout: float | None = None) -> None:
    """Waits until all of several signals are as wished at once. As signal_wait_any()."""
    kept, node, given = _wishes(wishes)
    call = lambda time: int(lib.pw_signal_wait_all(node, given, len(kept), time))
    in_slices(timeout, call, "not all signals were as wished at once")
