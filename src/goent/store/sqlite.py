"""How is a SQLite file made, opened and mended, and what do its errors ask of the user?"""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import Value

BUSY_S = 5.0  # how long another process may hold the lock

# How Python's module meets text that is no UTF-8, besides an error of its own without a code.
NOT_TEXT = (UnicodeDecodeError, SystemError)
# Our statements are few and right, so one that fails by its words or by a constraint was made for
# another file than this one has become.
DAMAGED = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
    | {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
)
REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_READONLY: "it cannot be written: check the owner and mode of file and folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check the owner and mode of the folder",
    sqlite3.SQLITE_IOERR: "the disk fails or is full: check it",
    sqlite3.SQLITE_BUSY: f"another process held it for {BUSY_S:g} s: end that process",
    **dict.fromkeys(DAMAGED, "it is damaged: stop go-ent, move the file away and start again"),
}


class Damaged(EnvironmentTrouble):
    """The file is no SQLite database, or no longer a sound one."""


class Schema(Value, frozen=True, kw_only=True):
    """What a fresh file is given, and an old one, version by version, where it lacks it.

    `probe` reads a little of each table of an old one.
    """

    steps: tuple[tuple[str, ...], ...]
    probe: str

    @property
    def version(self) -> int:
        return len(self.steps)


def connect(path: Path, schema: Schema) -> sqlite3.Connection:
    """A connection to a file that has the schema; a file that is new is the user's alone."""
    try:
        _create(path)
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot create {str(path)!r}: {error.strerror}; check the folder's owner, mode and disk"
        ) from error
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        _apply(connection, schema, path)
        connection.execute(schema.probe).fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # An existing file is not opened: closing a descriptor of it would drop the locks that
    # other connections of this process hold (POSIX).
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    # Two processes that make the same new file meet here, and SQLite asks no busy handler.
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _apply(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    if _version(connection) == schema.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    found = _version(connection)
    if found > schema.version:
        raise EnvironmentTrouble(
            f"{str(path)!r} has schema {found}, this go-ent knows {schema.version}: a newer go-ent "
            "wrote it; upgrade this one, or move the file away"
        )
    for statement in (statement for step in schema.steps[found:] for statement in step):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {schema.version:d}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def trouble(path: Path, error: Exception) -> EnvironmentTrouble:
    """SQLite's error in words that say what to do about it."""
    code = _code(error)
    kind = Damaged if code in DAMAGED else EnvironmentTrouble
    remedy = REMEDIES.get(code, "this is a fault of go-ent: please report it")
    return kind(f"cannot use {str(path)!r} ({error}): {remedy}")


def _code(error: Exception) -> int:
    # The lower byte; the rest is SQLite's finer distinction. Errors of the module have none.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    not_text = isinstance(error, NOT_TEXT) or "decode to UTF-8" in str(error)
    return sqlite3.SQLITE_CORRUPT if not_text else code


def move_aside(path: Path) -> Path:
    """Put a damaged file, with what belongs to it, where it disturbs nobody; nothing is deleted."""
    aside = path.with_name(f"{path.name}.corrupt-{time.time_ns() // 1_000_000}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside
