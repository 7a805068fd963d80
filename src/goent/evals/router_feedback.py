"""Records each graded trial in the user's history, once, so that routing can learn from it."""

import hashlib
import time
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from goent.domain.errors import VerifyFailed
from goent.domain.task_profile import Classifier, TaskGrade, TaskHistory, TaskSample, TaskText
from goent.domain.types import Usage
from goent.evals.eval_results import Row
from goent.evals.suites import EvalCase, prompt_text, whole_case
from goent.evals.traces import TokenUsage, Trace


class TrialReporter(Protocol):
    """Gets every finished trial, with the trace of its last attempt."""

    async def __call__(self, case: EvalCase, row: Row, trace: Trace) -> None: ...


async def report_nothing(case: EvalCase, row: Row, trace: Trace) -> None:
    """Used where no target is an agent."""


class CorrectionReporter(Protocol):
    """Gets the trials whose verdict has changed."""

    async def __call__(self, trials: Sequence[TaskGrade]) -> None: ...


class TrialHistory:
    """Reports trials to the history that routing and forecasts use."""

    def __init__(self, history: TaskHistory, classifier: Classifier, project: Path) -> None:
        self._history = history
        self._classifier = classifier
        self._project = project

    async def __call__(self, case: EvalCase, row: Row, trace: Trace) -> None:
        by, judged = trace.by, judgement_of(row, trace)
        if by is None or judged is None:
            return
        asked = prompt_text(whole_case(case))
        files = tuple(str(path) for said in case.all_input for path in said.files)
        task = await self._classifier.classify(TaskText(text=asked, files=files), self._project)
        cost = trace.cost_usd
        await self._history.grade(
            TaskSample(
                at=_end_time(trace),
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


def judgement_of(row: Row, trace: Trace) -> TaskGrade | None:
    """What a trial shows of whoever worked, as the trace tells; None if it shows nobody's quality.

    An attempt that failed says nothing of quality here; its worker has told of it already.
    """
    if trace.by is None or not row.scored or trace.partial:
        return None
    return TaskGrade(
        place=trace.by.worker or _trial_id(row, trace),
        state="completed" if row.passed else "failed",
        evidence="verified" if row.passed else "refuted",
        failure=None if row.passed else VerifyFailed.kind,
    )


def _end_time(trace: Trace) -> float:
    try:
        return datetime.fromisoformat(trace.end_time or "").timestamp()
    except ValueError:
        return time.time()


def _trial_id(row: Row, trace: Trace) -> str:
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
