"""Which commit does a clone begin with, and where are its objects?"""

from pathlib import Path
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.evals.workspaces.folders import RunFolder
from goent.evals.workspaces.once import Once
from goent.git.aside import common
from goent.git.command import Git
from goent.git.repository import NoRepository, look

FETCHING_S: Final = 600.0
NO_REPOSITORY: Final = (
    "{folder!r} is in no git repository; use `template` for a folder that is none, or run `git init` "
    "there and make a first commit"
)


class Origin(Value, frozen=True, kw_only=True):
    """A commit of a repository that is on this machine; `folder` is the run's own copy of a remote one."""

    repository: Path
    commit: str
    folder: Path | None = None


class Origins:
    """A repository elsewhere is fetched once for a run; one that is here is read where it is."""

    def __init__(self, run: RunFolder, git: Git) -> None:
        self._run = run
        self._git = git
        self._fetched: Once[str, Path] = Once()
        self._found: Once[tuple[str, str], Origin] = Once()

    async def of(self, repository: str, ref: str) -> Origin:
        """Raises a `GoentError` that says which repository or commit is not there."""
        return await self._found.get((repository, ref), lambda: self._look(repository, ref))

    async def _look(self, repository: str, ref: str) -> Origin:
        if is_here(repository):
            try:
                found = await look(self._git.at(Path(repository)), ref or "HEAD")
            except NoRepository:
                raise RequestError(NO_REPOSITORY.format(folder=repository)) from None
            return Origin(repository=common(found.repository), commit=found.commit)
        folder = await self._fetched.get(repository, lambda: self._fetch(repository))
        found = await look(self._git.at(folder / "origin.git"), ref or "HEAD")
        return Origin(repository=found.repository, commit=found.commit, folder=folder)

    async def _fetch(self, repository: str) -> Path:
        folder = await self._run.new("origin")
        cloning = ("clone", "--quiet", "--bare", "--", repository, "origin.git")
        await self._git.at(folder).do(*cloning, timeout=FETCHING_S)
        return folder


def is_here(repository: str) -> bool:
    return Path(repository).is_dir()
