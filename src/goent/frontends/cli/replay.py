"""What would a day of tasks have cost, on the best model alone and by the router?"""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from goent.domain.provider_replies import CandidateView, Explained
from goent.domain.requests import RecommendRequest
from goent.domain.types import Method, Value
from goent.frontends.cli.client import Daemon, Trouble
from goent.frontends.cli.screen import clean
from goent.frontends.cli.show import show_table
from goent.frontends.cli.words import money

SAMPLE = "day.jsonl"
WIDTH = 44  # characters of a task that are shown


class DayTask(Value, frozen=True, kw_only=True):
    """One line of the file; other keys are left alone."""

    text: str
    context_tokens: int | None = None


class Played(Value, frozen=True, kw_only=True):
    """A task: where the router sends it, and what half of such tasks cost there and at the best."""

    text: str
    type: str
    complexity: str
    provider: str | None
    method: Method | None
    router_usd: float | None
    best_usd: float | None


class Day(Value, frozen=True, kw_only=True):
    """Sums are over the tasks of which both costs are known."""

    best: str
    tasks: tuple[Played, ...]
    router_usd: float
    best_usd: float
    unknown: int


def tasks_of(file: Path | None) -> tuple[DayTask, ...]:
    """Raises a ValueError that names the line."""
    packaged = files("goent.frontends.cli").joinpath("samples", SAMPLE)
    lines = (file or packaged).read_text(encoding="utf-8").splitlines()
    return tuple(_tasks(lines))


def _tasks(lines: Sequence[str]) -> Iterator[DayTask]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=DayTask)
        except msgspec.MsgspecError as error:
            raise ValueError(f"line {number}: {error}") from None


def replayed(tasks: Sequence[DayTask], best: str | None, through: Daemon) -> Day:
    if not tasks:
        raise Trouble("there is no task in the file: a JSON object with 'text' a line", 2)
    explained = [
        through.call(
            "routes_explain",
            RecommendRequest(task=task.text, context_tokens=task.context_tokens),
            Explained,
        )
        for task in tasks
    ]
    best = best or _dearest(explained)
    played = tuple(_played(t, e, best) for t, e in zip(tasks, explained, strict=True))
    known = [p for p in played if p.router_usd is not None and p.best_usd is not None]
    return Day(
        best=best,
        tasks=played,
        router_usd=round(sum(p.router_usd or 0.0 for p in known), 6),
        best_usd=round(sum(p.best_usd or 0.0 for p in known), 6),
        unknown=len(played) - len(known),
    )


def _dearest(explained: Sequence[Explained]) -> str:
    """Of those that could take the first task: price is the only sign of quality there is."""
    able = [c for c in explained[0].candidates if not c.obstacle and c.estimate.cost_usd]
    if not able:
        raise Trouble("no provider with a known price can be had: see `go-ent providers`", 2)
    return max(able, key=lambda c: c.estimate.cost_usd or (0.0, 0.0)).provider


def _played(task: DayTask, explained: Explained, best: str) -> Played:
    at_best = next((c for c in explained.candidates if c.provider == best), None)
    if at_best is None:
        names = ", ".join(c.provider for c in explained.candidates)
        raise Trouble(f"there is no provider {best!r}; there are: {names}", 2)
    return Played(
        text=task.text,
        type=explained.features.type,
        complexity=explained.features.complexity,
        provider=explained.provider,
        method=explained.method,
        router_usd=_median(explained),
        best_usd=_median(at_best),
    )


def _median(what: Explained | CandidateView) -> float | None:
    return what.estimate.cost_usd[0] if what.estimate.cost_usd else None


def show_replay(day: Day) -> None:
    rows = [
        (
            task.text if len(task.text) <= WIDTH else task.text[: WIDTH - 1] + "…",
            f"{task.type}, {task.complexity}",
            f"{task.provider} by {task.method}" if task.provider else "nobody",
            money(task.router_usd),
            money(task.best_usd),
        )
        for task in day.tasks
    ]
    rows.append(("total", "", "", money(day.router_usd), money(day.best_usd)))
    show_table(("TASK", "IS", "ROUTER", "COST", clean(f"ALWAYS {day.best}")), rows)
    if day.best_usd:
        share = 1 - day.router_usd / day.best_usd
        print(f"the router saves {share:.0%} of {money(day.best_usd)}")
    if day.unknown:
        print(f"{day.unknown} tasks are in no sum: a price is unknown, or nobody can take them")
