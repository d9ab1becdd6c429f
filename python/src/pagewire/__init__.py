"""RDMA on memory that is never pinned: put, get, atomics and signals between processes, on numpy arrays.

A Node is this process as others see it. It exports arrays, whose tokens it sends to others by any means. Who holds a token opens it, and
puts and gets::

    node = pagewire.Node.from_env()
    table = node.zeros(1024, np.float64)             # a numpy array in registered memory
    tokens = node.all_gather(node.export(table, read=True, write=True))
    remote = node.open(tokens[(node.rank + 1) % node.size], np.float64)
    remote[10:20] = np.arange(10.0)                  # a put
    last = remote[1023]                              # a get
    await remote.put(10, table[:10])                 # in a coroutine; .wait() elsewhere

No call holds the GIL while it waits. `pagewire.experimental` has what may change with any release. `pagewire.verbs` gives other modules
libibverbs. A module of the package, and with it numpy and the library, is loaded when one of its names is first used.
"""

import ast
from importlib import import_module
from pathlib import Path


def _modules() -> dict[str, str]:
    """The names of the package, and the module that has each, by __init__.pyi, which type checkers read too."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {name.name: f".{statement.module}" for statement in imports for name in statement.names}


_MODULES = _modules()

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name], __name__), name)
    # The next use finds it without this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
