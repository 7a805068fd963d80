"""How many events does the journal take per CPU second, and does writing slow its readers?

`python -m bench.journal` tells it for other sizes of batches too.
"""

import random
import statistics
import tempfile
import time
from pathlib import Path

import anyio
from msgspec import Struct

from goent.domain.events import TextDelta
from goent.store.journal_store import EventBatch, SqliteJournal

EVENTS = 100_000
BATCH = 100
TEXT = "some words of a model, a delta's worth"
SECRETS = ("sk-0123456789abcdefghijklmnop", "another-key-of-some-length-42")
PER_S = 2000  # events of forty lively workers
READS, BLOCKS = 200, 7


class Figures(Struct, frozen=True, kw_only=True):
    """Events per CPU second; seconds for a page, with nobody writing and with somebody."""

    appended: float
    read: float
    page_alone: float
    page_beside: float


async def measure(path: Path, *, events: int, batch: int) -> Figures:
    async with SqliteJournal.open(path, secrets=lambda: SECRETS) as journal:
        began = time.process_time()
        for start in range(0, events, batch):
            await journal.append(_batch(start, batch))
        written = time.process_time()
        cursor = 0
        while page := await journal.read(worker="w1", after=cursor):
            cursor = page[-1].seq
        read = time.process_time()
        alone, beside = await _pages(journal, events)
    return Figures(
        appended=events / (written - began),
        read=events / (read - written),
        page_alone=alone,
        page_beside=beside,
    )


async def _pages(journal: SqliteJournal, events: int) -> tuple[float, float]:
    """The median time of a page without and with a writer, measured in turns."""
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(BLOCKS):
        alone += await _reads(journal, events)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_write_on, journal, events)
            beside += await _reads(journal, events)
            tasks.cancel_scope.cancel()
    return statistics.median(alone), statistics.median(beside)


async def _reads(journal: SqliteJournal, events: int) -> list[float]:
    took: list[float] = []
    for _ in range(READS):
        after = random.randrange(events - BATCH)
        began = time.perf_counter()
        await journal.read(worker="w1", after=after, limit=BATCH)
        took.append(time.perf_counter() - began)
    return took


async def _write_on(journal: SqliteJournal, events: int) -> None:
    while True:
        await journal.append(_batch(events, BATCH))
        await anyio.sleep(BATCH / PER_S)


def _batch(start: int, size: int) -> EventBatch:
    return [("w1", float(n), TextDelta(text=TEXT)) for n in range(start, start + size)]


def run(*, events: int = EVENTS, batch: int = BATCH) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"

        async def main() -> Figures:
            return await measure(path, events=events, batch=batch)

        return anyio.run(main)


if __name__ == "__main__":
    for size in (1, 10, BATCH):
        print(f"batches of {size}: {run(events=EVENTS if size > 1 else 10_000, batch=size)}")
