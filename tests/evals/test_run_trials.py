"""How a run goes: who is asked how often, what is tried again, and what it comes to."""

from collections import Counter
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from run_stage import Scripted, Stage, case, says, suite

from goent.domain.errors import ConfigError
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.eval_results import read_rows
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.run_folder import INDEX_FILE
from goent.evals.runner.trial_plan import RunSelection
from goent.evals.suites import Retry, TargetSpec, Trials
from goent.evals.traces import PermissionDecision, TokenUsage, Trace, TracedMessage

pytestmark = pytest.mark.anyio
SOON = Retry(max_retries=2, initial_delay_s=0.01)


async def yes(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
    return says("yes", cost_usd=0.5)


async def no(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
    return says("no", cost_usd=0.5)


async def busy(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
    raise TargetError("overloaded", "come again", retryable=True)


async def test_passing_failing_and_failed_cases_are_told_apart(tmp_path: Path) -> None:
    async def by_name(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        if attempt.case.id == "broken":
            raise TargetError("no_answer", "nothing came")
        return says("yes" if attempt.case.id == "good" else "no")

    stage = Stage(tmp_path / "out", {"one": Scripted(by_name)})

    outcome = await stage.run([suite(case("good"), case("bad"), case("broken"))])

    assert (outcome.passed, outcome.failed, outcome.errors, outcome.exit_code) == (1, 1, 1, 3)
    assert stage.watched.statuses == {
        "good": "ok",
        "bad": "quality_failure",
        "broken": "execution_error",
    }
    errors = {row.test_id: row.error for row in stage.watched.rows if row.error}
    assert errors == {"broken": "no_answer: nothing came"}
    assert set(read_rows(tmp_path / "out" / INDEX_FILE).rows) == set(stage.watched.rows)


@pytest.mark.parametrize(("names", "code"), [(["good"], 0), (["good", "bad"], 1)])
async def test_the_exit_code_says_what_the_run_came_to(
    tmp_path: Path, names: list[str], code: int
) -> None:
    async def by_name(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("yes" if attempt.case.id == "good" else "no")

    stage = Stage(tmp_path / "out", {"one": Scripted(by_name)})

    assert (await stage.run([suite(*map(case, names))])).exit_code == code


async def test_no_target_is_asked_more_often_at_once_than_it_stands(tmp_path: Path) -> None:
    async def slowly(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        await anyio.sleep(0.02)
        return says("yes")

    narrow, wide = Scripted(slowly), Scripted(slowly)
    stage = Stage(tmp_path / "out", {"narrow": narrow, "wide": wide})
    cases = [case(f"c{i}", targets=("narrow", "wide")) for i in range(12)]

    await stage.run(
        [suite(*cases)],
        specs=[TargetSpec(name="narrow", kind="mock", workers=2)],
        bounds=EvalLimits(workers=5),
    )

    assert (narrow.most_at_once, wide.most_at_once) == (2, 5)
    assert len(stage.watched.rows) == 24


async def test_a_failure_that_may_pass_is_tried_again_after_longer_and_longer_waits(
    tmp_path: Path,
) -> None:
    async def third_time(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        if attempt.number < 2:
            raise TargetError("overloaded", "come again", retryable=True)
        return says("yes")

    target = Scripted(third_time)
    stage = Stage(tmp_path / "out", {"one": target})

    await stage.run([suite(case("a"))], specs=[TargetSpec(name="one", kind="mock", retry=SOON)])

    assert stage.watched.failures == [("overloaded", 0.01), ("overloaded", 0.02)]
    (row,) = stage.watched.rows
    assert (row.execution_status, row.attempt) == ("ok", 2)
    kept = sorted(path.name for path in (tmp_path / "out" / "a").iterdir())
    assert kept == ["attempt-0.json", "attempt-1.json", "grades.json", "trace.json"]


async def test_a_failure_that_will_not_pass_is_not_tried_again(tmp_path: Path) -> None:
    async def wrong(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        raise TargetError("no_answer", "nothing came")

    target = Scripted(wrong)
    stage = Stage(tmp_path / "out", {"one": target})

    await stage.run([suite(case("a"))], specs=[TargetSpec(name="one", kind="mock", retry=SOON)])

    assert len(target.asked) == 1


async def test_a_failure_that_is_not_to_be_tried_again_is_not(tmp_path: Path) -> None:
    async def busy(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        raise TargetError(attempt.case.id, "come again", retryable=True)

    target = Scripted(busy)
    stage = Stage(tmp_path / "out", {"one": target})
    retry = replace(SOON, never=("rate_limited",))
    cases = [case("rate_limited"), case("worker_crashed")]

    await stage.run([suite(*cases)], specs=[TargetSpec(name="one", kind="mock", retry=retry)])

    asked = Counter(attempt.case.id for attempt in target.asked)
    assert asked == {"rate_limited": 1, "worker_crashed": 1 + SOON.max_retries}


async def test_a_fallback_answers_for_a_target_that_cannot(tmp_path: Path) -> None:
    tired = Scripted(busy)
    stage = Stage(tmp_path / "out", {"first": tired, "second": Scripted(yes)})
    spec = TargetSpec(name="first", kind="mock", retry=SOON, fallbacks=("second",))

    await stage.run([suite(case("a", targets=("first",)))], specs=[spec])

    (row,) = stage.watched.rows
    assert (row.target, row.answered_by, row.execution_status) == ("first", "second", "ok")
    assert len(tired.asked) == 3


async def test_a_defect_of_one_target_costs_no_other_case(tmp_path: Path) -> None:
    async def defective(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        if attempt.case.id == "c1":
            raise ZeroDivisionError("oh")
        return says("yes")

    stage = Stage(tmp_path / "out", {"one": Scripted(defective)})

    await stage.run([suite(*(case(f"c{i}") for i in range(4)))])

    assert sorted(stage.watched.statuses.values()) == ["execution_error", "ok", "ok", "ok"]
    assert (
        "ZeroDivisionError: oh"
        in {row.test_id: row.error or "" for row in stage.watched.rows}["c1"]
    )


async def test_what_was_told_before_the_time_was_up_is_kept(tmp_path: Path) -> None:
    async def endless(_attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        witness.message(0, TracedMessage(role="assistant", content="half a"))
        witness.message(0, TracedMessage(role="assistant", content="half a word"))
        witness.permission_decided(PermissionDecision(permission="bash", decision="once"))
        witness.usage_changed(TokenUsage(input=3), 0.25)
        await anyio.sleep(0.05)
        raise TargetError("timeout", "too long")

    stage = Stage(tmp_path / "out", {"one": Scripted(endless)})

    await stage.run([suite(case("a"))])

    trace = msgspec.json.decode((tmp_path / "out/a/trace.json").read_bytes(), type=Trace)
    assert trace.partial
    assert trace.failure is not None
    assert trace.failure.kind == "timeout"
    assert [message.content for message in trace.messages] == ["half a word"]
    assert [one.permission for one in trace.permissions] == ["bash"]
    assert (trace.usage, trace.cost_usd) == (TokenUsage(input=3), 0.25)
    assert stage.watched.rows[0].cost_usd == 0.25


async def test_a_target_that_does_not_keep_to_its_time_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        witness.message(0, TracedMessage(role="assistant", content="so far"))
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("goent.evals.runner.open_targets.GRACE_S", 0.05)
    stage = Stage(tmp_path / "out", {"one": Scripted(deaf)})

    await stage.run([suite(case("a"))], bounds=EvalLimits(timeout_s=0.05))

    (row,) = stage.watched.rows
    assert row.error == "timeout: 'one' took longer than 0.05 s"
    trace = msgspec.json.decode((tmp_path / "out/a/trace.json").read_bytes(), type=Trace)
    assert trace.answer == "so far"


async def test_a_time_out_of_something_else_is_not_the_attempts(tmp_path: Path) -> None:
    async def unreachable(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        raise TimeoutError("the disk did not answer")

    stage = Stage(tmp_path / "out", {"one": Scripted(unreachable)})

    await stage.run([suite(case("a"))])

    (row,) = stage.watched.rows
    assert row.error == "environment: the disk did not answer"


async def test_trials_without_what_is_required_do_not_pass_by_a_threshold_of_0(
    tmp_path: Path,
) -> None:
    async def no(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("no")

    asked = case("a")
    (grader,) = asked.graders
    strict = replace(asked, graders=(replace(grader, required=True),))
    stage = Stage(tmp_path / "out", {"one": Scripted(no)})

    outcome = await stage.run(
        [suite(strict, case("b"), trials=Trials(count=2))], wanted=RunSelection(threshold=0.0)
    )

    assert (outcome.passed, outcome.failed) == (1, 1)


async def test_trials_are_kept_apart_and_the_suite_says_how_they_count(tmp_path: Path) -> None:
    async def every_other(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("yes" if attempt.trial == 2 else "no")

    passes: dict[str, int] = {}
    for strategy in ("pass_at_k", "mean", "confidence_interval"):
        stage = Stage(tmp_path / strategy, {"one": Scripted(every_other)})
        trials = Trials(count=3, strategy=strategy)
        outcome = await stage.run([suite(case("a"), trials=trials)])
        passes[strategy] = outcome.passed
        assert [row.trial for row in stage.watched.rows] == [1, 2, 3]

    assert passes == {"pass_at_k": 1, "mean": 0, "confidence_interval": 0}
    assert (tmp_path / "mean/a/trace.json").is_file()
    assert (tmp_path / "mean/a/trial-3/trace.json").is_file()


async def test_no_trial_begins_that_the_budget_does_not_hold(tmp_path: Path) -> None:
    target = Scripted(yes)
    stage = Stage(tmp_path / "out", {"one": target})

    outcome = await stage.run(
        [suite(*(case(f"c{i}") for i in range(10)))], bounds=EvalLimits(workers=1, budget_usd=1.7)
    )

    assert len(target.asked) == 3  # at 0.5 each, a fourth would make it 2.0
    assert (outcome.passed, outcome.unrun, outcome.exit_code) == (3, 7, 3)
    assert "1.7 USD" in outcome.stopped


async def test_a_case_may_cost_no_more_than_its_trials_may(tmp_path: Path) -> None:
    target = Scripted(yes)
    stage = Stage(tmp_path / "out", {"one": target})
    trials = Trials(count=5, cost_limit_usd=1.0)

    outcome = await stage.run([suite(case("a"), trials=trials)], bounds=EvalLimits(workers=1))

    assert len(target.asked) == 2
    assert (outcome.passed, outcome.exit_code) == (1, 0)


async def test_a_budget_that_cannot_see_the_costs_says_so_once(tmp_path: Path) -> None:
    async def silent(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("yes")

    stage = Stage(tmp_path / "out", {"one": Scripted(silent)})

    await stage.run([suite(case("a"), case("b"))], bounds=EvalLimits(budget_usd=1))

    assert stage.watched.warnings == ["the cost of 'one' is unknown, so the budget cannot count it"]


async def test_a_resumed_run_repeats_nothing_that_has_a_row(tmp_path: Path) -> None:
    first, second = Scripted(yes), Scripted(yes)
    suites = [suite(case("a"), case("b"), case("c"))]
    await Stage(tmp_path / "out", {"one": first}).run(
        suites, bounds=EvalLimits(workers=1, budget_usd=1.0)
    )
    assert [attempt.case.id for attempt in first.asked] == ["a", "b"]

    stage = Stage(tmp_path / "out", {"one": second})
    outcome = await stage.run(suites)

    assert [attempt.case.id for attempt in second.asked] == ["c"]
    assert (outcome.passed, outcome.exit_code) == (3, 0)
    assert stage.watched.plan is not None
    assert (stage.watched.plan.total, stage.watched.plan.kept) == (3, 2)


async def test_a_run_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    await Stage(tmp_path / "out", {"one": Scripted(no)}).run([suite(case("a"))])

    with pytest.raises(ConfigError, match="holds a different run") as refused:
        await Stage(tmp_path / "out", {"one": Scripted(no)}).run(
            [suite(case("a"))], wanted=RunSelection(trials=2)
        )
    assert "(--trials none then, 2 now): use the same options" in str(refused.value)
