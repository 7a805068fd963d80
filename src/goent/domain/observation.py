"""What became of the files of a folder between two moments. Who did it is another question: `policy.attribution`."""

from pathlib import Path
from typing import Protocol

from goent.domain.types import Value


class Changed(Value, frozen=True, kw_only=True):
    """A file that is new, gone or different. `path` is absolute.

    `at` is when it was changed last, as far as the file system tells: without `exact` it is the time of
    the folder that the file was in, or came with. Lines are None where they are not known.
    """

    path: str
    at: float | None = None
    exact: bool = True
    added: int | None = None
    removed: int | None = None


class Changes(Value, frozen=True, kw_only=True):
    """All of them but `more`; `unseen` says what could not be compared, and why."""

    files: tuple[Changed, ...] = ()
    more: int = 0
    unseen: str = ""


class Observation(Protocol):
    """How the files of a folder were at one moment."""

    async def changes(self) -> Changes:
        """What is different now."""
        ...

    async def close(self) -> None:
        """Forget it. Raises nothing."""
        ...


class Observer(Protocol):
    """Who looks at the files of a folder, and changes nothing there: no index, no ref, no file."""

    async def observe(self, cwd: Path, project: Path) -> Observation:
        """The project, if the directory lies in it; else the checkout around it, or itself."""
        ...
