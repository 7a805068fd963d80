"""Judges in a run: who is asked, what it costs, and what is known before anything starts."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from run_stage import Watched

from goent.composition.eval_app import EvalApp
from goent.composition.live_project import Project
from goent.domain.errors import ConfigError
from goent.evals.eval_ports import EvalDaemon
from goent.evals.eval_results import Row, read_rows
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.run_folder import StoredRun
from goent.evals.runner.run_preparation import prepare_run
from goent.evals.runner.trial_plan import RunSelection

pytestmark = pytest.mark.anyio

TARGETS = """
targets:
  - {name: coder, provider: mock, response: {text: "Good morning.", cost_usd: 1.0}}
  - {name: judged, provider: mock, response: {text: "Good morning.", cost_usd: 1.0}, grader_target: strict}
  - {name: strict, provider: mock, response: {text: '{"score": 0.4}', cost_usd: 0.5}}
  - {name: kind, provider: mock, response: {text: '{"score": 1}'}}
"""
CASE = "tests: [{id: a, input: Greet, criteria: polite}, {id: b, input: Greet, criteria: polite}]"


def nobody() -> AbstractAsyncContextManager[EvalDaemon]:
    raise AssertionError("no worker is needed")


async def rows(
    folder: Path,
    *,
    suite: str = CASE,
    target: str = "coder",
    judge: str = "",
    budget_usd: float | None = None,
) -> tuple[tuple[Row, ...], Watched]:
    (folder / ".goent").mkdir(exist_ok=True)
    (folder / ".goent/targets.yaml").write_text(TARGETS)
    (folder / "x.eval.yaml").write_text(suite)
    wanted = RunSelection(targets=(target,), judge=judge)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GOENT_HOME": str(folder / "home")}
    prepared = prepare_run([folder / "x.eval.yaml"], environ, wanted)
    watched = Watched()
    app = EvalApp(project=Project(folder, environ), open_daemon=nobody, watcher=watched)
    with StoredRun.open(folder / "out") as out:
        await app.run(prepared, out, EvalLimits(budget_usd=budget_usd, workers=1))
    return read_rows(folder / "out/index.jsonl").rows, watched


async def test_the_command_names_who_judges_where_nobody_else_does(tmp_path: Path):
    found, _ = await rows(tmp_path, judge="kind")
    assert [(row.score, row.cost_usd, row.judge_cost_usd) for row in found] == [(1, 1, None)] * 2


async def test_a_target_has_a_judge_of_its_own(tmp_path: Path):
    found, _ = await rows(tmp_path, target="judged", judge="kind")
    assert [(row.score, row.judge_cost_usd) for row in found] == [(0.4, 0.5)] * 2


async def test_a_grader_that_names_its_judge_gets_him(tmp_path: Path):
    grader = "{type: llm-grader, criteria: polite, target: kind}"
    suite = f"tests: [{{id: a, input: x, assertions: [{grader}]}}]"
    found, _ = await rows(tmp_path, suite=suite, target="judged")
    assert [row.score for row in found] == [1]


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        ("", r"x\.eval\.yaml:1: case 'a' needs a judge; name one by --judge"),
        ("nobody", "unknown judge 'nobody'; name a target"),
    ],
)
async def test_that_nobody_can_judge_is_known_before_anything_runs(
    tmp_path: Path, judge: str, told: str
):
    with pytest.raises(ConfigError, match=told):
        await rows(tmp_path, judge=judge)
    assert not (tmp_path / "out/index.jsonl").exists()


async def test_judges_are_paid_from_the_same_purse(tmp_path: Path):
    found, _ = await rows(tmp_path, target="judged", budget_usd=2.7)
    assert len(found) == 1  # 1 for the answer and 0.5 for the judge: another one does not fit


async def test_a_judge_whose_price_nobody_knows_is_told(tmp_path: Path):
    found, watched = await rows(tmp_path, judge="kind", budget_usd=1.5)
    assert len(found) == 1  # what is known of it counts
    assert watched.warnings == [
        "the cost of the judge of 'coder' is unknown, so the budget cannot count it"
    ]
