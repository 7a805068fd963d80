"""The port `Merging`, by git: compare pieces of work, join them, and hand over what came of it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio

from goent.domain.workspaces import Conflict, Merge, Piece
from goent.git import branches
from goent.git.aside import Aside, aside, carry_over, clear_trials
from goent.git.attributes import lay_out_attributes
from goent.git.command import Git
from goent.git.integration import Integration
from goent.git.scratch import a_checkout, clear_left_behind
from goent.git.survey import Survey, survey

Key = tuple[str, str, tuple[Piece, ...]]  # a survey's: repository, base and pieces


class GitMerging:
    """`root` is a private folder for what is needed for a moment; nobody else's."""

    def __init__(self, git: Git, root: Path) -> None:
        self._git = git
        self._root = root
        self._last: tuple[Key, Survey] | None = None  # who asks for conflicts soon asks for more

    async def conflicts(
        self, repository: str, base: str, pieces: Sequence[Piece]
    ) -> tuple[Conflict, ...]:
        git = self._at(repository)
        if known := self._known(_key(git, base, pieces)):
            return known.conflicts()
        async with aside(git.folder, self._root) as place:
            return (await self._surveyed(git, base, pieces, place)).conflicts()

    async def merge(
        self, repository: str, base: str, pieces: Sequence[Piece], message: str
    ) -> Merge:
        git = self._at(repository)
        async with aside(git.folder, self._root) as place:
            found = await self._surveyed(git, base, pieces, place)
            merge = await Integration(git, base, found, message, place).merge()
            if merge.commit != base:
                there = [base, *(piece.commit for piece in pieces)]
                await carry_over(git, merge.commit, there, place.env)
        return merge

    async def publish(
        self, repository: str, branch: str, commit: str, *, replaces: str | None = None
    ) -> None:
        await branches.publish(self._at(repository), branch, commit, replaces)

    async def apply(self, repository: str, checkout: Path, commit: str) -> str:
        return await branches.apply(self._git.at(checkout), Path(repository), commit)

    def scratch(self, repository: str, commit: str) -> AbstractAsyncContextManager[Path]:
        return a_checkout(self._at(repository), self._root, commit)

    async def sweep(self) -> None:
        """Clear away what a go-ent that was killed left in the root. For the daemon's start."""
        await clear_left_behind(self._git, self._root)
        await anyio.to_thread.run_sync(clear_trials, self._root)

    def _at(self, repository: str) -> Git:
        return self._git.at(Path(repository).absolute())

    async def _surveyed(self, git: Git, base: str, pieces: Sequence[Piece], place: Aside) -> Survey:
        key = _key(git, base, pieces)
        if known := self._known(key):
            await lay_out_attributes(git, base, known.lineage.merged_paths(known.met), place.tree)
            return known
        found = await survey(git, base, pieces, place)
        self._last = key, found
        return found

    def _known(self, key: Key) -> Survey | None:
        """Commits never change, so what was found out of them stays true."""
        return self._last[1] if self._last and self._last[0] == key else None


def _key(git: Git, base: str, pieces: Sequence[Piece]) -> Key:
    return str(git.folder), base, tuple(pieces)
