"""Where is a word to be found? In files and processes that may go while one looks."""

import os
from collections.abc import Iterable
from pathlib import Path


def files_below(folder: Path) -> list[Path]:
    """A folder that is gone by its turn has none."""
    return [Path(root, name) for root, _, names in os.walk(folder) for name in names]


def spoken_by(pids: Iterable[int]) -> list[Path]:
    """Environment and arguments of processes."""
    return [Path(f"/proc/{pid}/{kind}") for pid in pids for kind in ("environ", "cmdline")]


def holding(word: str, paths: Iterable[Path]) -> list[Path]:
    """What is gone, or closed to us, holds nothing that anybody but root could read."""
    found: list[Path] = []
    for path in paths:
        try:
            if path.is_file() and word.encode() in path.read_bytes():
                found.append(path)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
