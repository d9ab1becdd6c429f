"""Puts what an install tree of Pagewire has into the package. Nothing is compiled here.

The tree of `make build` gives its library alone: its names of libibverbs are links, which a wheel cannot have, and pip would put a second
engine in their place. The tree that `packages/tree` makes has stubs for these names. With them the wheel also has the command, the
headers and the manual pages.
"""

import os
import shutil
from pathlib import Path

from cffi import FFI
from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

# Of setuptools, which has taken it over; so it stands after the imports of setuptools.
from distutils.command.build_scripts import build_scripts  # isort: skip

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

NAME = "libpagewire.so.1"
HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src" / "pagewire"


def find_tree() -> Path:
    """The install tree: PAGEWIRE_TREE, or what `make build` leaves beside this folder."""
    chosen = os.environ.get("PAGEWIRE_TREE")
    tree = Path(chosen) if chosen else HERE.parent / "build"
    if not (tree / "lib" / NAME).is_file():
        raise SystemExit(
            f"\npagewire: there is no {tree / 'lib' / NAME}.\n"
            f"The package carries Pagewire's library, which needs Rust to be built. Do one of these, then install again:\n"
            f"  install the wheel, which has the library\n"
            f"  run `make build` in {HERE.parent}\n"
            f"  set PAGEWIRE_TREE to an install tree that is built already\n"
        )
    return tree


TREE = find_tree()
NAMES = [file for file in sorted((TREE / "lib" / "pagewire").glob("lib*")) if not file.is_symlink()]
IS_WHOLE = bool(NAMES)


def write_declarations(package: Path) -> None:
    """The C declarations, parsed: that takes a tenth of a second, which no import needs to wait for."""
    base = FFI()
    base.cdef((SOURCE / "_declarations.h").read_text(encoding="ascii"))
    base.set_source("pagewire._abi", None)
    base.emit_python_code(str(package / "_abi.py"))
    experimental = FFI()
    experimental.include(base)
    experimental.cdef((SOURCE / "experimental" / "_declarations.h").read_text(encoding="ascii"))
    experimental.set_source("pagewire.experimental._abi", None)
    experimental.emit_python_code(str(package / "experimental" / "_abi.py"))


def copy_files(sources: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copy(source, folder)


def copy_tree(package: Path) -> None:
    """The engine, and, of a whole tree, what programs and compilers need."""
    library = TREE / "lib"
    copy_files([library / NAME], package / "lib")
    if not IS_WHOLE:
        return
    # libpagewire.so is a linker's script there (packages/link-stub).
    copy_files([library / "libpagewire-malloc.so.1", library / "libpagewire.so"], package / "lib")
    copy_files(NAMES, package / "lib" / "pagewire")
    for folder in ("lib/pkgconfig", "lib/cmake", "lib/pagewire/fallback", "include"):
        if (TREE / folder).is_dir():
            shutil.copytree(TREE / folder, package / folder, dirs_exist_ok=True)


class BuildWithTree(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            write_declarations(SOURCE)
        else:
            package = Path(self.build_lib) / "pagewire"
            write_declarations(package)
            copy_tree(package)


class CopyCommand(build_scripts):
    """The command is a binary file, in which setuptools would look for a first line."""

    def run(self) -> None:
        copy_files([Path(script) for script in self.scripts], Path(self.build_dir))


class PlatformWheel(bdist_wheel):
    """The library is for one platform, and for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", os.environ.get("PAGEWIRE_PLATFORM") or super().get_tag()[2]


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


def relative(file: Path) -> str:
    """setuptools takes no absolute path."""
    return os.path.relpath(file, HERE)


def shared_files() -> list[tuple[str, list[str]]]:
    """Manual pages and completions, where the prefix of an environment has them."""
    files = sorted(file for file in (TREE / "share").rglob("*") if file.is_file() and "doc" not in file.parts)
    folders = sorted({file.parent for file in files})
    return [
        (str(folder.relative_to(TREE)), [relative(file) for file in files if file.parent == folder]) for folder in folders
    ]


setup(
    cmdclass={"build_py": BuildWithTree, "build_scripts": CopyCommand, "bdist_wheel": PlatformWheel},
    distclass=WithLibrary,
    scripts=[relative(TREE / "bin" / "pagewire")] if IS_WHOLE else [],
    data_files=shared_files() if IS_WHOLE else [],
)
