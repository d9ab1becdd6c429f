"""Puts the shared object that `make build` has made into the package. Nothing is compiled here."""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

NAME = "libpagewire.so.1"
HERE = Path(__file__).resolve().parent


def library() -> Path:
    """The shared object: PAGEWIRE_LIBRARY, or what `make build` leaves in the tree of the source."""
    chosen = os.environ.get("PAGEWIRE_LIBRARY")
    path = Path(chosen) if chosen else HERE.parent / "build" / "lib" / NAME
    if not path.is_file():
        raise SystemExit(
            f"\npagewire: there is no {path}.\n"
            f"The package carries Pagewire's library, which needs Rust to be built. Do one of these, then install again:\n"
            f"  run `make build` in {HERE.parent}\n"
            f"  set PAGEWIRE_LIBRARY to a {NAME} that is built already\n"
        )
    return path


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "pagewire" / "lib"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(library(), folder / NAME)


class PlatformWheel(bdist_wheel):
    """The library is for one platform, and for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel}, distclass=WithLibrary)
