"""What a repository's own configuration would make git run, as something that a person can allow."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from goent.domain.trust import Act, Material, act, digest
from goent.git.local_config import MOST_BYTES, Home, acting_lines, homes_around, read_texts
from goent.plain_files import read_plain

MOST_INCLUDED: Final = 50
# A partial clone: git fetches what is missing by itself, also when it is only asked for a log.
_PARTIAL: Final = re.compile(rb"promisor|partialclone")
# What can make a fetch run a program.
_FETCHES: Final = re.compile(
    rb"sshcommand|gitproxy|askpass|alternaterefscommand|variant|uploadpack|vcs|helper|allow"
)
_INCLUDED: Final = re.compile(rb"\bpath\s*=\s*(.+)", re.IGNORECASE)


def git_acts(*folders: Path) -> tuple[Act, ...]:
    """Of the repositories around the folders; nothing if there is none, or none runs anything."""
    homes = (read_texts(folder, None).home for folder in folders)
    commons = dict.fromkeys(home.common for home in homes if home)
    return tuple(found for common in commons for found in repository_acts(common))


def fetch_acts(folder: Path) -> tuple[Act, ...]:
    """Of the repositories around a folder in which any git command could run a program to fetch.

    go-ent's own git is told not to listen. For the git of another program there is no such way.
    """
    commons = dict.fromkeys(
        home.common
        for home in homes_around(folder)
        for whole in [b"\n".join(_with_included(home)).lower()]
        if _PARTIAL.search(whole) and _FETCHES.search(whole)
    )
    return tuple(found for common in commons for found in repository_acts(common))


def repository_acts(common: Path) -> tuple[Act, ...]:
    """Of a repository, by the directory that its checkouts share."""
    paths = (
        *(common / "config", common / "config.worktree"),
        *sorted(common.glob("worktrees/*/config.worktree")),
    )
    texts = {path: text for path in paths if (text := _text(path))}
    lines = [line for text in texts.values() for line in acting_lines(text)]
    if not lines:
        return ()
    materials = [
        Material(name=str(path.relative_to(common)), digest=digest(text))
        for path, text in texts.items()
    ]
    says = f"git runs or follows what it says: {'; '.join(line for line, _ in lines)}"
    if any(word == "path" for _, word in lines):  # an included file may say something else tomorrow
        says = f"{says}. Other files are included in it, so go-ent's git stays deaf to it"
        return (Act(file=str(common / "config"), key="", kind="git", says=says, digest=""),)
    return (act(file=str(common / "config"), kind="git", says=says, materials=materials),)


def trusted_by(allowed: Callable[[Act], bool]) -> Callable[[Path], bool]:
    """Whether a repository may run its own programs, for `Git`."""

    def is_trusted(common: Path) -> bool:
        acts = repository_acts(common)
        return bool(acts) and all(map(allowed, acts))

    return is_trusted


def _with_included(home: Home) -> Iterator[bytes]:
    """The repository's configuration files, and whatever files they may include."""
    waiting, seen = [home.common / "config", home.git_dir / "config.worktree"], set[str]()
    while waiting and len(seen) < MOST_INCLUDED:
        path = waiting.pop()
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        text = _text(path)
        yield text
        for value in _INCLUDED.findall(text):
            name = os.fsdecode(re.sub(rb'["\\]', b"", value).strip())
            waiting.append(path.parent / os.path.expanduser(name))  # noqa: PTH111 (a Path raises without a home)


def _text(path: Path) -> bytes:
    try:
        return read_plain(path, MOST_BYTES)
    except OSError:
        return b""
