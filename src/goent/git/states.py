"""What state are a folder's files in? Cheap, and bounded: for comparing before with after."""

import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from goent.domain.types import Value
from goent.git.names import readable

MOST: Final = 50_000
SECONDS: Final = 3.0
GIT: Final = ".git"


class Snapshot(Value, frozen=True, kw_only=True):
    """Size and time of change of each file, by path from the folder. Not all, if incomplete."""

    states: Mapping[str, tuple[int, int]]
    complete: bool = True


async def snapshot(folder: Path, *, most: int = MOST, seconds: float = SECONDS) -> Snapshot:
    """What lies near the top comes first. Links are not followed, git's own files left out."""
    return await anyio.to_thread.run_sync(_walk, folder, most, seconds)


def _walk(folder: Path, most: int, seconds: float) -> Snapshot:
    states: dict[str, tuple[int, int]] = {}
    until = time.monotonic() + seconds
    ahead = deque([b""])
    top = os.fsencode(folder)
    while ahead:
        below = ahead.popleft()
        for entry in _entries(os.path.join(top, below)):  # noqa: PTH118 (a name need not be text)
            path = below + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != GIT.encode():
                    ahead.append(path + b"/")
                continue
            if len(states) >= most or time.monotonic() > until:
                return Snapshot(states=states, complete=False)
            if state := _state(entry):
                states[readable(path)] = state
    return Snapshot(states=states)


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # gone meanwhile, or not ours to read
        return []


def _state(entry: os.DirEntry[bytes]) -> tuple[int, int] | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
