"""Which files does the project want merged in a way of their own? As `.gitattributes` says.

`git merge` reads those of the checkout. A trial has no checkout, and git would read none: so just
these files are laid out for it, as far as they speak of the files that are merged.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import anyio

from goent.git.command import Git
from goent.git.contents import contents

NAME: Final = b".gitattributes"


async def lay_out_attributes(git: Git, commit: str, paths: Iterable[bytes], folder: Path) -> None:
    """Write the commit's attributes for these paths below the folder, where they belong."""
    wanted = sorted({above + NAME for path in paths for above in _folders_above(path)})
    names = [commit.encode() + b":" + path for path in wanted]
    for path, content in zip(wanted, await contents(git, names), strict=True):
        if content:
            await anyio.to_thread.run_sync(_write, folder / os.fsdecode(path), content)


def _folders_above(path: bytes) -> Iterable[bytes]:
    yield b""
    at = path.find(b"/")
    while at >= 0:
        yield path[: at + 1]
        at = path.find(b"/", at + 1)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
