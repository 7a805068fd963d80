"""Evaluations beside the work: asked of the daemon, run by a process of their own."""

import sys
from pathlib import Path

import anyio
import pytest
from attended_play import SUITE, furnish, run, runs_of, status
from world import COLD, World, a_cold_world, kill, refusal, told

from goent.domain.errors import ConfigError, RequestError
from goent.domain.evaluation_messages import EvalCompareRequest, EvalRunRequest, EvalStatus
from goent.evals.attended.attended_runs import PARALLEL_RUNS, EvalRuns
from goent.evals.attended.attended_status import run_status
from goent.evals.eval_results import GradeVerdict, Row, RowFile, Score, read_rows, row_line
from goent.evals.runner.run_folder import StoredRun

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    furnish(made)
    return made


async def done(runs: EvalRuns, name: str, trials: int) -> None:
    with anyio.fail_after(60):
        while (await status(runs, name)).done < trials:  # noqa: ASYNC110 (it is read from files)
            await anyio.sleep(0.05)


async def test_a_run_is_begun_at_once_and_told_of_until_its_end(project: Path):
    async with runs_of(project) as runs:
        begun = await run(runs, project, target=("bad",))
        assert (begun.state, begun.done, begun.total) == ("running", 0, 3)
        assert Path(begun.out) == project / ".goent" / "evals" / begun.run_id
        ended = await status(runs, begun.run_id, wait_s=60)
        assert (ended.state, ended.exit_code) == ("finished", 1)
        assert (ended.done, ended.passed, ended.failed, ended.errors) == (3, 0, 3, 0)
        assert ended.cost_usd is None
        assert [(t.test_id, t.status) for t in ended.troubles] == [
            (case, "quality_failure") for case in ("c1", "c2", "c3")
        ]
        assert "contains" in ended.troubles[0].why
        assert (project / ".goent" / "evals" / ".gitignore").read_text() == "*\n"


async def test_cases_are_chosen_by_their_tags(project: Path):
    async with runs_of(project) as runs:
        begun = await run(runs, project, tags=("first",), exclude_tags=("last",))
        ended = await status(runs, begun.run_id, wait_s=60)
        with pytest.raises(RequestError, match="leave tags out"):
            await run(runs, project, suites=(), resume=begun.run_id, tags=("first",))
    assert (ended.done, ended.total, ended.exit_code) == (1, 1, 0)


async def test_a_cancelled_run_keeps_what_it_has_and_can_be_gone_on_with(project: Path):
    async with runs_of(project) as runs:
        begun = await run(runs, project, target=("slow",))
        await done(runs, begun.run_id, 1)
        ended = await status(runs, begun.run_id, cancel=True)
        assert (ended.state, ended.done, ended.total) == ("cancelled", 1, 3)
        assert f"resume {begun.run_id!r}" in ended.message
        (project.parent / "go").touch()
        again = await runs.run(EvalRunRequest(resume=begun.run_id), project)
        assert (again.run_id, again.state) == (begun.run_id, "running")
        ended = await status(runs, begun.run_id, wait_s=60)
        assert (ended.state, ended.exit_code) == ("finished", 1)
        rows = read_rows(Path(ended.out) / "index.jsonl").rows
        assert sorted(row.test_id for row in rows) == ["c1", "c2", "c3"]


async def test_a_run_ends_with_whoever_began_it_and_says_that_it_was_cut_off(project: Path):
    async with runs_of(project) as runs:
        begun = await run(runs, project, target=("slow",))
        await done(runs, begun.run_id, 1)
    async with runs_of(project) as runs:
        found = await status(runs, begun.run_id)
        assert (found.state, found.exit_code, found.done) == ("failed", None, 1)
        assert "cut off" in found.message
        assert f"resume {begun.run_id!r}" in found.message


def test_a_grader_that_was_skipped_is_no_trouble(tmp_path: Path):
    verdicts: tuple[GradeVerdict, ...] = ("pass", "fail", "skip", "borderline")
    scores = tuple(Score(name=one, type="regex", score=0.5, verdict=one) for one in verdicts)
    row = Row(test_id="c", target="t", score=0.5, execution_status="quality_failure", scores=scores)
    index = RowFile(tmp_path / "index.jsonl")
    index.append([row_line(row)])
    index.close()
    (trouble,) = run_status(tmp_path, "x", under_way=False).troubles
    assert trouble.why == "fail: 0.5, borderline: 0.5"


async def test_a_cancel_is_forgotten_when_the_run_is_gone_on_with_at_a_terminal(project: Path):
    async with runs_of(project) as runs:
        begun = await run(runs, project, target=("slow",))
        await done(runs, begun.run_id, 1)
        assert (await status(runs, begun.run_id, cancel=True)).state == "cancelled"
        with StoredRun.open(Path(begun.out)):
            assert (await status(runs, begun.run_id)).state == "running"
        assert (await status(runs, begun.run_id)).state == "cancelled"
        (project.parent / "go").touch()
        suite, options = str(project / "demo.eval.yaml"), ("--target", "slow", "--resume")
        command = (sys.executable, "-m", "goent", "eval", "run", suite, "--out", begun.out)
        await anyio.run_process([*command, *options], cwd=project, check=False)
        ended = await status(runs, begun.run_id)
        assert (ended.state, ended.done, ended.exit_code) == ("finished", 3, 1)


async def at_once(runs: EvalRuns, *requests: EvalRunRequest) -> tuple[list[EvalStatus], list[str]]:
    """Those that were begun, and why the others were not."""
    begun, refused = list[EvalStatus](), list[str]()

    async def ask(request: EvalRunRequest) -> None:
        try:
            begun.append(await runs.run(request, runs.project))
        except RequestError as error:
            refused.append(str(error))

    async with anyio.create_task_group() as group:
        for request in requests:
            group.start_soon(ask, request)
    return begun, refused


async def test_those_who_ask_at_once_keep_to_the_limit(project: Path):
    request = EvalRunRequest(suites=("demo.eval.yaml",), target=("slow",))
    async with runs_of(project) as runs:
        begun, refused = await at_once(runs, *[request] * (PARALLEL_RUNS + 2))
        assert len({one.run_id for one in begun}) == len(begun) == PARALLEL_RUNS
        assert [f"{PARALLEL_RUNS} evaluations are running already" in why for why in refused] == [
            True,
            True,
        ]


async def test_a_run_is_gone_on_with_by_one_of_those_who_ask_at_once(project: Path):
    async with runs_of(project) as runs:
        first = await run(runs, project, target=("slow",))
        await done(runs, first.run_id, 1)
        await status(runs, first.run_id, cancel=True)
        (project.parent / "go").touch()
        begun, refused = await at_once(runs, *[EvalRunRequest(resume=first.run_id)] * 3)
        assert [one.run_id for one in begun] == [first.run_id]
        assert ["is still running" in why for why in refused] == [True, True]
        assert (await status(runs, first.run_id, wait_s=60)).state == "finished"


async def test_a_run_that_cannot_be_noted_is_not_begun(project: Path):
    async with runs_of(project) as runs:
        first = await run(runs, project)
        ended = await status(runs, first.run_id, wait_s=60)
        noted = Path(ended.out) / "attended.json"
        noted.unlink()
        noted.mkdir()
        with pytest.raises(ConfigError, match=r"attended\.json' cannot be written: Is a dir"):
            await runs.run(EvalRunRequest(resume=first.run_id), project)
        assert not runs.under_way
        assert [path.name for path in Path(ended.out).glob("*.new")] == []


async def test_mistakes_in_the_files_are_told_before_anything_is_begun(project: Path):
    (project / "demo.eval.yaml").write_text("tests: [{id: c1, inputt: x}]\n")
    async with runs_of(project) as runs:
        with pytest.raises(ConfigError, match=r"demo\.eval\.yaml:1.*inputt"):
            await run(runs, project)
    assert not (project / ".goent" / "evals").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"suites": ("../other.eval.yaml",)}, "outside of the project"),
        ({"suites": ("link.eval.yaml",)}, "outside of the project"),
        ({"suites": ("none.eval.yaml",)}, "does not exist"),
        ({"suites": ()}, "no suites given"),
        ({"out": "/tmp/elsewhere"}, "outside of the project"),
        ({"out": "."}, "not empty"),
        ({"out": "demo.eval.yaml"}, "'demo.eval.yaml' cannot hold a run.*; name another"),
        ({"out": "demo.eval.yaml/new"}, "'demo.eval.yaml/new' cannot hold a run.*; name another"),
        ({"out": "x" * 300}, "cannot hold a run.*: File name too long; name another"),
        ({"targets_file": "/etc/passwd"}, "outside of the project"),
        ({"retry": "errors"}, "pass resume"),
        ({"suites": (), "resume": "nothing"}, "there is no run 'nothing'"),
        ({"suites": (), "resume": ".."}, "outside of the project"),
        ({"resume": "x"}, "leave suites out"),
    ],
)
async def test_what_cannot_be_run_is_refused(project: Path, asked: dict[str, object], said: str):
    (project.parent / "other.eval.yaml").write_text(SUITE)
    (project / "link.eval.yaml").symlink_to(project.parent / "other.eval.yaml")
    async with runs_of(project) as runs:
        with pytest.raises(RequestError, match=said):
            await run(runs, project, **asked)


async def test_a_link_among_the_runs_does_not_lead_out_of_the_project(project: Path):
    outside = project.parent / "outside"
    outside.mkdir()
    (project / ".goent" / "evals").mkdir()
    (project / ".goent" / "evals" / "link").symlink_to(outside)
    async with runs_of(project) as runs:
        with pytest.raises(RequestError, match="outside of the project"):
            await status(runs, "link")


async def test_no_module_of_the_project_is_run_where_keys_are_held(project: Path):
    mine = project / "msgspec.py"
    mine.write_text(f"open({str(project / 'pwned')!r}, 'w')\n")
    async with runs_of(project) as runs:
        begun = await run(runs, project)
        ended = await status(runs, begun.run_id, wait_s=60)
    assert not (project / "pwned").exists()
    assert (ended.exit_code, ended.passed) == (0, 3), ended.message


async def test_two_runs_are_compared(project: Path):
    async with runs_of(project) as runs:
        names: list[str] = []
        for target in ("bad", "good"):
            begun = await run(runs, project, target=(target,), out=f"out/{target}")
            assert begun.run_id == f"out/{target}"
            names.append(begun.run_id)
            await status(runs, begun.run_id, wait_s=60)
        asked = EvalCompareRequest(before=names[0], after=names[1])
        found = await runs.compare(asked, project)
        assert (found.cases, found.wins, found.gained, found.delta) == (3, 3, 3, 1.0)
        assert found.conclusion == "no difference"
        assert "fewer than 6" in found.words
        assert {change.test_id for change in found.changed} == {"c1", "c2", "c3"}
        asked = EvalCompareRequest(before=names[0], after=names[1], targets=("x", "y"))
        with pytest.raises(RequestError, match="Nothing to compare"):
            await runs.compare(asked, project)


@pytest.fixture
async def world(tmp_path: Path):
    async with a_cold_world(tmp_path, COLD) as made:
        furnish(made.project)
        made.trust()
        yield made


async def test_claude_code_runs_and_compares_evaluations(world: World):
    async with world.client() as lead:
        begun = told(await lead.call_tool("eval_run", {"suites": ["demo.eval.yaml"]}))
        assert begun["state"] == "running"
        asked = {"run_id": begun["run_id"], "wait_s": 60}
        ended = told(await lead.call_tool("eval_status", asked))
        assert (ended["state"], ended["passed"], ended["exit_code"]) == ("finished", 3, 0)
        asked = {"before": begun["run_id"], "after": begun["run_id"]}
        found = told(await lead.call_tool("eval_compare", asked))
        assert (found["conclusion"], found["ties"]) == ("no difference", 3)
        refused = await lead.call_tool("eval_run", {"suites": ["demo.eval.yaml"], "target": ["x"]})
        assert "'x'" in refusal(refused)


async def test_a_killed_daemon_leaves_no_evaluation_and_the_next_one_can_go_on(world: World):
    async with world.client() as lead:
        asked = {"suites": ["demo.eval.yaml"], "target": ["slow"]}
        begun = told(await lead.call_tool("eval_run", asked))
        index = Path(begun["out"]) / "index.jsonl"
        with anyio.fail_after(60):
            while not index.exists():  # noqa: ASYNC110 (a file announces nothing)
                await anyio.sleep(0.05)
        daemon = await world.daemon()
        assert daemon
        kill(daemon.pid)
        with anyio.fail_after(30):
            while world.processes():  # noqa: ASYNC110 (a process announces nothing to strangers)
                await anyio.sleep(0.05)
    async with world.client() as lead:
        found = told(await lead.call_tool("eval_status", {"run_id": begun["run_id"]}))
        assert found["state"] == "failed"
        assert "cut off" in found["message"]
        (world.project.parent / "go").touch()
        told(await lead.call_tool("eval_run", {"resume": begun["run_id"]}))
        asked = {"run_id": begun["run_id"], "wait_s": 60}
        ended = told(await lead.call_tool("eval_status", asked))
        assert (ended["state"], ended["done"]) == ("finished", 3)


async def test_a_daemon_loads_nothing_of_evaluations_before_it_is_asked():
    code = (
        "import sys, goent.composition.app; print([m for m in sys.modules if 'goent.evals' in m])"
    )
    # In a process of its own: here, much of it is loaded.
    loaded = (await anyio.run_process([sys.executable, "-c", code])).stdout.decode()
    assert "goent.evals.attended.attended_runs" in loaded
    assert "goent.evals.files" not in loaded
    assert "goent.evals.reports" not in loaded
