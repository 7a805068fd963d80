"""What a person has said yes to, project by project, in their own state folder.

A yes is for content, not for a name: a record holds the acts as they were shown, with their
digests, and whatever has another digest waits for another yes. `GOENT_TRUST=1` in the environment
says yes to everything, for machines where nobody can be asked.
"""

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.errors import EnvironmentTrouble
from goent.domain.trust import Act
from goent.domain.types import Value
from goent.plain_files import read_plain
from goent.project import PRIVATE, project_key, state_dir, state_path

VARIABLE: Final = "GOENT_TRUST"
FOLDER: Final = "trust"
MOST_BYTES: Final = 16_000_000


class Record(Value, frozen=True, kw_only=True):
    """What was said of one project. `declined` are digests that somebody has said no to."""

    project: str
    trusted_at: str = ""
    acts: tuple[Act, ...] = ()
    declined: tuple[str, ...] = ()


class Approvals:
    """What holds for one project now."""

    def __init__(self, record: Record | None, *, everything: bool = False) -> None:
        self._digests = frozenset(act.digest for act in record.acts) if record else frozenset[str]()
        self._everything = everything

    def cover(self, act: Act) -> bool:
        return bool(act.digest) and (self._everything or act.digest in self._digests)

    def missing(self, acts: Iterable[Act]) -> tuple[Act, ...]:
        return tuple(act for act in acts if not self.cover(act))


def approvals(project: Path, environ: Mapping[str, str]) -> Approvals:
    """What the user has allowed for the project."""
    everything = environ.get(VARIABLE) == "1"
    return Approvals(read_record(project, environ), everything=everything)


def record_path(project: Path, environ: Mapping[str, str]) -> Path:
    return state_path(environ) / FOLDER / f"{project_key(project)}.json"


def read_record(project: Path, environ: Mapping[str, str]) -> Record | None:
    """None if nothing was said, or what was written down cannot be read: then it is asked again."""
    found = _read(record_path(project, environ))
    return found if found and found.project == os.path.realpath(project) else None


def all_records(environ: Mapping[str, str]) -> list[Record]:
    """Of all projects, by their paths."""
    folder = state_path(environ) / FOLDER
    paths = folder.glob("*.json") if folder.is_dir() else ()
    return sorted((r for path in paths if (r := _read(path))), key=lambda record: record.project)


def grant(project: Path, environ: Mapping[str, str], acts: Iterable[Act]) -> Record:
    """Remember a yes to exactly these, instead of what was remembered before."""
    record = Record(
        project=os.path.realpath(project),
        trusted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        acts=tuple(act for act in acts if act.digest),
    )
    _write(record, environ)
    return record


def decline(project: Path, environ: Mapping[str, str], acts: Iterable[Act]) -> None:
    """Remember a no, so that the same is not asked again. What was allowed stays allowed."""
    before = read_record(project, environ) or Record(project=os.path.realpath(project))
    declined = tuple(dict.fromkeys((*before.declined, *(act.digest for act in acts))))
    _write(msgspec.structs.replace(before, declined=declined), environ)


def revoke(project: Path, environ: Mapping[str, str]) -> bool:
    """Forget what was said of the project; False if nothing was."""
    try:
        record_path(project, environ).unlink()
    except FileNotFoundError:
        return False
    return True


def _read(path: Path) -> Record | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(read_plain(path, MOST_BYTES), type=Record)
    return None


def _write(record: Record, environ: Mapping[str, str]) -> None:
    path = record_path(Path(record.project), environ)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        (state_dir(environ) / FOLDER).mkdir(PRIVATE, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, no path)
            file.write(msgspec.json.encode(record))
        fresh.replace(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise EnvironmentTrouble(
            f"cannot write {str(path)!r}: {error.strerror}; check the folder's owner and disk"
        ) from error
