"""`python -m pagewire`: the command, where its folder is not in PATH."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path


def find_command() -> Path:
    """The command that pip has put beside Python's scripts: of this environment, of the user, or of `pip install --target`; else the one in PATH."""
    folders: list[str | Path] = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    folders.append(Path(__file__).parents[1] / "bin")
    places = [Path(folder) / "pagewire" for folder in folders]
    # A distribution's package has it in a folder of its own choice.
    in_path = shutil.which("pagewire")
    places += [Path(in_path)] if in_path else []
    found = next((place for place in places if os.access(place, os.X_OK)), None)
    if found is None:
        listed = "\n".join(f"  {place}" for place in places)
        sys.exit(f"pagewire: the command is in none of its places:\n{listed}\nInstall the wheel: a source tree has it in build/bin")
    return found


if __name__ == "__main__":
    command = find_command()
    os.execv(command, [str(command), *sys.argv[1:]])
