"""How many events does the journal take per CPU second? `python -m bench.journal`"""

import tempfile
import time
from pathlib import Path

import anyio

from goent.domain.events import TextDelta
from goent.store.journal import SqliteJournal

EVENTS = 100_000
BATCH = 100


async def measure(path: Path, *, events: int, batch: int) -> dict[str, float]:
    secrets = ["sk-0123456789abcdefghijklmnop", "another-key-of-some-length-42"]
    async with SqliteJournal.open(path, secrets=lambda: secrets) as journal:
        text = "some words of a model, a delta's worth"
        began = time.process_time()
        for start in range(0, events, batch):
            await journal.append(
                [("w1", float(n), TextDelta(text=text)) for n in range(start, start + batch)]
            )
        written = time.process_time()
        cursor = 0
        while page := await journal.read(worker="w1", after=cursor):
            cursor = page[-1].seq
        read = time.process_time()
    return {
        "append_per_cpu_s": round(events / (written - began)),
        "read_per_cpu_s": round(events / (read - written)),
    }


def run(*, events: int = EVENTS, batch: int = BATCH) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"

        async def main() -> dict[str, float]:
            return await measure(path, events=events, batch=batch)

        return anyio.run(main)


if __name__ == "__main__":
    for size in (1, 10, BATCH):
        print(f"batches of {size}: {run(events=EVENTS if size > 1 else 10_000, batch=size)}")
