"""Where is it written down what OpenCode told in an attempt? JSON lines: a header, then each event as it came."""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

import msgspec

from goent.domain.types import Value
from goent.evals.ports import Attempt, LogChosen, Witness
from goent.store.redact import Redactor

FOLDER: Final = Path(".goent", "logs", "opencode")
SWITCH: Final = "GOENT_OPENCODE_STREAM_LOGS"
OFF: Final = ("0", "false", "off", "no")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Header(Value, frozen=True, kw_only=True):
    """The first line."""

    type: str = "goent.header"
    target: str
    eval: str
    attempt: int
    trial: int
    started: str


class StreamLog:
    """One file, or none. A disk that refuses costs the log, never the attempt."""

    def __init__(self, secrets: Callable[[], Collection[str]] = tuple) -> None:
        self.path: Path | None = None
        self._redactor = Redactor(secrets)
        self._file: BinaryIO | None = None
        self._warn: Callable[[str], None] = lambda _: None

    def begin(self, folder: Path, attempt: Attempt, witness: Witness) -> None:
        """Choose a file, tell the witness which, and write the header."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        path = folder / _name(attempt, now)
        header = Header(
            target=attempt.target,
            eval=attempt.case.id,
            attempt=attempt.number + 1,
            trial=attempt.trial,
            started=now,
        )
        self._warn = witness.warn
        try:
            _make(folder)
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            self._warn(f"no stream log: {str(path)!r} cannot be written: {error.strerror}")
            return
        self.path = path
        witness.log(
            LogChosen(
                file_path=str(path),
                target_name=attempt.target,
                eval_case_id=attempt.case.id,
                attempt=attempt.number,
            )
        )
        self._redactor.refresh()
        self.write(msgspec.json.encode(header))

    def write(self, event: bytes) -> None:
        """One line, on disk before the next event is looked at."""
        if self._file is None:
            return
        try:
            self._file.write(self._redactor.redact(event) + b"\n")
        except OSError as error:
            self._warn(f"the stream log {str(self.path)!r} ends early: {error.strerror}")
            self.end()

    def end(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def is_wanted(setting: bool, environ: Mapping[str, str]) -> bool:  # noqa: FBT001 (the one thing asked about)
    return setting and environ.get(SWITCH, "").strip().lower() not in OFF


def _make(folder: Path) -> None:
    """Our own folder is not for the user's repository."""
    folder.mkdir(parents=True, exist_ok=True)
    ignoring = folder.parent / ".gitignore"
    if folder.parts[-len(FOLDER.parts) :] == FOLDER.parts and not ignoring.exists():
        ignoring.write_text("*\n")


def _name(attempt: Attempt, now: str) -> str:
    when = re.sub(r"[:.+]", "-", now)
    again = (f"attempt-{attempt.number + 1}",) if attempt.number else ()
    parts = (when, attempt.target, attempt.case.id, *again, uuid4().hex[:8])
    return "_".join(_ODD.sub("_", part)[:80] for part in parts) + ".jsonl"
