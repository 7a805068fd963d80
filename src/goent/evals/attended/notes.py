"""What does a daemon note of a run, beside what the run writes itself?"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.errors import ConfigError
from goent.domain.evaluations import EvalState
from goent.domain.types import Value

ATTENDED: Final = "attended.json"
RESUME: Final = "go on with it by eval_run, resume {name!r}; what was finished is kept"


class Attended(Value, frozen=True, kw_only=True):
    """What a daemon noted of a run: how much it is to do, and how it ended."""

    total: int | None = None
    state: EvalState = "running"
    exit_code: int | None = None
    message: str = ""


def note(folder: Path, attended: Attended) -> None:
    """Raises `ConfigError`."""
    fresh = folder / f"{ATTENDED}.new"
    try:
        fresh.write_bytes(msgspec.json.encode(attended))
        fresh.replace(folder / ATTENDED)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise ConfigError(
            f"{str(folder / ATTENDED)!r} cannot be written: {error.strerror}; make room there, or "
            "begin another run in another folder by out"
        ) from error
