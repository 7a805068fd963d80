"""What an earlier making of a trial has left is kept, and paid for, when the trial is made again."""

import signal
from pathlib import Path

import anyio
import msgspec
import pytest
from eval_desk import EvalDesk, interrupted
from run_stage import Scripted, Stage, case, says, suite

from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.run_folder import archive_files, interrupted_cost_usd
from goent.evals.runner.trial_plan import RunSelection
from goent.evals.suites import Trials
from goent.evals.traces import Trace, TracedMessage

pytestmark = pytest.mark.anyio


async def cut_off(out: Path, *, cost_usd: float | None = None) -> bytes:
    """A run that ends in the middle of its attempt; what that had told."""
    begun = anyio.Event()

    async def tells(_attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        witness.message(0, TracedMessage(role="assistant", content="so far"))
        witness.usage_changed(None, cost_usd)
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as group:
        stage = Stage(out, {"one": Scripted(tells)})
        group.start_soon(stage.run, [suite(case("a"), case("b"))])
        with anyio.fail_after(20):
            await begun.wait()
        group.cancel_scope.cancel()
    return (out / "a" / "trace.jsonl").read_bytes()


async def test_what_was_cut_off_is_kept_although_the_next_attempt_never_begins(
    tmp_path: Path,
) -> None:
    told = await cut_off(tmp_path / "out")

    async def refuses(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        raise TargetError("no_model", "nobody to ask")

    await Stage(tmp_path / "out", {"one": Scripted(refuses)}).run([suite(case("a"), case("b"))])

    assert b"so far" in told
    assert (tmp_path / "out" / "a" / "earlier-1" / "trace.jsonl").read_bytes() == told


async def test_what_was_cut_off_counts_for_the_budget(tmp_path: Path) -> None:
    out = tmp_path / "out"
    await cut_off(out, cost_usd=0.4)

    async def yes(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("yes", cost_usd=0.1)

    stage, bounds = Stage(out, {"one": Scripted(yes)}), EvalLimits(budget_usd=1.0, workers=1)
    first = await stage.run([suite(case("a"), case("b"))], bounds=bounds)
    # Both were under way when it ended: 0.8 is spent already, and is so when it was set aside.
    second = await stage.run([suite(case("a"), case("b"), case("c"))], bounds=bounds)

    assert (first.passed, first.stopped) == (2, "")
    assert "budget of 1 USD is used up" in second.stopped
    assert [row.test_id for row in stage.watched.rows] == ["a", "b"]


async def test_trials_that_the_suite_has_no_more_release_nobody(tmp_path: Path) -> None:
    async def yes(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("yes")

    stage = Stage(tmp_path / "out", {"one": Scripted(yes)})
    await stage.run([suite(case("a"), trials=Trials(count=3))])
    index = tmp_path / "out" / "index.jsonl"
    index.write_bytes(index.read_bytes().splitlines(keepends=True)[2])
    asked: list[str] = []

    async def noted(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        asked.append(attempt.case.id)
        return says("yes")

    after = msgspec.structs.replace(case("b"), needs=("a",))
    again = Stage(tmp_path / "out", {"one": Scripted(noted)})
    await again.run([suite(case("a"), after, trials=Trials(count=1))], bounds=EvalLimits(workers=2))
    assert asked == ["a", "b"]


def test_retrying_keeps_the_trace_and_the_grades_from_before(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    desk.targets(one="cat answer > {OUTPUT_FILE}")
    (desk.folder / "answer").write_text("bye")
    run = ("run", desk.suite(["a"]), "--out", desk.out)
    assert desk.go_ent(*run).code == 1
    before = {name: (desk.out / "a" / name).read_bytes() for name in ("trace.json", "grades.json")}

    (desk.folder / "answer").write_text("hello")
    said = desk.go_ent(*run, "--resume", "--retry", "failed")

    assert said.code == 0, said.err
    for name, content in before.items():
        assert (desk.out / "a" / "earlier-1" / name).read_bytes() == content
        assert (desk.out / "a" / name).read_bytes() != content
    assert [row.score for row in desk.rows()] == [0, 1]


def test_a_folder_whose_name_is_no_utf_8_costs_no_row(tmp_path: Path) -> None:
    odd = tmp_path / "caf\udce9"
    odd.mkdir()
    desk = EvalDesk(odd)
    desk.targets(one="cat nothing > {OUTPUT_FILE}")

    said = desk.go_ent("run", desk.suite(["a", "b"]), "--out", desk.out)

    assert said.code == 3, said.err
    assert sorted(row.test_id for row in desk.rows()) == ["a", "b"]


def test_a_pattern_fits_a_case_of_that_very_name() -> None:
    wanted = RunSelection(ids=("case[1]",))
    assert wanted.matches(case("case[1]"))
    assert wanted.matches(case("case1"))
    assert not wanted.matches(case("case2"))


def test_a_folder_that_was_taken_away_leaves_its_number_free(tmp_path: Path) -> None:
    for number in (2, 7):
        (tmp_path / f"earlier-{number}").mkdir()
    (tmp_path / "trace.jsonl").write_text("{}\n")
    archive_files(tmp_path)
    assert (tmp_path / "earlier-8" / "trace.jsonl").exists()


def test_failed_attempts_of_a_trial_that_was_killed_were_paid_for(tmp_path: Path) -> None:
    (tmp_path / "attempt-0.json").write_text('{"messages":[],"cost_usd":0.5}')
    assert interrupted_cost_usd(tmp_path) == 0.5
    (tmp_path / "trace.jsonl").write_text(
        '{"at":"x","cost_usd":0.1}\n{"at":"x","cost_usd":0.2}\n{"a'
    )
    assert interrupted_cost_usd(tmp_path) == pytest.approx(0.7)
    archive_files(tmp_path)
    assert interrupted_cost_usd(tmp_path) == pytest.approx(0.7)
    (tmp_path / "attempt-0.json").write_text('{"messages":[],"cost_usd":0.5}')
    (tmp_path / "trace.json").write_text("{}")
    assert interrupted_cost_usd(tmp_path) == pytest.approx(0.7), "this one has a row"


def test_a_grading_does_not_forget_what_was_spent(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    answer = '{"text": "bye", "cost_usd": 1}'
    desk.targets(one=f"echo '{answer}' > {{OUTPUT_FILE}}; echo x >> calls")
    run = ("run", desk.suite(["a"]), "--out", desk.out, "--budget-usd", "2.5")
    again = (*run, "--resume", "--retry", "failed")
    assert [desk.go_ent(*run).code, desk.go_ent(*again).code] == [1, 1]
    desk.go_ent("grade", desk.out)
    said = desk.go_ent(*again)
    assert "budget of 2.5 USD is used up" in said.out + said.err
    assert desk.calls.total() == 2


def test_what_attempts_need_may_be_gone_when_they_are_graded(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    for name in ("work", "start"):
        (desk.folder / name).mkdir()
    one = {"name": "one", "provider": "cli", "cwd": "work", "command": "echo hello > {OUTPUT_FILE}"}
    desk.write(".goent/targets.yaml", {"targets": [one]})
    suite = {"tests": [{"id": "a", "input": "x", "assertions": [{"type": "is-json"}]}]}
    written = desk.write("s.eval.yaml", {**suite, "workspace": {"template": "start"}})
    assert desk.go_ent("run", written, "--out", desk.out).code == 1
    for name in ("work", "start"):
        (desk.folder / name).rmdir()
    said = desk.go_ent("grade", desk.out)
    assert said.code == 1, said.err
    assert desk.go_ent("validate", written).code == 2


def test_a_grading_that_was_killed_can_be_begun_again(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    desk.targets(one="echo hello > {OUTPUT_FILE}")
    desk.let_scripts_write_here()
    slow = [
        {"type": "code-grader", "command": ["sh", "-c", "echo x >> calls; test -e go || sleep 60"]}
    ]
    (desk.folder / "go").touch()
    assert desk.go_ent("run", desk.suite(["a"], assertions=slow), "--out", desk.out).code == 0
    (desk.folder / "go").unlink()
    grade = ("grade", desk.out, "--out", desk.folder / "again")
    process = desk.start(*grade)
    desk.until_calls(2)
    interrupted(process, signal.SIGKILL)
    (desk.folder / "go").touch()
    said = desk.go_ent(*grade)
    assert said.code == 0, said.err
