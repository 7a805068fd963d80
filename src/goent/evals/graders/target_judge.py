"""Asks a judge, which is a target: a model, a command, a fixture or a recording.

It works in an empty folder, away from what it judges: all it knows is in the question.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, SilentObserver, TargetError
from goent.evals.graders.json_values import NO_KEYS, is_object
from goent.evals.suites import EvalCase, GraderSpec, InputMessage, Retry
from goent.evals.traces import TokenUsage, Trace, sum_if_known, sum_usage

JUDGE_TIMEOUT_S = 300.0
JUDGE_RETRY = Retry(max_retries=2)


class JudgeQuestion(Value, frozen=True, kw_only=True):
    """`judge`: the name of a target, `provider/model`, or None for the run's default judge."""

    judge: str | None
    system: str
    prompt: str
    case_id: str


class Judgement(Value, frozen=True, kw_only=True):
    """The judge's reply, word for word, and its usage. What is unknown is None."""

    by: str
    text: str
    usage: TokenUsage | None = None
    cost_usd: float | None = None


class JudgeFailed(GoentError):
    """The judge was unavailable, or gave no answer; `spent` is what that took, if it was reached."""

    def __init__(self, text: str, *, spent: Judgement | None = None) -> None:
        super().__init__(text)
        self.spent = spent


Judge = Callable[[JudgeQuestion], Awaitable[Judgement]]
"""Raises a `GoentError` if there is no answer."""

TargetInvoker = Callable[[str, CaseAttempt, AttemptObserver], Awaitable[Trace]]
"""Gives an attempt to the target of that name, once it has a free slot. Raises `TargetError`."""


def judge_by_targets(
    invoke: TargetInvoker,
    *,
    default: str | None,
    timeout_s: float = JUDGE_TIMEOUT_S,
    retry: Retry = JUDGE_RETRY,
    scratch: Path | None = None,
) -> Judge:
    """`default` judges where a grader names none. Transient failures are retried. Judges work in `scratch`."""

    async def judge(question: JudgeQuestion) -> Judgement:
        name = question.judge or default
        if name is None:
            raise JudgeFailed(
                "no judge is configured; name a target or a model on the grader, "
                "`grader_target` on the target, or --judge"
            )
        try:
            with TemporaryDirectory(prefix="goent-judge-", dir=scratch) as folder:
                case = EvalCase(
                    id=question.case_id,
                    suite="judging",
                    form="v4",
                    input=(
                        InputMessage(role="system", text=question.system),
                        InputMessage(role="user", text=question.prompt),
                    ),
                )
                attempt = CaseAttempt(case=case, target=name, cwd=Path(folder), timeout_s=timeout_s)
                return await _ask_with_retries(invoke, attempt, retry)
        except OSError as error:
            raise JudgeFailed(f"judge {name!r} has no working directory: {error}") from error

    return judge


def named_judge(spec: GraderSpec) -> str | None:
    """The judge that this grader names; a model goes before a target."""
    aggregator = spec.settings.get("aggregator")
    places = (spec.settings, aggregator if is_object(aggregator) else NO_KEYS)
    names = (place.get(key) for place in places for key in ("model", "target"))
    return next((name for name in names if isinstance(name, str) and name), None)


def total_judgement(replies: Sequence[Judgement]) -> Judgement:
    """The last one, with the usage of all; None if one is unknown."""
    usages = [one.usage for one in replies]
    return replace(
        replies[-1],
        usage=None if None in usages else sum_usage(usages),
        cost_usd=sum_if_known([one.cost_usd for one in replies]),
    )


async def _ask_with_retries(invoke: TargetInvoker, attempt: CaseAttempt, retry: Retry) -> Judgement:
    """The total includes failed tries."""
    name, wait = attempt.target, retry.initial_delay_s
    tries: list[Judgement] = []
    for left in reversed(range(retry.max_retries + 1)):
        tries.append(Judgement(by=name, text=""))  # until it answers, its usage is unknown
        try:
            trace = await invoke(name, attempt, SilentObserver())
            tries[-1] = Judgement(
                by=name, text=trace.answer, usage=trace.usage, cost_usd=trace.cost_usd
            )
            _raise_failure(trace)
        except TargetError as error:
            if not error.retryable or not left:
                why = f"judge {name!r} is unavailable ({error.kind}): {error}"
                raise JudgeFailed(why, spent=total_judgement(tries)) from error
        else:
            if not trace.answer.strip():
                raise JudgeFailed(
                    f"judge {name!r} gave an empty answer", spent=total_judgement(tries)
                )
            return total_judgement(tries)
        await anyio.sleep(min(wait, retry.max_delay_s))
        wait *= retry.factor
    raise AssertionError("the last try returns or raises")


def _raise_failure(trace: Trace) -> None:
    if failure := trace.failure:
        raise TargetError(failure.kind, failure.message, retryable=failure.retryable)
