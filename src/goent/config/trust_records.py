"""Records what a user has approved, project by project.

An approval is for content, not for a name: a record holds the acts as they were shown, with their
digests, and an act with another digest needs another approval. `GOENT_TRUST=1` in the environment
approves everything, for machines where nobody can be asked.
"""

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from goent.config.trust_materials import MAX_FILE_BYTES
from goent.domain.errors import EnvironmentTrouble
from goent.domain.settings import Act
from goent.domain.types import Value
from goent.system.plain_files import read_plain
from goent.system.project_folders import PRIVATE_MODE, project_key, state_dir, state_path

TRUST_VARIABLE: Final = "GOENT_TRUST"
TRUST_FOLDER: Final = "trust"


class TrustRecord(Value, frozen=True, kw_only=True):
    """The user's answers for one project. `declined` are digests of acts that were declined."""

    project: str
    trusted_at: str = ""
    acts: tuple[Act, ...] = ()
    declined: tuple[str, ...] = ()


class Approvals:
    """The approvals in force for one project."""

    def __init__(self, record: TrustRecord | None, *, everything: bool = False) -> None:
        self._digests = frozenset(act.digest for act in record.acts) if record else frozenset[str]()
        self._everything = everything

    def covers(self, act: Act) -> bool:
        return bool(act.digest) and (self._everything or act.digest in self._digests)

    def missing(self, acts: Iterable[Act]) -> tuple[Act, ...]:
        return tuple(act for act in acts if not self.covers(act))


def read_approvals(project: Path, environ: Mapping[str, str]) -> Approvals:
    """The user's approvals for the project."""
    everything = environ.get(TRUST_VARIABLE) == "1"
    return Approvals(read_record(project, environ), everything=everything)


def record_path(project: Path, environ: Mapping[str, str]) -> Path:
    return state_path(environ) / TRUST_FOLDER / f"{project_key(project)}.json"


def read_record(project: Path, environ: Mapping[str, str]) -> TrustRecord | None:
    """The record of a project; None if there is none or it is unreadable: then the user is asked again."""
    found = _read_record(record_path(project, environ))
    return found if found and found.project == os.path.realpath(project) else None


def all_records(environ: Mapping[str, str]) -> list[TrustRecord]:
    """The records of all projects, sorted by path."""
    folder = state_path(environ) / TRUST_FOLDER
    paths = folder.glob("*.json") if folder.is_dir() else ()
    return sorted(
        (r for path in paths if (r := _read_record(path))), key=lambda record: record.project
    )


def grant(project: Path, environ: Mapping[str, str], acts: Iterable[Act]) -> TrustRecord:
    """Approve exactly these acts; earlier approvals of the project are replaced."""
    record = TrustRecord(
        project=os.path.realpath(project),
        trusted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        acts=tuple(act for act in acts if act.digest),
    )
    _write_record(record, environ)
    return record


def decline(project: Path, environ: Mapping[str, str], acts: Iterable[Act]) -> None:
    """Record a refusal, so that the same is not asked again. Earlier approvals stay."""
    before = read_record(project, environ) or TrustRecord(project=os.path.realpath(project))
    declined = tuple(dict.fromkeys((*before.declined, *(act.digest for act in acts))))
    _write_record(msgspec.structs.replace(before, declined=declined), environ)


def revoke(project: Path, environ: Mapping[str, str]) -> bool:
    """Delete the project's record; False if there was none."""
    try:
        record_path(project, environ).unlink()
    except FileNotFoundError:
        return False
    return True


def _read_record(path: Path) -> TrustRecord | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(read_plain(path, MAX_FILE_BYTES), type=TrustRecord)
    return None


def _write_record(record: TrustRecord, environ: Mapping[str, str]) -> None:
    path = record_path(Path(record.project), environ)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        (state_dir(environ) / TRUST_FOLDER).mkdir(PRIVATE_MODE, exist_ok=True)
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
