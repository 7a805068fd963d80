"""What does a graded trial teach the router? An outcome of the user's history, once."""

import hashlib
import time
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from goent.domain.errors import VerifyFailed
from goent.domain.forecasts import History, Judged, Sample
from goent.domain.tasks import Classifier, TaskText
from goent.domain.types import Usage
from goent.evals.prompts import question
from goent.evals.rows import Row
from goent.evals.suites import Case
from goent.evals.traces import TokenUsage, Trace
from goent.evals.turns import whole_of


class Learn(Protocol):
    """Who is told of every trial that has ended, with the trace of its last attempt."""

    async def __call__(self, case: Case, row: Row, trace: Trace) -> None: ...


async def nobody_learns(case: Case, row: Row, trace: Trace) -> None:
    """Where no target is one that tasks could be handed to."""


class Correct(Protocol):
    """Who is told of the trials that have another verdict than before."""

    async def __call__(self, trials: Sequence[Judged]) -> None: ...


class Lessons:
    """The port `Learn`, on the history that forecasts and routes of all projects rest on."""

    def __init__(self, history: History, classifier: Classifier, project: Path) -> None:
        self._history = history
        self._classifier = classifier
        self._project = project

    async def __call__(self, case: Case, row: Row, trace: Trace) -> None:
        by, judged = trace.by, judged_of(row, trace)
        if by is None or judged is None:
            return
        asked = question(whole_of(case))
        files = tuple(str(path) for said in case.everything_said for path in said.files)
        task = await self._classifier.classify(TaskText(text=asked, files=files), self._project)
        cost = trace.cost_usd
        await self._history.judge(
            Sample(
                at=_moment(trace),
                provider=by.provider,
                backend=by.backend,
                model=by.model,
                method=by.method,
                type=task.type,
                complexity=task.complexity,
                size=task.size,
                cost_usd=None if cost is None else Decimal(str(cost)),
                usage=_usage(trace.usage),
                seconds=(trace.duration_ms or 0.0) / 1000,
                state=judged.state,
                evidence=judged.evidence,
                failure=judged.failure,
                place=judged.place,
                graded=True,
            )
        )


def judged_of(row: Row, trace: Trace) -> Judged | None:
    """What a trial shows of whoever worked, as the trace tells; None if it shows nobody's quality.

    An attempt that failed says nothing of quality here; its worker has told of it already.
    """
    if trace.by is None or not row.scored or trace.partial:
        return None
    return Judged(
        place=trace.by.worker or _place(row, trace),
        state="completed" if row.passed else "failed",
        evidence="verified" if row.passed else "refuted",
        failure=None if row.passed else VerifyFailed.kind,
    )


def _moment(trace: Trace) -> float:
    try:
        return datetime.fromisoformat(trace.end_time or "").timestamp()
    except ValueError:
        return time.time()


def _place(row: Row, trace: Trace) -> str:
    """The same for the same attempt, wherever its folder lies, and however often it is graded."""
    what = (row.suite, row.test_id, row.target, row.trial, trace.start_time, trace.end_time)
    return f"eval-{hashlib.sha256(repr(what).encode()).hexdigest()[:24]}"


def _usage(used: TokenUsage | None) -> Usage:
    if used is None:
        return Usage()
    return Usage(
        input=used.input,
        output=used.output - used.reasoning,
        cache_read=used.cached,
        reasoning=used.reasoning,
    )
