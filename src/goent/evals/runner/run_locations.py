"""Finds and creates the folders in which a project keeps its evaluation runs."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from goent.domain.errors import ConfigError
from goent.system.plain_files import NotPlainFile, check_no_link, plain_folder

RUNS_FOLDER: Final = ".goent/evals"
RUN_FILES: Final = ("run.json", "index.jsonl")
MAX_PER_SECOND: Final = 100  # runs that start within a second


def new_run_folder(project: Path) -> Path:
    """Creates a folder for a new run, so that no other process gets the same."""
    runs = project / RUNS_FOLDER
    try:
        for folder in (runs.parent, runs):
            check_no_link(folder)
        runs.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), plain_folder(runs) as folder:
            folder.create(".gitignore", b"*\n")
        for name in _folder_names():
            with suppress(FileExistsError):
                (runs / name).mkdir(mode=0o700)
                return runs / name
    except NotPlainFile as error:
        raise ConfigError(f"{error}, or name another folder as out") from None
    except OSError as error:
        raise ConfigError(
            f"{str(runs)!r} cannot be written: {error.strerror}; name another folder as out"
        ) from error
    raise ConfigError(f"{str(runs)!r} holds too many runs of this second: try again")


def stored_runs(project: Path) -> tuple[Path, ...]:
    """The folders of runs there, newest first."""
    try:
        folders = sorted((project / RUNS_FOLDER).iterdir(), reverse=True)
    except OSError:
        return ()
    return tuple(each for each in folders if any((each / name).is_file() for name in RUN_FILES))


def _folder_names() -> Iterator[str]:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    yield stamp
    yield from (f"{stamp}-{number}" for number in range(2, MAX_PER_SECOND))
