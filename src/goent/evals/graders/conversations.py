"""What do the turns of a conversation come to?"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Final

from goent.evals.graders.verdicts import reaches, total
from goent.evals.grades import Assertion, Grade, Graded, Status
from goent.evals.suites import Conversation

_ONE: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": fmean,
    "min": min,
    "max": max,
}


def come_to(
    talk: Conversation,
    turns: Sequence[Graded | None],
    whole: Graded | None,
    *,
    threshold: float,
    compat: bool,
) -> Graded:
    """Of the turns that were made; None is one that nobody grades. `whole`: what graders say of all of them.

    Who is not graded says nothing, and what was not reached has failed; a required grader of the whole fails it,
    also where a judge could not be asked.
    For AgentV the first has passed, and no grader is required of a whole conversation.
    """
    grades = [
        _turn(f"turn-{number}", graded, threshold, compat=compat)
        for number, graded in enumerate(turns, start=1)
    ]
    grades += [
        _not_reached(number, after=len(turns), compat=compat)
        for number in range(len(turns) + 1, len(talk.turns) + 1)
    ]
    if whole is not None:
        grades.append(_judged("conversation", whole, threshold))
    scores = [grade.score for grade in grades if compat or grade.verdict != "skip"]
    made = [one for one in (*turns, whole) if one is not None]
    spoilt = whole is not None and whole.spoilt and not compat
    unasked = (one.error for one in made if one.status == "execution_error")
    error = None if spoilt else next(unasked, None)
    score = _ONE[talk.aggregation](scores) if scores and not error and not spoilt else 0.0
    good = bool(scores) and not spoilt and reaches(score, threshold)
    status: Status = "execution_error" if error else "ok" if good else "quality_failure"
    return Graded(
        score=score,
        status=status,
        grades=tuple(grades),
        error=error,
        judge_cost_usd=judging_cost(made),
        spoilt=spoilt,
    )


def judging_cost(made: Sequence[Graded]) -> float | None:
    """Of all judges; None if what one took is not known."""
    return total([one.judge_cost_usd for one in made])


def _turn(name: str, graded: Graded | None, threshold: float, *, compat: bool) -> Grade:
    if graded is None:
        return Grade(name=name, type="turn", score=1.0, verdict="pass" if compat else "skip")
    return _judged(name, graded, threshold, "turn")


def _judged(name: str, graded: Graded, threshold: float, kind: str = "conversation") -> Grade:
    return Grade(
        name=name,
        type=kind,
        score=graded.score,
        verdict="pass" if reaches(graded.score, threshold) and not graded.spoilt else "fail",
        error=graded.error or "",
        members=graded.grades,
    )


def _not_reached(number: int, *, after: int, compat: bool) -> Grade:
    why = f"Not reached: turn {after} failed, and on_turn_failure is 'stop'."
    return Grade(
        name=f"turn-{number}",
        type="turn",
        score=0.0,
        verdict="skip" if compat else "fail",
        assertions=(Assertion(text=why, passed=False),),
    )
