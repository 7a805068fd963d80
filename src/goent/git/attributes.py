"""Which files does the project want merged in a way of their own? As `.gitattributes` says.

`git merge` reads those of the checkout. A trial has no checkout, and git would read none: so just
these files are laid out for it.
"""

import os
from pathlib import Path
from typing import Final

import anyio

from goent.git.command import Git
from goent.git.contents import contents

NAME: Final = b".gitattributes"
FILE: Final = b"100"  # how the mode of a file begins, executable or not; a link is none


async def lay_out_attributes(git: Git, commit: str, folder: Path) -> None:
    """Write the commit's `.gitattributes` files below the folder, where they belong."""
    listed = await git.do("ls-tree", "-r", "-z", "--full-tree", commit)
    found: dict[bytes, bytes] = {}
    for entry in listed.output.split(b"\0"):
        about, _, path = entry.partition(b"\t")
        if path.rpartition(b"/")[2] == NAME and about.startswith(FILE) and _stays_below(path):
            found[path] = about.split(b" ")[2]
    for path, content in zip(found, await contents(git, list(found.values())), strict=True):
        await anyio.to_thread.run_sync(_write, folder / os.fsdecode(path), content)


def _stays_below(path: bytes) -> bool:
    return not {b"", b".", b"..", b".git"} & set(path.split(b"/"))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
