"""Cases that need others: who waits for whom, what is skipped, and what that counts for."""

import signal
from pathlib import Path

import pytest
from eval_desk import EvalDesk, interrupted
from msgspec.structs import replace
from run_stage import Scripted, Stage, case, says, suite

from goent.domain.errors import ConfigError
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.eval_results import Row
from goent.evals.reports.report_formats import junit_xml, summary_markdown
from goent.evals.reports.run_summary import run_totals, summarize_targets
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.trial_plan import RunSelection, plan_trials
from goent.evals.suites import EvalCase, TargetSpec, Trials
from goent.evals.traces import Trace

pytestmark = pytest.mark.anyio


def needing(name: str, *needs: str, how: str = "skip", targets: tuple[str, ...] = ()) -> EvalCase:
    return replace(case(name, targets=targets), needs=needs, on_need_failure=how)


async def by_name(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
    if attempt.case.id == "broken":
        raise TargetError("no_answer", "nothing came")
    return says("no" if attempt.case.id == "bad" else "yes", cost_usd=0.5)


async def ran(
    tmp_path: Path, *cases: EvalCase, wanted: RunSelection | None = None, trials: int = 1
) -> tuple[Stage, Scripted, int]:
    target = Scripted(by_name)
    stage = Stage(tmp_path / "out", {"one": target})
    many = suite(*cases, trials=Trials(count=trials))
    outcome = await stage.run([many], wanted=wanted, bounds=EvalLimits(workers=3))
    return stage, target, outcome.exit_code


async def test_a_case_comes_after_all_trials_of_what_it_needs(tmp_path: Path) -> None:
    cases = (needing("last", "middle"), needing("middle", "first"), case("first"))
    _, target, code = await ran(tmp_path, *cases, trials=2)

    asked = [attempt.case.id for attempt in target.asked]
    assert asked == ["first", "first", "middle", "middle", "last", "last"]
    assert code == 0


@pytest.mark.parametrize(
    ("how", "status"), [("skip", "skipped"), ("fail", "quality_failure"), ("run", "ok")]
)
@pytest.mark.parametrize(("failing", "code"), [("bad", 1), ("broken", 3)])
async def test_what_becomes_of_a_case_whose_need_did_not_pass(
    tmp_path: Path, how: str, status: str, failing: str, code: int
) -> None:
    after = needing("after", failing, how=how)
    stage, target, exit_code = await ran(tmp_path, case(failing), after)

    (row,) = (row for row in stage.watched.rows if row.test_id == "after")
    assert (row.execution_status, exit_code) == (status, code)
    assert row.error == (None if how == "run" else f"it depends on {failing!r}, which did not pass")
    assert len(target.asked) == (2 if how == "run" else 1)


async def test_skipping_goes_on_and_counts_for_nothing(tmp_path: Path) -> None:
    cases = (case("bad"), needing("b", "bad"), needing("c", "b"), case("good"))
    stage, _, code = await ran(tmp_path, *cases)

    rows = stage.watched.rows
    assert stage.watched.statuses["c"] == "skipped"
    assert code == 1
    (summary,) = summarize_targets(rows)
    assert summary.pass_rate and summary.pass_rate.value == 0.5, "of those that were tried"
    totals = run_totals(rows)
    assert (totals.failed, totals.errors, totals.skipped) == (1, 0, 2)
    xml = junit_xml(rows).decode()
    assert 'skipped="2"' in xml
    assert '<skipped message="it depends on &apos;bad&apos;' in xml.replace("'", "&apos;")
    assert "### Skipped" in summary_markdown([summary])


async def test_for_agentv_what_could_be_judged_is_good_enough(tmp_path: Path) -> None:
    cases = (case("bad"), needing("b", "bad"), case("broken"), needing("c", "broken"))
    stage, _, _ = await ran(tmp_path, *cases, wanted=RunSelection(compat=True))

    statuses = stage.watched.statuses
    assert (statuses["b"], statuses["c"]) == ("ok", "execution_error")


async def test_what_a_chosen_case_needs_comes_along(tmp_path: Path) -> None:
    cases = (case("first"), needing("middle", "first"), needing("last", "middle"), case("other"))
    _, target, code = await ran(tmp_path, *cases, wanted=RunSelection(ids=("last",)))

    assert [attempt.case.id for attempt in target.asked] == ["first", "middle", "last"]
    assert code == 0


def test_what_a_chosen_case_needs_may_not_be_excluded() -> None:
    ships = replace(needing("ships", "builds"), tags=("s",))
    many = suite(replace(case("builds"), tags=("s",)), ships, needing("after", "ships"))
    known = {"one": TargetSpec(name="one", kind="mock")}

    with pytest.raises(ConfigError) as caught:
        plan_trials([many], known, RunSelection(without_tags=("t", "s")))

    assert str(caught.value) == (
        "suite.eval.yaml:1: 'after' depends on 'ships', which --exclude-tag 's' leaves out: "
        "exclude both, or neither"
    )
    both = plan_trials([many], known, RunSelection(without_tags=("t",), ids=("after",)))
    assert [trial.case.id for trial in both] == ["builds", "ships", "after"]


async def test_a_need_is_of_the_same_target_if_that_has_it(tmp_path: Path) -> None:
    async def no(_attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
        return says("no")

    stage = Stage(tmp_path / "out", {"good": Scripted(by_name), "poor": Scripted(no)})
    both = ("good", "poor")
    cases = (
        needing("after", "first", targets=both),
        case("first", targets=both),
        needing("elsewhere", "only", targets=("good",)),
        case("only", targets=("poor",)),
    )
    await stage.run([suite(*cases)])

    statuses = {(row.test_id, row.target): row.execution_status for row in stage.watched.rows}
    assert statuses["after", "good"] == "ok"
    assert statuses["after", "poor"] == "skipped"
    assert statuses["elsewhere", "good"] == "skipped", "by whoever has it"


def test_a_long_chain_is_planned() -> None:
    chain = [case("0"), *(needing(str(n), str(n - 1)) for n in range(1, 3000))]
    trials = plan_trials(
        [suite(*reversed(chain))], {"one": TargetSpec(name="one", kind="mock")}, RunSelection()
    )

    assert [trial.case.id for trial in trials] == [str(n) for n in range(3000)]


@pytest.mark.parametrize("how", ["skip", "fail", "run"])
async def test_what_needs_a_case_that_the_budget_left_out_is_left_out_too(
    tmp_path: Path, how: str
) -> None:
    stage = Stage(tmp_path / "out", {"one": Scripted(by_name)})
    many = suite(case("a"), case("b"), needing("after", "b", how=how), needing("last", "after"))
    outcome = await stage.run([many], bounds=EvalLimits(workers=1, budget_usd=0.6))

    assert stage.watched.statuses == {"a": "ok"}
    assert (outcome.unrun, outcome.left_out, outcome.failed, outcome.skipped) == (3, 3, 0, 0)
    assert outcome.exit_code == 3

    resumed = await stage.run([many])
    assert [row.test_id for row in stage.watched.rows] == ["a", "b", "after", "last"]
    assert resumed.exit_code == 0


SUITE = {
    "name": "demo",
    "tests": [
        {"id": "ship", "input": "x", "depends_on": ["build"]},
        {"id": "build", "input": "x"},
    ],
    "assertions": [{"type": "contains", "value": "hello"}],
}


def test_a_run_in_processes_is_resumed_and_what_was_skipped_is_decided_anew(
    tmp_path: Path,
) -> None:
    desk = EvalDesk(tmp_path)
    desk.targets(
        one="echo {EVAL_ID} >> calls; test -e mended || exit 1; "
        "if [ {EVAL_ID} = ship ]; then while [ ! -e go ]; do sleep 0.05; done; fi; "
        "echo hello > {OUTPUT_FILE}"
    )
    run = ("run", desk.write("demo.eval.yaml", SUITE), "--out", desk.out, "--id", "ship")

    foreseen = desk.go_ent(*run, "--dry-run")
    assert "ship, after build" in foreseen.out, foreseen
    first = desk.go_ent(*run)
    assert first.code == 3, first.err
    assert "1 skipped" in first.out
    assert "also run, because selected cases depend on them: build" in first.err
    assert desk.calls == {"build": 1}

    (desk.folder / "mended").touch()
    process = desk.start(*run, "--resume", "--retry", "errors")
    desk.until_calls(3)
    interrupted(process, signal.SIGKILL)
    (desk.folder / "go").touch()
    last = desk.go_ent(*run, "--resume")

    assert last.code == 0, last.err
    assert "also run, because selected cases depend on them: build" in last.err
    assert desk.calls == {"build": 2, "ship": 2}
    assert statuses(desk.rows()) == {"build": "ok", "ship": "ok"}
    graded = desk.go_ent("grade", desk.out)
    assert graded.code == 0, graded.err
    assert desk.go_ent("report", desk.out, "--html", "page.html").code == 0


def test_a_skipped_case_stays_so_when_the_run_is_graded_again(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    desk.targets(one="echo bye > {OUTPUT_FILE}")
    written = desk.write("demo.eval.yaml", SUITE)
    first = desk.go_ent("run", written, "--out", desk.out)
    desk.write("demo.eval.yaml", {**SUITE, "assertions": [{"type": "contains", "value": "bye"}]})

    again = desk.go_ent("grade", desk.out)

    assert (first.code, again.code) == (1, 3), again.err
    assert statuses(desk.rows()) == {"build": "ok", "ship": "skipped"}
    assert desk.go_ent("report", desk.out, "--html", "page.html").code == 0
    page = (desk.folder / "page.html").read_text()
    assert 'data-state="skipped"' in page


def statuses(rows: tuple[Row, ...]) -> dict[str, str]:
    return {row.test_id: row.execution_status for row in rows}
