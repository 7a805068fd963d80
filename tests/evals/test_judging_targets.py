"""A judge is a target: a command, a fixture, whoever can be given a case."""

import json
from pathlib import Path

import anyio
import pytest
from judged import a_case, a_trace, llm
from sandboxed import eval_commands

from goent.domain.errors import ConfigError
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, EvalTarget, TargetError
from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import ask_and_grade
from goent.evals.graders.grader_kind import GraderTools
from goent.evals.graders.grader_registry import judge_names
from goent.evals.graders.target_judge import TargetInvoker, judge_by_targets
from goent.evals.suites import GraderSpec, Retry, TargetSpec
from goent.evals.targets.command_target import CliTarget
from goent.evals.targets.fixture_targets import MockTarget
from goent.evals.traces import TargetFailure, TokenUsage, Trace

pytestmark = pytest.mark.anyio

ENVIRON = {"PATH": "/usr/bin:/bin"}
AT_ONCE = Retry(max_retries=2, initial_delay_s=0.0)


def cli(command: str) -> EvalTarget:
    return CliTarget(TargetSpec(name="t", kind="cli", settings={"command": command}), ENVIRON)


def among(**targets: EvalTarget) -> TargetInvoker:
    async def invoke(name: str, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        if name not in targets:
            raise ConfigError(f"there is no target {name!r}")
        return await targets[name].invoke(attempt, witness)

    return invoke


async def graded(
    invoke: TargetInvoker, *graders: GraderSpec, default: str | None = None, timeout_s: float = 60
) -> CaseGrade:
    judge = judge_by_targets(invoke, default=default, timeout_s=timeout_s, retry=AT_ONCE)
    return await ask_and_grade(
        a_case(*graders),
        a_trace(),
        threshold=0.8,
        compat=False,
        tools=GraderTools(commands=eval_commands(ENVIRON), judge=judge),
    )


class Moody:
    """Fails so often, then answers."""

    def __init__(self, *moods: TargetError | Trace) -> None:
        self._moods = list(moods)
        self.seen: list[CaseAttempt] = []
        self.looked: list[bool] = []

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        self.seen.append(attempt)
        self.looked.append(not list(attempt.cwd.iterdir()))
        mood = self._moods.pop(0)
        if isinstance(mood, TargetError):
            raise mood
        return mood


async def test_a_command_judges_and_tells_what_it_took(tmp_path: Path):
    reply = {"text": '{"score": 0.9}', "cost_usd": 0.5, "token_usage": {"input": 7, "output": 2}}
    (tmp_path / "reply.json").write_text(json.dumps(reply))
    (tmp_path / "seen").mkdir()
    command = f"cp {{PROMPT_FILE}} {tmp_path}/seen/prompt; "
    command += f"cp {tmp_path}/reply.json {{OUTPUT_FILE}}"
    found = await graded(among(strict=cli(command)), llm(target="strict"))
    assert (found.score, found.judge_cost_usd) == (0.9, 0.5)
    judging = found.grades[0].judging
    assert judging and judging.usage and (judging.by, judging.usage.input) == ("strict", 7)
    told = (tmp_path / "seen/prompt").read_text()
    assert told.startswith("[system]\nYou assess") and "Good morning, Ann." in told


async def test_a_fixture_judges_where_no_grader_names_anybody():
    settings = {"response": '{"score": 1}'}
    mock = MockTarget(TargetSpec(name="m", kind="mock", settings=settings))
    found = await graded(among(fixed=mock), llm(), default="fixed")
    assert found.score == 1
    assert found.judge_cost_usd is None


@pytest.mark.parametrize(
    ("target", "spec", "why"),
    [
        ("exit 3", llm(target="j"), "'j' is unavailable (command_failed)"),
        ("true", llm(target="j"), "no_answer"),
        ("echo ' ' > {OUTPUT_FILE}", llm(target="j"), "gave an empty answer"),
        ("true", llm(target="other"), "no target 'other'"),
        ("true", llm(), "no judge is configured"),
        ("sleep 60", llm(target="j"), "is unavailable (timeout)"),
    ],
)
async def test_a_judge_who_does_not_answer_is_an_error_of_the_run(
    target: str, spec: GraderSpec, why: str
):
    timeout_s = 0.5 if target.startswith("sleep") else 60
    with anyio.fail_after(30):
        found = await graded(among(j=cli(target)), spec, timeout_s=timeout_s)
    assert found.status == "execution_error"
    assert found.error and why in found.error


async def test_what_may_pass_is_tried_again_and_what_may_not_is_not():
    busy = TargetError("rate_limited", "later", retryable=True)
    failure = TargetFailure(kind="overloaded", message="later", retryable=True)
    good = Trace(messages=a_trace('{"score": 1}').messages)
    moody = Moody(busy, Trace(failure=failure), good)
    assert (await graded(among(j=moody), llm(target="j"))).score == 1
    assert len(moody.seen) == 3
    assert moody.looked == [True] * 3  # each in a folder of his own, and it is empty
    assert not any(attempt.cwd.exists() for attempt in moody.seen)
    stubborn = Moody(busy, busy, busy, good)
    assert "rate_limited" in str((await graded(among(j=stubborn), llm(target="j"))).error)
    refused = Moody(TargetError("auth", "no key"), good)
    assert "no key" in str((await graded(among(j=refused), llm(target="j"))).error)


async def test_what_a_judge_spent_who_gave_no_answer_is_not_nothing():
    failure = TargetFailure(kind="overloaded", message="later")
    silent = Moody(Trace(messages=a_trace(" ").messages, cost_usd=0.5))
    assert (await graded(among(j=silent), llm(target="j"))).judge_cost_usd == 0.5
    failed = Moody(Trace(failure=failure, cost_usd=0.25))
    assert (await graded(among(j=failed), llm(target="j"))).judge_cost_usd == 0.25
    cut_off = Moody(TargetError("timeout", "too long"))
    assert (await graded(among(j=cut_off), llm(target="j"))).judge_cost_usd is None
    assert (await graded(among(), llm())).judge_cost_usd == 0  # nobody was asked


async def test_what_failed_tries_took_is_part_of_what_the_judge_cost():
    busy = TargetFailure(kind="overloaded", message="later", retryable=True)
    used = TokenUsage(input=7, output=1)
    dear = Trace(failure=busy, cost_usd=0.25, usage=used)
    good = Trace(messages=a_trace('{"score": 1}').messages, cost_usd=0.5, usage=used)
    found = await graded(among(j=Moody(dear, dear, good)), llm(target="j"))
    judging = found.grades[0].judging
    assert (found.score, found.judge_cost_usd) == (1, 1.0)
    assert judging and judging.usage and (judging.usage.input, judging.times) == (21, 1)
    silent = Moody(dear, Trace(messages=a_trace(" ").messages, cost_usd=0.5))
    assert (await graded(among(j=silent), llm(target="j"))).judge_cost_usd == 0.75
    lost = TargetError("rate_limited", "later", retryable=True)
    unknown = await graded(among(j=Moody(lost, good)), llm(target="j"))
    assert (unknown.score, unknown.judge_cost_usd) == (1, None)


def test_all_whom_graders_name_are_known_before_the_run():
    inner = GraderSpec(
        type="composite",
        name="c",
        members=(llm(model="a/b"),),
        settings={"aggregator": {"type": "llm-grader", "target": "chair"}},
    )
    case = a_case(llm(), llm(target="x"), inner)
    assert judge_names([case]) == {"x", "a/b", "chair"}
