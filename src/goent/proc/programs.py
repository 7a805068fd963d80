"""Finds a program by its name, in folders of the PATH that mean the same from everywhere.

An empty or relative entry of the PATH means the folder that a process works in, and that is
somebody's repository.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Where it lies; None if there is none. A name with a slash in it is a path, and is not searched."""
    if "/" in name:
        return shutil.which(name)
    return shutil.which(name, path=safe_path(environ.get("PATH", os.defpath)))


def safe_path(path: str) -> str:
    """The PATH without the entries that depend on where a process works."""
    return os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/"))


def path_outside(path: str, folder: Path) -> str:
    """The PATH without the entries in a folder where workers write."""
    here = folder.resolve()
    outside = (
        each for each in path.split(os.pathsep) if not Path(each).resolve().is_relative_to(here)
    )
    return os.pathsep.join(outside)


def located(command: Sequence[str | bytes], environ: Mapping[str, str]) -> tuple[str | bytes, ...]:
    """The command with its program's full path. Raises `FileNotFoundError` if there is none."""
    name = os.fsdecode(command[0])
    if "/" in name or "\0" in name:  # what cannot be started, the system says best
        return tuple(command)
    found = find_program(name, environ)
    if found is None:
        raise FileNotFoundError(2, "there is no such program in an absolute folder of the PATH")
    return (found, *command[1:])
