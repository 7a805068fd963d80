"""A model of any provider judges: by the daemon that holds its key, and what it costs is what the gateway says."""

from pathlib import Path

import pytest
from eval_stage import environment_of, open_workers
from run_stage import Watched
from world import COLD, World, a_world

from goent.cli.daemon_link import open_daemon_link
from goent.composition.eval_app import EvalApp
from goent.composition.live_project import Project
from goent.evals.eval_results import Row
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.run_folder import StoredRun
from goent.evals.runner.run_preparation import prepare_run
from goent.evals.runner.trial_plan import RunSelection
from goent.testing.script import Script, case, fail, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
VERDICT = 'It is.\n```json\n{"score": 0.9, "assertions": [{"text": "polite", "passed": true}]}\n```'
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("Your last reply could not be used", say('{"score": 1}')),
            case("Greets politely", say(VERDICT)),
            case("Greets twice", say("Who knows?")),
            case("Greets nobody", fail(401)),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
TARGETS = """
targets:
  - {name: coder, provider: mock, response: Good morning.}
  - {name: strict, provider: goent, model: moonshot/glm-4, method: api, temperature: 0}
"""
SUITE = """
tests:
  - {id: polite, input: Greet, criteria: Greets politely}
  - {id: unsure, input: Greet, criteria: Greets twice}
  - {id: refused, input: Greet, criteria: Greets nobody}
"""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory):
    config = COLD + "default_provider: moonshot/glm-4\n"
    async with a_world(tmp_path_factory.mktemp("world"), SCRIPT, config=config) as made:
        with environment_of(made):
            yield made


async def judged(
    world: World, folder: Path, *, judge: str = "moonshot/glm-4", ids: tuple[str, ...] = ()
) -> dict[str, Row]:
    (folder / ".goent").mkdir()
    (folder / ".goent/targets.yaml").write_text(TARGETS)
    (folder / "x.eval.yaml").write_text(SUITE)
    wanted = RunSelection(targets=("coder",), judge=judge, ids=ids)
    prepared = prepare_run([folder / "x.eval.yaml"], world.env, wanted)
    watched = Watched()
    app = EvalApp(
        project=Project(world.project, world.env),
        open_daemon=lambda: open_daemon_link(world.project),
        watcher=watched,
    )
    with StoredRun.open(folder / "out") as out:
        await app.run(prepared, out, EvalLimits())
    return {row.test_id: row for row in watched.rows}


async def test_any_model_that_go_ent_has_a_key_for_can_judge(world: World, tmp_path: Path):
    rows = await judged(world, tmp_path)
    polite, unsure, refused = (rows[name] for name in ("polite", "unsure", "refused"))
    assert (polite.score, polite.execution_status) == (0.9, "ok")
    assert polite.judge_cost_usd == pytest.approx(0.00014)
    assert (unsure.score, unsure.judge_cost_usd) == (1, pytest.approx(0.00028))
    assert refused.execution_status == "execution_error"
    assert refused.error and "judge 'moonshot/glm-4' is unavailable" in refused.error
    assert await open_workers(world) == []


async def test_a_judge_is_asked_with_the_temperature_that_he_is_set_to(
    world: World, tmp_path: Path
):
    rows = await judged(world, tmp_path, judge="strict", ids=("polite",))
    assert rows["polite"].score == 0.9
    last = world.models.calls[-1].request
    assert last and last.temperature == 0
