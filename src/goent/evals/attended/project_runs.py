"""Finds the runs of a project, and keeps the daemon's note of each."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.errors import ConfigError, RequestError
from goent.domain.evaluation_messages import EvalState
from goent.domain.types import Value
from goent.evals.runner.run_locations import RUNS_FOLDER, new_run_folder

NOTE_FILE: Final = "attended.json"
RESUME_REMEDY: Final = "go on with it by eval_run, resume {name!r}; what was finished is kept"


class AttendedNote(Value, frozen=True, kw_only=True):
    """The daemon's note of a run: its total, and how it ended."""

    total: int | None = None
    state: EvalState = "running"
    exit_code: int | None = None
    message: str = ""


def write_note(folder: Path, attended: AttendedNote) -> None:
    """Raises `ConfigError`."""
    fresh = folder / f"{NOTE_FILE}.new"
    try:
        fresh.write_bytes(msgspec.json.encode(attended))
        fresh.replace(folder / NOTE_FILE)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise ConfigError(
            f"{str(folder / NOTE_FILE)!r} cannot be written: {error.strerror}; make room there, or "
            "begin another run in another folder by out"
        ) from error


SHOWN_RUNS: Final = 5  # runs that are named to somebody who names none
RUN_FILES: Final = ("run.json", "index.jsonl", "attended.json")


class ProjectRuns:
    """The runs of one project."""

    def __init__(self, project: Path) -> None:
        self.project = project.resolve()
        self._runs = self.project / RUNS_FOLDER

    def new(self) -> Path:
        """Creates a folder for a new run."""
        return new_run_folder(self.project)

    def name(self, folder: Path) -> str:
        """The id of a run."""
        if folder.parent == self._runs:
            return folder.name
        return folder.relative_to(self.project).as_posix()

    def find(self, name: str, base: Path) -> Path:
        """The folder of an existing run."""
        own = self._runs / name
        try:
            if "/" not in name and name not in ("", ".", "..") and own.is_dir():
                return self.resolve_inside(str(own), base, "run_id") if own.is_symlink() else own
            folder = self.resolve_inside(name, base, "run_id")
            there = any((folder / sign).exists() for sign in RUN_FILES)
        except OSError as error:
            raise RequestError(f"run_id {name[:200]!r} cannot be used: {error.strerror}") from None
        if there:
            return folder
        known = ", ".join(self._latest_names()) or "none yet; eval_run makes one"
        raise RequestError(f"there is no run {name[:200]!r}; the latest are: {known}")

    def resolve_inside(self, asked: str, base: Path, what: str) -> Path:
        """A requested path, resolved, so that links cannot leave the project."""
        try:
            path = (base / Path(asked).expanduser()).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise RequestError(f"{what} {asked[:200]!r} cannot be used: {error}") from None
        if not path.is_relative_to(self.project):
            raise RequestError(
                f"{what} {asked[:200]!r} is outside of the project {str(self.project)!r}: evaluations "
                "read and write inside of it alone; `go-ent eval run` at a terminal takes any path"
            )
        return path

    def _latest_names(self) -> Iterable[str]:
        try:
            names = sorted(
                (each.name for each in self._runs.iterdir() if each.is_dir()), reverse=True
            )
        except OSError:
            return ()
        return names[:SHOWN_RUNS]
