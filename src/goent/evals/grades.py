"""What does a grader say, and what does a case come to?"""

from typing import Literal

from goent.domain.types import Value
from goent.evals.traces import TokenUsage

Verdict = Literal["pass", "fail", "skip", "borderline"]
Status = Literal["ok", "quality_failure", "execution_error", "skipped"]


class Assertion(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at."""

    text: str
    passed: bool
    evidence: str = ""


class Judging(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What it took to ask a judge: `times` he was asked. What is not known is None."""

    by: str
    times: int = 1
    usage: TokenUsage | None = None
    cost_usd: float | None = None


class Grade(Value, frozen=True, kw_only=True, omit_defaults=True):
    """Of one grader. A skipped one does not count.

    `error`: whom it needed could not be asked, which says nothing about the attempt.
    `broken`: the grader could not look, which is no opinion that could be turned round.
    """

    name: str
    type: str
    score: float
    verdict: Verdict
    weight: float = 1.0
    assertions: tuple[Assertion, ...] = ()
    details: object = None
    error: str = ""
    broken: bool = False
    judging: Judging | None = None
    members: tuple["Grade", ...] = ()


class Graded(Value, frozen=True, kw_only=True):
    """Of a case: the weighted mean of its grades, or 0 if a required one failed.

    `error` says why there is no opinion, `judge_cost_usd` what judges took beside what the attempt
    did: 0 if none was asked, None if it is not known. `spoilt`: a required grader failed.
    Of a conversation there is a grade for each turn, and one for all of it.
    """

    score: float
    status: Status
    grades: tuple[Grade, ...] = ()
    error: str | None = None
    judge_cost_usd: float | None = 0.0
    spoilt: bool = False
