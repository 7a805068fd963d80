"""Is a task taken for what it is, on repositories never seen, and how long does it take?

The tasks are not part of the project. They are looked for beside the checkout, or where
`GOENT_TASKS` says; without them only the time is measured, on the words of the seeds.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import msgspec
from bench.learning import ROOT, Judged, NotLearned, judged
from bench.place import Place
from bench.table import Row

from goent.domain.task_profile import TaskText
from goent.routing.classification import classify
from goent.routing.task_features import Weights, load_weights

TASKS = ROOT.parent / "shared" / "routing-tasks" / "tuning.jsonl"
SEEDS = ROOT / "scripts" / "classifier_seeds.txt"
AT_LEAST = 1.0  # of the reference
AT_MOST_MS = 1.0
TRIES = 3
REFERENCE = "TF-IDF + logistic regression"


class _Task(msgspec.Struct):
    text: str


async def run(_: Place) -> list[Row]:
    """Every repository of the tasks is left out in turn, for us and for the reference alike."""
    path = Path(os.environ.get("GOENT_TASKS") or TASKS)
    texts = _texts(path)
    if texts is None:
        sys.stderr.write("(no tasks beside the checkout: name them in GOENT_TASKS) ")
        return _times(_seeds())
    rows = _times(texts)
    try:
        result = await judged(path)
    except NotLearned as problem:
        sys.stderr.write(f"(not judged: {problem}) ")
        return rows
    sys.stderr.write(f"\n{_matrix(result)}\n")
    return [*_figures(result), *rows]


def _texts(path: Path) -> list[str] | None:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return None
    return [msgspec.json.decode(line, type=_Task).text for line in lines]


def _seeds() -> list[str]:
    return SEEDS.read_text(encoding="utf-8").splitlines()


def _figures(result: Judged) -> list[Row]:
    ours, peer = result.ours, result.reference
    return [
        Row(
            measure=f"classify, unseen repositories: {measure}",
            unit="",
            ours=mine,
            peer=theirs,
            peer_name=REFERENCE,
            at_least=AT_LEAST,
        )
        for measure, mine, theirs in (
            ("type, share right", ours.accuracy, peer.accuracy),
            ("type, each type worth the same", ours.balanced, peer.balanced),
            ("size, rank correlation", ours.rank, peer.rank),
            ("size, rank, each type worth the same", ours.rank_balanced, peer.rank_balanced),
        )
    ]


def _times(texts: list[str]) -> list[Row]:
    """CPU time, the best of three tries: others may use the machine."""
    weights = load_weights()
    times = [min(_once(text, weights) for _ in range(TRIES)) for text in texts]
    p99 = statistics.quantiles(times, n=100)[-1]
    return [
        Row(measure="classify, a task, p50", unit="ms", ours=statistics.median(times)),
        Row(measure="classify, a task, p99", unit="ms", ours=p99, at_most=AT_MOST_MS),
    ]


def _once(text: str, weights: Weights) -> float:
    begun = time.process_time_ns()
    classify(TaskText(text=text), weights=weights)
    return (time.process_time_ns() - begun) / 1e6


def _matrix(result: Judged) -> str:
    """What it is, down; what it was taken for, across."""
    names = (*result.types, "other")
    width = max(map(len, names)) + 1
    lines = ["".join(f"{name:>{width}}" for name in ("", *names))]
    for name, row in zip(result.types, result.confusion, strict=True):
        lines.append("".join(f"{cell:>{width}}" for cell in (name, *row)))
    return "\n".join(lines)
