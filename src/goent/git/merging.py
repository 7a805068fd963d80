"""The port `Merging`, by git: compare pieces of work, join them, and hand over what came of it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio

from goent.domain.workspaces import Conflict, Merge, Piece
from goent.git import branches
from goent.git.aside import carry_over, clear_objects, objects_aside
from goent.git.command import Git
from goent.git.integration import Integration
from goent.git.scratch import a_checkout, clear_left_behind
from goent.git.survey import survey


class GitMerging:
    """`root` is a private folder for what is needed for a moment; nobody else's."""

    def __init__(self, git: Git, root: Path) -> None:
        self._git = git
        self._root = root

    async def conflicts(
        self, repository: str, base: str, pieces: Sequence[Piece]
    ) -> tuple[Conflict, ...]:
        git = self._git.at(Path(repository))
        async with objects_aside(git.folder, self._root) as env:
            return (await survey(git, base, pieces, env)).conflicts()

    async def merge(
        self, repository: str, base: str, pieces: Sequence[Piece], message: str
    ) -> Merge:
        git = self._git.at(Path(repository))
        async with objects_aside(git.folder, self._root) as env:
            found = await survey(git, base, pieces, env)
            merge = await Integration(git, base, found, message, env).merge()
            if merge.commit != base:
                there = [base, *(piece.commit for piece in pieces)]
                await carry_over(git, merge.commit, there, env)
        return merge

    async def publish(
        self, repository: str, branch: str, commit: str, *, replaces: str | None = None
    ) -> None:
        await branches.publish(self._git.at(Path(repository)), branch, commit, replaces)

    async def apply(self, repository: str, checkout: Path, commit: str) -> str:
        return await branches.apply(self._git.at(checkout), Path(repository), commit)

    def scratch(self, repository: str, commit: str) -> AbstractAsyncContextManager[Path]:
        return a_checkout(self._git.at(Path(repository)), self._root, commit)

    async def sweep(self) -> None:
        """Clear away what a go-ent that was killed left in the root. For the daemon's start."""
        await clear_left_behind(self._git, self._root)
        await anyio.to_thread.run_sync(clear_objects, self._root)
