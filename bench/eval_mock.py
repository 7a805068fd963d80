"""Do ten thousand cases take what ten take, ten thousand times? Memory flat, time linear.

The target answers at once, so what is seen is the runner: while it goes, its memory and its CPU time
are noted beside the number of rows that it has written.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import anyio
from bench.cost import Failed, cpu_of, ended_in_time, resident
from bench.place import GO_ENT, Place
from bench.table import Row
from msgspec import Struct

CASES = 10_000
EARLY, LATE = 2_000, 9_900
STRETCH = 1_000
WORKERS = 4
LOOK_S = 0.05
FLAT, SUMMED, LINEAR = 1.1, 1.5, 1.15


class Look(Struct, frozen=True, kw_only=True):
    """The runner at one moment: rows written, bytes of memory, seconds of CPU."""

    rows: int
    memory: int
    cpu: float


async def run(place: Place) -> list[Row]:
    folder = place.project.parent / "eval-mock"
    _write_suite(folder)
    looks = await anyio.to_thread.run_sync(partial(_watched, place, folder))
    name = f"{CASES:,} `mock` cases"
    return [
        Row(
            measure=f"{name}: memory (RSS) after {LATE:,}",
            unit="MB",
            ours=_at(looks, LATE).memory / 1e6,
            peer=_at(looks, EARLY).memory / 1e6,
            peer_name=f"after {EARLY:,}",
            at_most=FLAT,
        ),
        Row(
            measure=f"{name}: memory (RSS) when they are summed up",
            unit="MB",
            ours=max(look.memory for look in looks) / 1e6,
            peer=_at(looks, EARLY).memory / 1e6,
            peer_name=f"after {EARLY:,}",
            at_most=SUMMED,
        ),
        Row(
            measure=f"{name}: CPU per case in the last {2 * STRETCH:,}, the cheaper thousand",
            unit="ms",
            ours=_cheapest(looks, (LATE - 2 * STRETCH, LATE - STRETCH)),
            peer=_cheapest(looks, (1, STRETCH)),
            peer_name=f"in the first {2 * STRETCH:,}",
            at_most=LINEAR,
        ),
    ]


def _write_suite(folder: Path) -> None:
    (folder / ".goent").mkdir(parents=True)
    target = {"name": "fixed", "provider": "mock", "response": "The sky is blue."}
    (folder / ".goent" / "targets.yaml").write_text(json.dumps({"targets": [target]}))
    with (folder / "cases.jsonl").open("w") as file:
        for number in range(CASES):
            test = {
                "id": f"case-{number}",
                "input": "What colour is the sky?",
                "assertions": [{"type": "contains", "value": "blue"}],
            }
            file.write(f"{json.dumps(test)}\n")


def _watched(place: Place, folder: Path) -> Sequence[Look]:
    command = [*GO_ENT, "eval", "run", "cases.jsonl", "--workers", str(WORKERS), "--out", "out"]
    looks: list[Look] = []
    index = folder / "out" / "index.jsonl"
    written = 0
    with (
        (folder / "said").open("wb") as said,
        subprocess.Popen(
            command,
            cwd=folder,
            env=place.env,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        ) as process,
        ended_in_time(process),
    ):
        while not index.exists() and process.poll() is None:
            time.sleep(LOOK_S)
        with index.open("rb") as rows:
            while process.poll() is None:
                written += rows.read().count(b"\n")
                try:
                    looks.append(
                        Look(rows=written, memory=resident(process.pid), cpu=cpu_of(process.pid))
                    )
                except (Failed, OSError):  # it has just ended
                    break
                time.sleep(LOOK_S)
    if process.returncode:
        raise Failed(f"{' '.join(command)!r}: {(folder / 'said').read_text()[-2000:]}")
    return looks


def _at(looks: Sequence[Look], rows: int) -> Look:
    """The first look with so many rows; the last one may have missed a few."""
    return next((look for look in looks if look.rows >= rows), looks[-1])


def _cheapest(looks: Sequence[Look], begins: Iterable[int]) -> float:
    """What else the machine does only ever adds to a stretch; more cases would add to all of them."""
    return min(_per_case(_at(looks, begin), _at(looks, begin + STRETCH)) for begin in begins)


def _per_case(before: Look, after: Look) -> float:
    return (after.cpu - before.cpu) / (after.rows - before.rows) * 1000
