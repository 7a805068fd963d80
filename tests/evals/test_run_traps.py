"""What a run makes of hostile answers, odd names, limits that pinch and people who go away."""

import os
import signal
import subprocess
import tracemalloc
from itertools import accumulate
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from eval_desk import GO_ENT, EvalDesk, ended
from msgspec.structs import replace
from run_stage import Scripted, Stage, case, says, suite

from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.eval_results import CaseGrade, Row, latest_rows
from goent.evals.graders.grader_kind import PARALLEL_SCRIPTS
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.run_folder import StoredRun
from goent.evals.runner.run_scheduler import EvalBudget
from goent.evals.runner.trial_plan import RunSelection, Trial, plan_trials
from goent.evals.suites import Retry, Suite, TargetSpec, Trials
from goent.evals.traces import Trace

HELLO = "echo hello > {OUTPUT_FILE}"
IDS = ["a", "b", "c", "d", "e"]


@pytest.fixture
def desk(tmp_path: Path) -> EvalDesk:
    return EvalDesk(tmp_path)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("mkfifo {OUTPUT_FILE}", "bad_answer"),
        ("ln -s /dev/zero {OUTPUT_FILE}", "bad_answer"),
        ("truncate -s 20M {OUTPUT_FILE}", "bad_answer"),
        ("mkdir {OUTPUT_FILE}", "bad_answer"),
    ],
)
def test_what_is_no_answer_holds_nobody_up(desk: EvalDesk, command: str, error: str) -> None:
    desk.targets(one=f"if [ {{EVAL_ID}} = a ]; then {command}; else {HELLO}; fi")

    said = desk.go_ent("run", desk.suite(["a", "b"]), "--out", desk.out)

    assert said.code == 3, said.err
    rows = {row.test_id: row for row in desk.rows()}
    assert (rows["a"].error or "").startswith(error)
    assert rows["b"].passed


def test_a_suite_that_fails_on_errors_makes_no_further_trial(desk: EvalDesk) -> None:
    desk.targets(one=f"echo {{EVAL_ID}} >> calls; [ {{EVAL_ID}} != b ] && {HELLO}", two=HELLO)
    tests = [
        {"id": one, "input": "x", "assertions": [{"type": "is-json", "negate": True}]}
        for one in IDS
    ]
    execution = {"fail_on_error": True, "workers": 1, "targets": ["one", "two"]}
    suite = desk.write("demo.eval.yaml", {"execution": execution, "tests": tests})

    said = desk.go_ent("run", suite, "--out", desk.out)

    assert said.code == 3, said.err
    assert sorted(desk.calls) == ["a", "b"]
    assert len(desk.rows()) == 2 + len(IDS), "the other target has not failed"
    assert "fail_on_error" in said.out
    assert "--retry errors" in said.out + said.err

    desk.go_ent("run", suite, "--out", desk.out, "--resume")
    assert sorted(desk.calls) == ["a", "b"], "the failure still stands"


def test_numbers_that_cannot_be_true_are_not_known_and_cost_no_row(desk: EvalDesk) -> None:
    answer = '{"text": "hello", "cost_usd": -1, "duration_ms": -5}'
    desk.targets(one=f"echo '{answer}' > {{OUTPUT_FILE}}")

    said = desk.go_ent("run", desk.suite(["a"]), "--out", desk.out)

    assert said.code == 0, said.err
    (row,) = desk.rows()
    assert (row.cost_usd, row.passed) == (None, True)


def test_names_that_look_like_keys_or_like_our_own_files_are_names(desk: EvalDesk) -> None:
    names = ["sk-learn-pipeline-case-0000000001", "sk-learn-pipeline-case-0000000002"]
    names += ["run.json.new", "index.jsonl.new", "index.1.jsonl"]
    desk.targets(one=HELLO)
    run = ("run", desk.suite(names), "--out", desk.out)

    assert desk.go_ent(*run).code == 0
    assert desk.go_ent(*run, "--resume").code == 0

    assert sorted(row.test_id for row in desk.rows()) == sorted(names)
    assert desk.go_ent("grade", desk.out).code == 0


def test_no_more_scripts_grade_at_once_than_a_machine_stands(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    desk.let_scripts_write_here()
    script = "echo begun >> log; sleep 0.5; echo over >> log; echo 1"
    grader = {"type": "code-grader", "command": ["sh", "-c", script]}
    suite = desk.suite(["a", "b", "c", "d"], assertions=[grader] * (PARALLEL_SCRIPTS // 2))

    said = desk.go_ent("run", suite, "--out", desk.out)

    assert said.code == 0, said.err
    log = (desk.folder / "log").read_text().split()
    steps = accumulate(1 if word == "begun" else -1 for word in log)
    assert len(log) == 4 * PARALLEL_SCRIPTS
    assert max(steps) <= PARALLEL_SCRIPTS


def test_a_reader_who_goes_away_does_not_end_the_run(desk: EvalDesk) -> None:
    desk.targets(one=f"sleep 0.1; {HELLO}")
    command = [*GO_ENT, "run", str(desk.suite(IDS)), "--out", str(desk.out), "-j", "1"]
    process = subprocess.Popen(
        command, cwd=desk.folder, env=desk.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr
    process.stderr.readline()
    process.stderr.close()
    assert process.stdout
    process.stdout.read()
    process.stdout.close()

    assert process.wait(60) == 0
    assert len(desk.rows()) == len(IDS)


def test_who_begins_with_nohup_goes_on_without_his_terminal(desk: EvalDesk) -> None:
    desk.targets(one=f"echo {{EVAL_ID}} >> calls; sleep 0.2; {HELLO}")
    process = desk.start("run", desk.suite(IDS), "--out", desk.out, shell="trap '' HUP")
    desk.until_calls(1)
    process.send_signal(signal.SIGHUP)

    assert ended(process).code == 0


def test_the_verdict_of_a_grading_is_told_as_it_is(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    assert desk.go_ent("run", desk.suite(["a"]), "--out", desk.out).code == 0
    graders = desk.write("g.yaml", {"assertions": [{"type": "contains", "value": "goodbye"}]})

    said = desk.go_ent("grade", desk.out, "--graders", graders)

    assert said.code == 1
    assert "✗ failed" in said.out
    assert '"result":"failed"' in desk.go_ent("report", desk.out, "--json").out.replace(" ", "")


async def dear(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
    await anyio.sleep(0.01)
    return says("yes", cost_usd=0.5)


@pytest.mark.anyio
async def test_a_budget_holds_although_nobody_knows_yet_what_a_trial_costs(tmp_path: Path) -> None:
    target = Scripted(dear)
    stage = Stage(tmp_path / "out", {"one": target})

    outcome = await stage.run(
        [suite(*map(case, IDS))], bounds=EvalLimits(workers=4, budget_usd=1.0)
    )

    assert len(target.asked) == 2
    assert (outcome.unrun, outcome.left_out) == (3, 3)


@pytest.mark.anyio
async def test_what_is_known_of_the_costs_counts_where_the_rest_is_not(tmp_path: Path) -> None:
    async def broken(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        raise TargetError("no_answer", "nothing")

    stage = Stage(tmp_path / "out", {"first": Scripted(broken), "second": Scripted(dear)})
    spec = TargetSpec(name="first", kind="mock", fallbacks=("second",))
    cases = [case(name, targets=("first",)) for name in IDS]

    outcome = await stage.run(
        [suite(*cases)], specs=[spec], bounds=EvalLimits(workers=1, budget_usd=1.0)
    )

    assert [row.known_cost_usd for row in stage.watched.rows] == [0.5, 0.5]
    assert outcome.unrun == 3


@pytest.mark.anyio
async def test_trials_that_the_budget_left_out_are_no_pass(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "out", {"one": Scripted(dear)})
    trials = Trials(count=3, cost_limit_usd=100.0)

    outcome = await stage.run(
        [suite(case("a"), trials=trials)], bounds=EvalLimits(workers=1, budget_usd=0.5)
    )

    assert (outcome.passed, outcome.unrun, outcome.exit_code) == (0, 1, 3)


def test_cases_without_a_limit_of_their_own_are_not_remembered() -> None:
    purse = EvalBudget(1.0, {"suite": 1.0}, {})
    tracemalloc.start()
    for number in range(1000):
        made = Trial(
            case=case(str(number)),
            target="one",
            number=1,
            trials=Trials(),
            threshold=0.8,
            folder=".",
        )
        with purse.reserve(made):
            pass
        row = Row(
            test_id=made.case.id, target="one", suite="suite", score=1.0, execution_status="ok"
        )
        purse.record([row])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 50_000


@pytest.mark.anyio
async def test_three_dimes_are_thirty_cents(tmp_path: Path) -> None:
    async def dime(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("yes", cost_usd=0.1)

    stage = Stage(tmp_path / "out", {"one": Scripted(dime)})

    outcome = await stage.run(
        [suite(*map(case, "abc"))], bounds=EvalLimits(workers=1, budget_usd=0.3)
    )

    assert (outcome.passed, outcome.exit_code) == (3, 0)


@pytest.mark.anyio
async def test_waiting_for_a_turn_is_not_the_targets_time(tmp_path: Path) -> None:
    async def slow(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        await anyio.sleep(0.3)
        return says("yes")

    stage = Stage(tmp_path / "out", {"first": Scripted(slow), "second": Scripted(slow)})
    both = [
        TargetSpec(name="first", kind="mock"),
        TargetSpec(name="second", kind="mock", workers=1),
    ]
    wide = Suite(
        name="s",
        path=Path("s"),
        form="v4",
        cases=tuple(case(name, targets=("first",)) for name in "abcdefgh"),
        workers=8,
    )

    await stage.run([wide], specs=both)

    first = stage.targets["first"]
    assert isinstance(first, Scripted)
    assert first.most_at_once == 8
    assert {(row.duration_ms or 0) < 600 for row in stage.watched.rows} == {True}


@pytest.mark.anyio
async def test_waits_grow_to_their_limit_and_not_beyond_numbers(tmp_path: Path) -> None:
    async def busy(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        raise TargetError("overloaded", "again", retryable=True)

    retry = Retry(max_retries=40, initial_delay_s=0.001, max_delay_s=0.002, factor=1e300)
    stage = Stage(tmp_path / "out", {"one": Scripted(busy)})

    await stage.run([suite(case("a"))], specs=[TargetSpec(name="one", kind="mock", retry=retry)])

    assert max(wait for _, wait in stage.watched.failures) == 0.002


PASSED = CaseGrade(score=1.0, status="ok")


def a_row(name: str) -> Row:
    return Row(
        test_id=name,
        target="t",
        score=1.0,
        execution_status="ok",
        trace_path=f"{name}/trace.json",
        grades_path=f"{name}/grades.json",
    )


@pytest.mark.anyio
async def test_a_row_that_was_written_with_others_waits_for_nobody_else(tmp_path: Path) -> None:
    """Grades go into pipes here, so that a write goes on when somebody reads it."""
    names = ("first", "with", "along", "last", "later")
    ended = {name: anyio.Event() for name in names}
    pipes = {name: tmp_path / "out" / name / "grades.json.new" for name in names if name != "along"}
    for pipe in pipes.values():
        pipe.parent.mkdir(parents=True)
        os.mkfifo(pipe)
    (tmp_path / "out" / "run.json").touch()

    async def keep(name: str) -> None:
        await folder.store_trial(PASSED, a_row(name))
        ended[name].set()

    with StoredRun.open(tmp_path / "out") as folder:
        async with anyio.create_task_group() as group:
            for arriving, read in (
                (names[:1], ()),
                (names[1:4], ("first", "with")),
                (names[4:], ("last",)),
            ):
                for name in arriving:
                    group.start_soon(keep, name)
                await anyio.lowlevel.checkpoint()
                for name in read:
                    await anyio.to_thread.run_sync(pipes[name].read_bytes)
            with anyio.move_on_after(10):
                for name in names[:4]:
                    await ended[name].wait()
            told = [name for name in names if ended[name].is_set()]
            await anyio.to_thread.run_sync(pipes["later"].read_bytes)  # or nothing would end here
            assert told == ["first", "with", "along", "last"]
        assert [row.test_id for row in folder.rows().rows] == list(names)


@pytest.mark.anyio
async def test_what_has_ended_is_kept_although_it_is_cancelled_while_it_is_written(
    tmp_path: Path,
) -> None:
    with StoredRun.open(tmp_path / "out") as folder:
        async with anyio.create_task_group() as group:
            for name in IDS:
                group.start_soon(folder.store_trial, PASSED, a_row(name))
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        kept = latest_rows(folder.rows().rows)

    assert sorted(row.test_id for row in kept) == IDS


def test_no_two_trials_share_a_folder() -> None:
    def named(name: str, *cases: str, targets: tuple[str, ...]) -> Suite:
        made = tuple(case(one, targets=targets) for one in cases)
        return Suite(
            name=name,
            path=Path(name),
            form="v4",
            cases=tuple(replace(one, suite=name) for one in made),
        )

    known = {name: TargetSpec(name=name, kind="mock") for name in ("ok", "dime")}
    suites = [
        named("A", "ok", targets=("ok",)),
        named("B", "A", "ok", targets=("ok", "dime")),
        named("C", "x", "X", targets=("ok",)),
    ]

    folders = [trial.folder.casefold() for trial in plan_trials(suites, known, RunSelection())]

    assert len(set(folders)) == len(folders)
