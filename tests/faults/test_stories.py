"""Whatever is killed, stopped, cut off or full: the books are right, and nothing is left behind.

Each seed is a story: some workers on the real OpenCode, models that misbehave, and faults at
moments of the seed's choosing. A round of them has every fault once; `make soak` tells more. All of
them play in the sandbox, every other one in the weaker one of kernels without namespaces.
"""

import json
from pathlib import Path

import anyio
import pytest
from invariants import (
    Events,
    assert_all_were_confined,
    assert_ended_once,
    assert_no_prompt_was_repeated,
    assert_the_books_are_right,
    assert_who_could_finish_did,
    ledger,
)
from stories import Story, seeds, tell
from strikes import FAULTS, a_scene
from world import World, a_world

from goent.domain.types import ENDED_STATES

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

STORIES = [tell(seed, tuple(FAULTS)) for seed in seeds()]


def title(story: Story) -> str:
    return f"{story.seed}: {', '.join(story.faults)} ({story.level[1]})"


@pytest.mark.spec("P02", "P06", "P25", "P29")
@pytest.mark.parametrize("story", STORIES, ids=title)
async def test_after_the_faults_the_books_are_right(tmp_path: Path, story: Story) -> None:
    try:
        await play(tmp_path, story)
    except BaseException as error:
        error.add_note(f"{title(story)}; tell it again: make soak SEEDS={story.seed}")
        raise


async def play(folder: Path, story: Story) -> None:
    asked, level = story.level
    config = f"opencode: {{profile: hermetic}}\ndaemon: {{idle_exit_s: 120}}\nsandbox: {{level: {asked}}}\n"
    async with a_world(folder, story.script, config=config) as world:
        tasks = [task.request for task in story.tasks]
        async with a_scene(world, tasks, story.rng) as scene:
            await world.models.called(story.moment, timeout=90)
            for fault in story.faults:
                await FAULTS[fault](scene)
                await scene.a_while()
            workers = await all_ended(world)
            await carry_on(world, workers)
            reported = await costs(world)
        await world.end()
        assert world.processes() == []
        journal: Events = {
            worker["worker_id"]: [e.event for e in await world.journal(worker["worker_id"])]
            for worker in workers
        }
        assert_ended_once(journal, scene.told)
        assert_all_were_confined(journal, level)
        assert_who_could_finish_did(scene, journal, story.tasks)
        assert_no_prompt_was_repeated(world, journal, story.tasks)
        assert_the_books_are_right(scene, journal, story.tasks)
        assert reported == len(ledger(world)), "`go-ent costs` shows every call"


async def all_ended(world: World) -> list[dict[str, str]]:
    """The workers, as another client than the lead finds them, when all have ended their turn."""
    listed: list[dict[str, str]] = []
    with anyio.fail_after(150):
        while True:
            seen = await world.go_ent("ps", "--all", "--json")
            if seen.exit == 0:
                listed = json.loads(seen.out)["workers"]
                busy = [w["worker_id"] for w in listed if w["state"] not in ENDED_STATES]
                if listed and not busy:
                    return listed
                await world.go_ent("wait", *busy, "--timeout", "20", seconds=90)


async def carry_on(world: World, workers: list[dict[str, str]]) -> None:
    """A worker whose turn failed with its daemon goes on where it was."""
    for worker in (w for w in workers if w["state"] == "failed" and w["open"]):
        status = json.loads((await world.go_ent("status", worker["worker_id"], "--json")).out)
        if status["failure"]["kind"] == "daemon_died":
            gone_on = await world.go_ent("prompt", worker["worker_id"], "carry on;", seconds=120)
            assert (gone_on.exit, "Carried on." in gone_on.out) == (0, True), gone_on
            return


async def costs(world: World) -> int:
    report = json.loads((await world.go_ent("costs", "--json")).out)
    return sum(row["calls"] for row in report["rows"])
