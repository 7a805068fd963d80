"""What is kept of a run, and where? `OUT/run.json`, `OUT/index.jsonl`, and a folder for each trial.

A trial's folder holds its `trace.json` and `grades.json`. While an attempt goes on, `trace.jsonl` has a
line for whatever it told, so that a kill leaves what there was. A row is written when all else of
its trial is there: a trial without a row is one that has to be made again.
"""

import errno
import os
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import msgspec
from anyio import to_thread
from msgspec.structs import replace

from goent.domain.errors import ConfigError, GoentError, RequestError
from goent.domain.sandbox import Level
from goent.domain.types import Value
from goent.evals.grades import Graded
from goent.evals.rows import (
    CaseKey,
    Row,
    RowFile,
    Rows,
    latest,
    line_of,
    read_rows,
    remade,
    to_json,
)
from goent.evals.running.earlier import STREAM, TRACE, set_aside
from goent.evals.running.plan import RESERVED, Wanted
from goent.evals.traces import Trace
from goent.lock import take_lock
from goent.plain_files import LARGE, read_plain
from goent.store.redact import Redactor

INDEX: Final = "index.jsonl"
MANIFEST: Final = "run.json"
LOCK: Final = ".lock"

Secrets = Callable[[], Collection[str]]


class NotKept(GoentError):
    """The folder cannot be written: going on would spend money on what nobody will see."""

    exit_code = 3


class Manifest(Value, frozen=True, kw_only=True):
    """What a run was asked for, so that it can be gone on with and graded again.

    `files` are what it is made of, each with a digest. `ended` is None while it goes on, and after a kill;
    `stopped` says why trials were left out, `graded_from` whose traces were graded; `gone` are trials in
    the index that are none of the run's any more, for the suites have changed. Of `planned` trials, `spared`
    are not made, for their cases have cost enough; `remade` had failed before, in an index that was put aside.
    `sandbox` is how agents, hooks and script graders were confined, at the least; None if there were none.
    """

    suites: tuple[str, ...]
    targets_file: str | None = None
    wanted: Wanted
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
    sandbox: Level | None = None


class _Kept(NamedTuple):
    """Files with what is in them, and then the line that makes them count."""

    files: Mapping[Path, bytes]
    line: bytes


class Folder:
    """The folder of one run, held by one process."""

    def __init__(self, path: Path, secrets: Secrets = tuple) -> None:
        self.path = path
        self._redactor = Redactor(secrets)
        self._redactor.refresh()
        self._index = INDEX
        self._rows: RowFile | None = None
        self._waiting: list[_Kept] = []
        self._turn = anyio.Lock()
        self._broken: NotKept | None = None

    @classmethod
    @contextmanager
    def held(cls, path: Path, secrets: Secrets = tuple) -> Generator["Folder"]:
        """`secrets` are never written. Raises `RequestError` if another process is at it, `ConfigError` if it cannot be made."""
        cls(path).check_own()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            lock = take_lock(path, LOCK)
        except OSError as error:
            raise _no_folder(path, error.strerror or str(error)) from error
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

    def check(self) -> None:
        """Raises `ConfigError` if it cannot be made where it is to be; nothing is made for it."""
        there = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        if not there.is_dir():
            raise _no_folder(self.path, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise _no_folder(self.path, os.strerror(errno.EACCES))
        self.check_own()

    def check_own(self) -> None:
        """Raises `ConfigError` if files are there that no run has written: a case may be called as one of them."""
        if self.is_used or not self.path.is_dir() or (self.path / f"{INDEX}.new").exists():
            return  # a grading that was killed has left that one
        with suppress(OSError):  # told by whoever writes there
            others = [each.name for each in self.path.iterdir() if not _is_ours(each.name)]
            if others:
                raise ConfigError(
                    f"{str(self.path)!r} holds other files, such as {min(others)!r}: name another --out"
                )

    @property
    def is_used(self) -> bool:
        return (self.path / INDEX).exists() or (self.path / MANIFEST).exists()

    def encoded(self, value: Value) -> bytes:
        """As JSON, and without the keys that are held."""
        return self._redactor.redact(to_json(value))

    def clean(self, text: str) -> str:
        """What a target said, without keys. Names of cases and files are the user's own, and stay."""
        return self._redactor.redact(text.encode()).decode(errors="replace")

    def rows(self) -> Rows:
        index = self.path / INDEX
        return read_rows(index) if index.exists() else Rows()

    def begin_index(self) -> int:
        """Rows go to an index of their own, until `end_index` puts it in the place of the one that is there.

        Returns the number of the last one that was put aside, or 0.
        """
        self._index = f"{INDEX}.new"
        try:
            (self.path / self._index).unlink(missing_ok=True)
        except OSError as error:
            raise _not_kept(self.path, error) from error
        numbers = (path.name.split(".")[1] for path in self.path.glob("index.*.jsonl"))
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def end_index(self, number: int) -> None:
        """The one before is kept as `index.<number>.jsonl`."""
        fresh, index = self.path / self._index, self.path / INDEX
        try:
            if index.exists():
                os.link(index, self.path / f"index.{number}.jsonl")
            fresh.replace(index)
        except OSError as error:
            raise _not_kept(self.path, error) from error
        self._index = INDEX

    def drop_index(self, grades: Iterable[str]) -> None:
        """It is not to be, nor are the grades that were written for it: those from before count."""
        with suppress(OSError):  # what is left over counts for nothing
            (self.path / self._index).unlink(missing_ok=True)
        for name in grades:
            file = self.path / name
            with suppress(OSError):
                file.unlink()
                for folder in file.parents:
                    if folder == self.path:
                        break
                    folder.rmdir()  # only if nothing else is in it
        self._index = INDEX

    def note(self, manifest: Manifest) -> None:
        """At once, or not at all."""
        fresh = self.path / f"{MANIFEST}.new"
        try:
            fresh.write_bytes(msgspec.json.format(to_json(manifest)) + b"\n")
            fresh.replace(self.path / MANIFEST)
        except OSError as error:
            raise _not_kept(self.path, error) from error

    async def keep(self, graded: Graded, row: Row, *, trace: Trace | None = None) -> None:
        """All of it is on disk when this returns, also if it is cancelled: it was paid for.

        Those who come together are written together. Raises `NotKept`.
        """
        files = {self.path / row.grades_path: self.encoded(graded)}
        if trace is not None:
            files[self.path / row.trace_path] = self.encoded(trace)
        kept = _Kept(files, line_of(row))
        self._waiting.append(kept)
        with anyio.CancelScope(shield=True):
            async with self._turn:
                if any(one is kept for one in self._waiting):  # else it was written along
                    together, self._waiting = self._waiting, []
                    if self._broken is None:
                        await to_thread.run_sync(self._write, together)
                if self._broken is not None:
                    raise self._broken

    def begin(self, folder: str) -> None:
        """A trial is made there, maybe again. Raises `NotKept`."""
        try:
            set_aside(self.path / folder)
        except OSError as error:
            raise _not_kept(self.path, error) from error

    def put_aside(self, folder: str, attempt: int, trace: Trace) -> None:
        """An attempt of a trial that is tried again."""
        into = self.path / folder
        try:
            into.mkdir(parents=True, exist_ok=True)
            (into / f"attempt-{attempt}.json").write_bytes(self.encoded(trace))
            (into / STREAM).unlink(missing_ok=True)
        except OSError as error:
            raise _not_kept(self.path, error) from error

    def _write(self, together: Sequence[_Kept]) -> None:
        try:
            for path, told in (file for kept in together for file in kept.files.items()):
                path.parent.mkdir(parents=True, exist_ok=True)
                fresh = path.with_name(f"{path.name}.new")
                fresh.write_bytes(told)
                fresh.replace(path)  # what is set aside is the same file by another name
            if self._rows is None:
                self._rows = RowFile(self.path / self._index)
            self._rows.append([kept.line for kept in together])
            for path in (path for kept in together for path in kept.files if path.name == TRACE):
                path.with_name(STREAM).unlink(missing_ok=True)
        except OSError as error:
            self._broken = _not_kept(self.path, error)


def read_manifest(path: Path) -> Manifest:
    """Of a run's folder. Raises `RequestError`."""
    file = path / MANIFEST
    try:
        return msgspec.json.decode(read_plain(file, LARGE), type=Manifest)
    except OSError as error:
        raise RequestError(
            f"{str(path)!r} is no folder of a run: {error.strerror}: {MANIFEST}; "
            "name the folder that a run has written"
        ) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{str(file)!r} cannot be read: {error}") from error


def counting(read: Rows, path: Path) -> Rows:
    """Of what was read in a run's folder, the last row of each trial that is still the run's."""
    rows = latest(read.rows)
    again = remade(read.rows)
    gone = frozenset[tuple[CaseKey, int]]()
    with suppress(RequestError):  # rows of somebody else, or only they were kept
        manifest = read_manifest(path)
        gone = frozenset(manifest.gone)
        again |= frozenset(manifest.remade)
    left = tuple(row for row in rows if (row.key, row.trial) not in gone)
    still = again & {(row.key, row.trial) for row in left}
    return replace(read, rows=left, gone=len(rows) - len(left), remade=still)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _is_ours(name: str) -> bool:
    """Or hidden: nobody's work."""
    return name.startswith((".", *RESERVED))


def _no_folder(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{str(path)!r} is no folder that a run could be kept in: {why}; name another --out"
    )


def _not_kept(path: Path, error: OSError) -> NotKept:
    return NotKept(
        f"the run cannot be kept in {str(path)!r}: {error.strerror or error}; "
        "make room or name another --out, then go on with --resume"
    )
