"""What has an earlier making of a trial left, and where does it go when the trial is made again?

A kill leaves a stream without a row; `--retry` makes again what has both. All of it moves to `earlier-1`,
`earlier-2`, … in the trial's folder. What a row still points to stays in place until it is replaced.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.types import Value
from goent.evals.rows import Row, latest, read_rows
from goent.plain_files import LARGE, NotPlain, read_plain

TRACE: Final = "trace.json"
GRADES: Final = "grades.json"
STREAM: Final = "trace.jsonl"
EARLIER: Final = "earlier-"


class _Told(Value, frozen=True, kw_only=True):
    cost_usd: float | None = None


def set_aside(folder: Path) -> None:
    """Raises `OSError`. Folders in it are of other trials."""
    if not folder.is_dir():
        return
    files = [path for path in folder.iterdir() if path.is_file()]
    if not files:
        return
    numbers = (path.name.removeprefix(EARLIER) for path in _asides(folder))
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    aside = folder / f"{EARLIER}{last + 1}"
    aside.mkdir()
    for file in files:
        try:
            os.link(file, aside / file.name)
        except OSError:  # a file system without links
            shutil.copy2(file, aside / file.name)
        if file.name != TRACE and not file.name.startswith("grades."):
            file.unlink()


def cut_off_usd(folder: Path) -> float:
    """What attempts have cost, as far as they told, that a kill has kept from ever having a row."""
    return sum(map(_cut_off_usd, (folder, *_asides(folder))))


def _cut_off_usd(folder: Path) -> float:
    """A stream, or attempts without a trace, are of a trial that had no time for its row."""
    stream = folder / STREAM
    if not stream.exists() and (folder / TRACE).exists():
        return 0.0
    return _last_cost(stream) + sum(map(_last_cost, folder.glob("attempt-*.json")))


def superseded(out: Path) -> Iterator[Row]:
    """Rows of trials that were made again before a grading put its index in the place of theirs."""
    for index in out.glob("index.*.jsonl"):
        rows = read_rows(index).rows
        last = {id(row) for row in latest(rows)}
        yield from (row for row in rows if id(row) not in last)


def _asides(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"{EARLIER}*") if path.is_dir())


def _last_cost(file: Path) -> float:
    """Each line that tells a cost tells all of it so far; the last line may be cut."""
    cost = 0.0
    with suppress(FileNotFoundError, NotPlain):
        for line in read_plain(file, LARGE).splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                cost = msgspec.json.decode(line, type=_Told).cost_usd or cost
    return cost
