"""Stores a run: its manifest, its index and a folder per trial, so that it can be resumed.

A trial's folder holds its `trace.json` and `grades.json`. During an attempt, `trace.jsonl` has a line for
each event, so that a kill loses nothing. A row is written last: a trial without a row is made again.

When a trial is made again, its earlier files move to `earlier-1`, `earlier-2`, … in its folder. Files that
a row still points to stay in place until they are replaced.
"""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from goent.domain.errors import ConfigError, GoentError, RequestError
from goent.domain.sandbox_port import SandboxLevelName
from goent.domain.types import Value
from goent.evals.eval_results import (
    CaseGrade,
    CaseKey,
    Row,
    RowFile,
    Rows,
    latest_rows,
    read_rows,
    remade_trials,
    row_line,
    to_json,
)
from goent.evals.reports.report_text import pluralize
from goent.evals.runner.trial_plan import RESERVED_PREFIXES, RunSelection
from goent.evals.traces import Trace
from goent.store.redactor import Redactor
from goent.system.plain_files import LARGE_FILE, NotPlainFile, read_plain
from goent.system.project_lock import take_lock

TRACE_FILE: Final = "trace.json"
GRADES_FILE: Final = "grades.json"
STREAM_FILE: Final = "trace.jsonl"
EARLIER_PREFIX: Final = "earlier-"


class _CostLine(Value, frozen=True, kw_only=True):
    cost_usd: float | None = None


def archive_files(folder: Path) -> None:
    """Moves a trial's files aside, but not folders, which are other trials'. Raises `OSError`."""
    if not folder.is_dir():
        return
    files = [path for path in folder.iterdir() if path.is_file()]
    if not files:
        return
    numbers = (path.name.removeprefix(EARLIER_PREFIX) for path in _earlier_folders(folder))
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    aside = folder / f"{EARLIER_PREFIX}{last + 1}"
    aside.mkdir()
    for file in files:
        try:
            os.link(file, aside / file.name)
        except OSError:  # a file system without links
            shutil.copy2(file, aside / file.name)
        if file.name != TRACE_FILE and not file.name.startswith("grades."):
            file.unlink()


def interrupted_cost_usd(folder: Path) -> float:
    """The known cost of attempts that have no row because of a kill."""
    return sum(map(_folder_cost_usd, (folder, *_earlier_folders(folder))))


def _folder_cost_usd(folder: Path) -> float:
    """A trial with a stream, or with attempts and no trace, has no row."""
    stream = folder / STREAM_FILE
    if not stream.exists() and (folder / TRACE_FILE).exists():
        return 0.0
    return _last_cost(stream) + sum(map(_last_cost, folder.glob("attempt-*.json")))


def superseded_rows(out: Path) -> Iterator[Row]:
    """Rows of trials that were made again, in indexes that a regrading has replaced."""
    for index in out.glob("index.*.jsonl"):
        rows = read_rows(index).rows
        last = {id(row) for row in latest_rows(rows)}
        yield from (row for row in rows if id(row) not in last)


def _earlier_folders(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"{EARLIER_PREFIX}*") if path.is_dir())


def _last_cost(file: Path) -> float:
    """Each line with a cost has the total so far; the last line may be cut."""
    cost = 0.0
    with suppress(FileNotFoundError, NotPlainFile):
        for line in read_plain(file, LARGE_FILE).splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                cost = msgspec.json.decode(line, type=_CostLine).cost_usd or cost
    return cost


INDEX_FILE: Final = "index.jsonl"
MANIFEST_FILE: Final = "run.json"
LOCK_FILE: Final = ".lock"

SecretSource = Callable[[], Collection[str]]


class RunFolderUnwritable(GoentError):
    """The folder cannot be written: further trials would cost money and be lost."""

    exit_code = 3


class RunManifest(Value, frozen=True, kw_only=True):
    """What a run was asked for, so that it can be resumed and graded again.

    `files` are its inputs with their digests. `ended` is None during the run, and after a kill; `stopped`
    says why trials were left out, `graded_from` whose traces were graded; `gone` are trials in the index
    that the suites no longer have. Of the `planned` trials, `spared` are not made because their cases
    reached their cost limit; `remade` had failed in an index that was replaced. `sandbox` is the weakest
    confinement of agents, hooks and script graders; None if there were none.
    """

    suites: tuple[str, ...]
    targets_file: str | None = None
    wanted: RunSelection
    began: str
    files: Mapping[str, str] = {}
    ended: str | None = None
    exit_code: int | None = None
    stopped: str = ""
    graded_from: str | None = None
    gone: tuple[tuple[CaseKey, int], ...] = ()
    planned: int | None = None
    spared: tuple[tuple[CaseKey, int], ...] = ()
    remade: tuple[tuple[CaseKey, int], ...] = ()
    sandbox: SandboxLevelName | None = None


class _PendingWrite(NamedTuple):
    """Files to write, and then the row that makes them count."""

    files: Mapping[Path, bytes]
    line: bytes


class StoredRun:
    """The folder of one run, locked by one process."""

    def __init__(self, path: Path, secrets: SecretSource = tuple) -> None:
        self.path = path
        self._redactor = Redactor(secrets)
        self._redactor.refresh()
        self._index = INDEX_FILE
        self._rows: RowFile | None = None
        self._waiting: list[_PendingWrite] = []
        self._write_lock = anyio.Lock()
        self._error: RunFolderUnwritable | None = None

    @classmethod
    @contextmanager
    def open(cls, path: Path, secrets: SecretSource = tuple) -> Generator["StoredRun"]:
        """`secrets` are never written. Raises `RequestError` if it is in use, `ConfigError` if it cannot be made."""
        cls(path).check_no_other_files()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            lock = take_lock(path, LOCK_FILE)
        except OSError as error:
            raise _unusable_folder(path, error.strerror or str(error)) from error
        if lock is None:
            raise RequestError(
                f"{str(path)!r}: another `go-ent eval` is writing there; wait for it, or name another --out"
            )
        folder = cls(path, secrets)
        try:
            yield folder
        finally:
            if folder._rows is not None:
                folder._rows.close()
            os.close(lock)

    def check_usable(self) -> None:
        """Raises `ConfigError` if it could not be made, without making anything."""
        there = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        if not there.is_dir():
            raise _unusable_folder(self.path, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise _unusable_folder(self.path, os.strerror(errno.EACCES))
        self.check_no_other_files()

    def check_no_other_files(self) -> None:
        """Raises `ConfigError` if it holds other files, which a case's folder could overwrite."""
        if self.is_used or not self.path.is_dir() or (self.path / f"{INDEX_FILE}.new").exists():
            return  # that one is left by a grading that was killed
        with suppress(OSError):  # writing there will report it
            others = [each.name for each in self.path.iterdir() if not _is_run_file(each.name)]
            if others:
                raise ConfigError(
                    f"{str(self.path)!r} holds other files, such as {min(others)!r}: name another --out"
                )

    @property
    def is_used(self) -> bool:
        return (self.path / INDEX_FILE).exists() or (self.path / MANIFEST_FILE).exists()

    def encode(self, value: Value) -> bytes:
        """As JSON, without secrets."""
        return self._redactor.redact(to_json(value))

    def redact(self, text: str) -> str:
        """A target's text, without secrets. Names of cases and files are the user's, and stay."""
        return self._redactor.redact(text.encode()).decode(errors="replace")

    def rows(self) -> Rows:
        index = self.path / INDEX_FILE
        return read_rows(index) if index.exists() else Rows()

    def start_new_index(self) -> int:
        """Writes rows to a new index until `replace_index`. Returns the number of the last replaced one, or 0."""
        self._index = f"{INDEX_FILE}.new"
        try:
            (self.path / self._index).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        numbers = (path.name.split(".")[1] for path in self.path.glob("index.*.jsonl"))
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def replace_index(self, number: int) -> None:
        """Keeps the old one as `index.<number>.jsonl`."""
        fresh, index = self.path / self._index, self.path / INDEX_FILE
        try:
            if index.exists():
                os.link(index, self.path / f"index.{number}.jsonl")
            fresh.replace(index)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._index = INDEX_FILE

    def discard_new_index(self, grades: Iterable[str]) -> None:
        """Removes the new index and its grades: the old ones count."""
        with suppress(OSError):  # leftovers have no effect
            (self.path / self._index).unlink(missing_ok=True)
        for name in grades:
            file = self.path / name
            with suppress(OSError):
                file.unlink()
                for folder in file.parents:
                    if folder == self.path:
                        break
                    folder.rmdir()  # only if nothing else is in it
        self._index = INDEX_FILE

    def write_manifest(self, manifest: RunManifest) -> None:
        """Writes it atomically."""
        fresh = self.path / f"{MANIFEST_FILE}.new"
        try:
            fresh.write_bytes(msgspec.json.format(to_json(manifest)) + b"\n")
            fresh.replace(self.path / MANIFEST_FILE)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    async def store_trial(self, graded: CaseGrade, row: Row, *, trace: Trace | None = None) -> None:
        """Returns when all is on disk, even if cancelled: it was paid for. Raises `RunFolderUnwritable`.

        Trials that end together are written together.
        """
        files = {self.path / row.grades_path: self.encode(graded)}
        if trace is not None:
            files[self.path / row.trace_path] = self.encode(trace)
        kept = _PendingWrite(files, row_line(row))
        self._waiting.append(kept)
        with anyio.CancelScope(shield=True):
            async with self._write_lock:
                if any(
                    one is kept for one in self._waiting
                ):  # otherwise it was written with others
                    together, self._waiting = self._waiting, []
                    if self._error is None:
                        await to_thread.run_sync(self._write, together)
                if self._error is not None:
                    raise self._error

    def prepare_trial(self, folder: str) -> None:
        """Archives the files of an earlier try. Raises `RunFolderUnwritable`."""
        try:
            archive_files(self.path / folder)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def store_attempt(self, folder: str, attempt: int, trace: Trace) -> None:
        """Keeps a failed attempt of a trial that is retried."""
        into = self.path / folder
        try:
            into.mkdir(parents=True, exist_ok=True)
            (into / f"attempt-{attempt}.json").write_bytes(self.encode(trace))
            (into / STREAM_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _write(self, together: Sequence[_PendingWrite]) -> None:
        try:
            for path, told in (file for kept in together for file in kept.files.items()):
                path.parent.mkdir(parents=True, exist_ok=True)
                fresh = path.with_name(f"{path.name}.new")
                fresh.write_bytes(told)
                fresh.replace(path)  # archived files are links to the old one
            if self._rows is None:
                self._rows = RowFile(self.path / self._index)
            self._rows.append([kept.line for kept in together])
            for path in (
                path for kept in together for path in kept.files if path.name == TRACE_FILE
            ):
                path.with_name(STREAM_FILE).unlink(missing_ok=True)
        except OSError as error:
            self._error = _unwritable(self.path, error)


def read_manifest(path: Path) -> RunManifest:
    """Of a run's folder. Raises `RequestError`."""
    file = path / MANIFEST_FILE
    try:
        return msgspec.json.decode(read_plain(file, LARGE_FILE), type=RunManifest)
    except OSError as error:
        raise RequestError(
            f"{str(path)!r} is not the folder of a run: {error.strerror}: {MANIFEST_FILE}; "
            "name the folder of a run"
        ) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error}") from error


def current_rows(read: Rows, path: Path) -> Rows:
    """The last row of each trial that the run still has."""
    rows = latest_rows(read.rows)
    again = remade_trials(read.rows)
    gone = frozenset[tuple[CaseKey, int]]()
    with suppress(RequestError):  # rows without a manifest
        manifest = read_manifest(path)
        gone = frozenset(manifest.gone)
        again |= frozenset(manifest.remade)
    left = tuple(row for row in rows if (row.key, row.trial) not in gone)
    still = again & {(row.key, row.trial) for row in left}
    return replace(read, rows=left, dropped=len(rows) - len(left), remade=still)


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _is_run_file(name: str) -> bool:
    """Whether a run wrote it, or it is hidden."""
    return name.startswith((".", *RESERVED_PREFIXES))


def _unusable_folder(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{str(path)!r} cannot hold a run: {why}; name another --out")


def _unwritable(path: Path, error: OSError) -> RunFolderUnwritable:
    return RunFolderUnwritable(
        f"the run cannot be written to {str(path)!r}: {error.strerror or error}; "
        "make room or name another --out, then continue with --resume"
    )


class RunCompleteness(Value, frozen=True, kw_only=True):
    """Counts of trials: `planned` (None: unknown), `done`, and `skipped_for_cost`.

    `repeated` ones had failed and were made again, which makes rates look better. `stopped` says why
    trials were left out.
    """

    done: int
    planned: int | None = None
    skipped_for_cost: int = 0
    repeated: int = 0
    stopped: str = ""

    @property
    def unrun(self) -> int:
        return (
            0 if self.planned is None else max(0, self.planned - self.done - self.skipped_for_cost)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, a sentence each."""
        notes = (self.missing_text, self._skipped_text(), self._repeated_text())
        return tuple(filter(None, notes))

    @property
    def missing_text(self) -> str:
        """That trials are missing, and why."""
        why = f"stopped: {self.stopped}" if self.stopped else ""
        if not self.unrun:
            return why
        of = pluralize(self.planned or 0, "trial")
        left = f"{self.unrun:,} of {of} {_were(self.unrun)} not made"
        return f"{why}; {left}" if why else left

    def _skipped_text(self) -> str:
        if not self.skipped_for_cost:
            return ""
        return (
            f"{pluralize(self.skipped_for_cost, 'trial')} {_were(self.skipped_for_cost)} left out: "
            f"{'its case has' if self.skipped_for_cost == 1 else 'their cases have'} cost as much as cost_limit_usd allows"
        )

    def _repeated_text(self) -> str:
        if not self.repeated:
            return ""
        return (
            f"{pluralize(self.repeated, 'trial')} {_were(self.repeated)} made again after a failure: "
            "rates may be better than those of a first try"
        )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def run_completeness(read: Rows, path: Path) -> RunCompleteness:
    """By its current rows and its manifest."""
    made = RunCompleteness(done=len(read.rows), repeated=len(read.remade))
    try:
        manifest = read_manifest(path)
    except RequestError:
        return made
    spared = len(manifest.spared)
    return replace(
        made, planned=manifest.planned, skipped_for_cost=spared, stopped=manifest.stopped
    )
