"""Where are the runs of a project? In a folder that git need not know of, each in one of its own."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from goent.domain.errors import ConfigError
from goent.plain_files import NotPlain, check_no_link, plain_folder

RUNS: Final = ".goent/evals"
KEPT: Final = ("run.json", "index.jsonl")
AT_ONCE: Final = 100  # runs that may begin within a second


def new_folder(project: Path) -> Path:
    """A folder for another run: it is made, so that nobody else who asks now is given it too."""
    runs = project / RUNS
    try:
        for folder in (runs.parent, runs):
            check_no_link(folder)
        runs.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), plain_folder(runs) as folder:
            folder.create(".gitignore", b"*\n")
        for name in _names():
            with suppress(FileExistsError):
                (runs / name).mkdir(mode=0o700)
                return runs / name
    except NotPlain as error:
        raise ConfigError(f"{error}, or name another folder as out") from None
    except OSError as error:
        raise ConfigError(
            f"{str(runs)!r} cannot be written: {error.strerror}; name another folder as out"
        ) from error
    raise ConfigError(f"{str(runs)!r} holds too many runs of this second: ask again")


def kept_runs(project: Path) -> tuple[Path, ...]:
    """The folders of runs there, newest first."""
    try:
        folders = sorted((project / RUNS).iterdir(), reverse=True)
    except OSError:
        return ()
    return tuple(each for each in folders if any((each / name).is_file() for name in KEPT))


def _names() -> Iterator[str]:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    yield stamp
    yield from (f"{stamp}-{number}" for number in range(2, AT_ONCE))
