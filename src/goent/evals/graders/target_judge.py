"""Asks a judge, which is a target: whatever can be given a case can give an opinion.

So a command, a fixture or a recording judges as well as a model does. He works in an empty folder, away
from what he judges: all that he knows is in the question.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, SilentObserver, TargetError
from goent.evals.graders.findings import sum_if_known
from goent.evals.graders.json_values import NO_KEYS, is_object
from goent.evals.suites import EvalCase, GraderSpec, InputMessage, Retry
from goent.evals.traces import TargetFailure, TokenUsage, Trace, sum_usage

JUDGED_TYPES = frozenset({"llm-grader", "rubrics"})
JUDGE_TIMEOUT_S = 300.0
JUDGE_RETRY = Retry(max_retries=2)


class JudgeQuestion(Value, frozen=True, kw_only=True):
    """`who`: the name of a target, `provider/model`, or None for whoever judges in this run."""

    judge: str | None
    system: str
    prompt: str
    case_id: str


class Judgement(Value, frozen=True, kw_only=True):
    """What the judge said, word for word, and what it took. What is not known is None."""

    by: str
    text: str
    usage: TokenUsage | None = None
    cost_usd: float | None = None


class JudgeFailed(GoentError):
    """The judge could not be asked, or gave no answer; `spent` is what that took, if he was reached."""

    def __init__(self, text: str, *, spent: Judgement | None = None) -> None:
        super().__init__(text)
        self.spent = spent


Judge = Callable[[JudgeQuestion], Awaitable[Judgement]]
"""Raises a `GoentError` if there is no answer."""

TargetInvoker = Callable[[str, CaseAttempt, AttemptObserver], Awaitable[Trace]]
"""Gives an attempt to the target of that name, when it is its turn, and for no longer than the attempt says.

Raises `TargetError`."""


def judge_by_targets(
    invoke: TargetInvoker,
    *,
    default: str | None,
    timeout_s: float = JUDGE_TIMEOUT_S,
    retry: Retry = JUDGE_RETRY,
    scratch: Path | None = None,
) -> Judge:
    """`default` judges where a grader names nobody. What may pass is tried again. Judges work in `scratch`."""

    async def judge(question: JudgeQuestion) -> Judgement:
        who = question.judge or default
        if who is None:
            raise JudgeFailed(
                "nobody is there to judge; name a target or a model on the grader, "
                "`grader_target` on the target, or --judge"
            )
        try:
            with TemporaryDirectory(prefix="goent-judge-", dir=scratch) as folder:
                attempt = CaseAttempt(
                    case=_judge_case(question),
                    target=who,
                    cwd=Path(folder),
                    timeout_s=timeout_s,
                )
                return await _ask_with_retries(invoke, attempt, retry)
        except OSError as error:
            raise JudgeFailed(f"judge {who!r} has no room to work in: {error}") from error

    return judge


def judge_names(cases: Iterable[EvalCase]) -> frozenset[str]:
    """All whom graders name themselves: targets, and models as `provider/model`."""
    names = (named_judge(spec) for case in cases for spec in _with_members(case.all_graders))
    return frozenset(name for name in names if name)


def needs_judge(case: EvalCase) -> bool:
    """Whether one of its graders asks a judge and does not name him."""
    return any(
        _grader_type(spec) in JUDGED_TYPES and not named_judge(spec)
        for spec in _with_members(case.all_graders)
    )


def _with_members(specs: Iterable[GraderSpec]) -> Iterator[GraderSpec]:
    for spec in specs:
        yield spec
        yield from _with_members(spec.members)


def _grader_type(spec: GraderSpec) -> object:
    how = spec.settings.get("aggregator")
    return how.get("type") if is_object(how) else spec.type


def named_judge(spec: GraderSpec) -> str | None:
    """Whom this grader wants; a model is nearer to it than a target."""
    aggregator = spec.settings.get("aggregator")
    places = (spec.settings, aggregator if is_object(aggregator) else NO_KEYS)
    names = (place.get(key) for place in places for key in ("model", "target"))
    return next((name for name in names if isinstance(name, str) and name), None)


def total_judgement(heard: Sequence[Judgement]) -> Judgement:
    """The last one, with what all of them took; None if that is not known of one."""
    usages = [one.usage for one in heard]
    return replace(
        heard[-1],
        usage=None if None in usages else sum_usage(usages),
        cost_usd=sum_if_known([one.cost_usd for one in heard]),
    )


async def _ask_with_retries(invoke: TargetInvoker, attempt: CaseAttempt, retry: Retry) -> Judgement:
    """What failed tries took is part of it."""
    who, wait = attempt.target, retry.initial_delay_s
    tries: list[Judgement] = []
    for left in reversed(range(retry.max_retries + 1)):
        tries.append(Judgement(by=who, text=""))  # until he answers, nobody knows how much it took
        try:
            trace = await invoke(who, attempt, SilentObserver())
            tries[-1] = _judgement(who, trace)
            if trace.failure:
                raise _target_error(trace.failure)
        except TargetError as error:
            if not error.retryable or not left:
                why = f"judge {who!r} could not be asked ({error.kind}): {error}"
                raise JudgeFailed(why, spent=total_judgement(tries)) from error
        else:
            if not trace.answer.strip():
                raise JudgeFailed(
                    f"judge {who!r} ended without a word", spent=total_judgement(tries)
                )
            return total_judgement(tries)
        await anyio.sleep(min(wait, retry.max_delay_s))
        wait *= retry.factor
    raise AssertionError("the last try returns or raises")


def _target_error(failure: TargetFailure) -> TargetError:
    return TargetError(failure.kind, failure.message, retryable=failure.retryable)


def _judgement(who: str, trace: Trace) -> Judgement:
    return Judgement(by=who, text=trace.answer, usage=trace.usage, cost_usd=trace.cost_usd)


def _judge_case(question: JudgeQuestion) -> EvalCase:
    return EvalCase(
        id=question.case_id,
        suite="judging",
        form="v4",
        input=(
            InputMessage(role="system", text=question.system),
            InputMessage(role="user", text=question.prompt),
        ),
    )
