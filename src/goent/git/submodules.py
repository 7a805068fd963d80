"""How do a repository's submodules get into a worktree of it, without asking anybody's server?

Each becomes a worktree as well, of the repository that the user's own checkout of the submodule has,
on a branch of the same name. One that the user has not checked out stays empty, as it is there.
"""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.domain.workspaces import Workspace
from goent.git import worktrees
from goent.git.command import Git
from goent.git.paths import make_folder
from goent.git.records import Record
from goent.git.repository import look

LINK = b"160000"  # the mode of an entry that is another repository's commit


async def submodules(
    git: Git, record: Record, registering: anyio.Lock
) -> AsyncGenerator[Record | str]:
    """Make them, outer ones first: a record of each, or why one stays empty."""
    origin, top = Path(record.workspace.origin), Path(record.workspace.path)
    for name, commit in await _linked(git.at(top), top):
        if not is_folder_of_its_own(origin / name):
            continue  # the user does not have it either
        try:
            made = await _made(git.at(origin / name), record, name, commit, registering)
        except GoentError as error:
            make_folder(top / name)  # else it would be missed, as if the worker had removed it
            yield f"the submodule {name!r} stays empty: {error}"
            continue
        yield made
        async for inner in submodules(git, made, registering):
            yield inner


async def _made(git: Git, outer: Record, name: str, commit: str, registering: anyio.Lock) -> Record:
    found = await look(git)
    path = Path(outer.workspace.path) / name
    workspace = Workspace(
        kind="worktree",
        path=str(path),
        cwd=str(path),
        origin=str(found.top),
        repository=str(found.repository),
        branch=outer.workspace.branch,
        base=commit,
    )
    record = replace(outer, workspace=workspace, carried=(), inner=())
    async with registering:
        git_dir = await worktrees.add(git, path, workspace.branch, commit)
    await worktrees.fill(git, path)
    return replace(record, git_dir=str(git_dir))


async def _linked(git: Git, top: Path) -> list[tuple[str, str]]:
    if not has_submodules(top):
        return []
    listed = await git.do("ls-files", "--stage", "-z")
    entries = (line.split(b"\t", 1) for line in listed.output.split(b"\0") if line)
    return [
        (os.fsdecode(path), head.split(b" ")[1].decode())
        for head, path in entries
        if head.startswith(LINK)
    ]


def has_submodules(top: Path) -> bool:
    return (top / ".gitmodules").exists()


def is_folder_of_its_own(submodule: Path) -> bool:
    """Checked out by the user: else git would take it for a part of what is around it."""
    return (submodule / ".git").exists()
