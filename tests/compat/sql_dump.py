"""SQLite files as text: what a dump keeps of one, and how the file is made again.

A dump holds every row, the schema and `user_version`. `moved` is for state that is copied to another
folder: paths are written out in the rows.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

Content = tuple[int, list[tuple[object, ...]], dict[str, list[tuple[object, ...]]]]


def dump(database: Path) -> str:
    """The whole file as SQL. Nothing else may have it open."""
    with closing(sqlite3.connect(database)) as sql:
        (version,) = sql.execute("PRAGMA user_version").fetchone()
        lines = [*sql.iterdump(), f"PRAGMA user_version = {version:d};"]
    return "\n".join(lines) + "\n"


def restore(text: str, database: Path) -> None:
    """Make the file, in a folder that exists or is made."""
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(database)) as sql:
        sql.executescript(text)
    database.chmod(0o600)


def content(database: Path) -> Content:
    """All that can be told of a file: its version, its schema, and the rows of every table."""
    with closing(sqlite3.connect(database)) as sql:
        (version,) = sql.execute("PRAGMA user_version").fetchone()
        schema = sql.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
        found = schema.fetchall()
        rows = {name: sql.execute(f'SELECT * FROM "{name}"').fetchall() for name in _tables(sql)}
    return int(version), found, {name: sorted(each, key=repr) for name, each in rows.items()}


def moved(database: Path, old: str, new: str) -> None:
    """The rows speak of another folder, in texts and in bytes."""
    with closing(sqlite3.connect(database)) as sql, sql:
        for table in [name for name in _tables(sql) if not name.startswith("sqlite_")]:
            for _, column, *_ in sql.execute(f'PRAGMA table_info("{table}")').fetchall():
                for kind in ("text", "blob"):
                    changed = f'CAST(replace(CAST("{column}" AS TEXT), ?, ?) AS {kind})'
                    where = f"typeof(\"{column}\") = '{kind}'"
                    sql.execute(
                        f'UPDATE "{table}" SET "{column}" = {changed} WHERE {where}', (old, new)
                    )


def _tables(sql: sqlite3.Connection) -> Iterator[str]:
    found = sql.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return iter([str(name) for (name,) in found.fetchall()])
