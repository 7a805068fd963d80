"""A lead who waits hears what its workers say, and a lead without providers hears what to do."""

import anyio
import pytest
from lead import a_lead
from scripted_project import OpenProject
from world import told

from goent.testing.driver import Pause, ScriptedDriver, say
from goent.workers import worker_queries

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
WAITS = pytest.mark.parametrize("waits", ["worker_spawn", "worker_wait", "swarm_spawn"])


class Progress:
    """The progress notifications of a call."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._stirred = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.messages.append(message or "")
        self._stirred.set()

    async def until(self, words: str) -> str:
        with anyio.fail_after(20):
            while not (found := [each for each in self.messages if words in each]):
                self._stirred = anyio.Event()
                await self._stirred.wait()
        return found[0]


@WAITS
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_progress_carries_the_workers_latest_words(
    open_project: OpenProject, mode: str, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_queries, "WORDS_S", 0.0)
    begin, first, second = Pause(), Pause(), Pause()
    driver = ScriptedDriver(
        lambda _: [begin, say("I read the\ntests."), first, say(" Now I edit."), second]
    )
    progress = Progress()
    async with (
        open_project(driver) as project,
        a_lead(project, mode) as lead,
        anyio.create_task_group() as group,
    ):
        call, asked = waits, {"task": "do it", "wait_s": 30}
        if waits == "worker_wait":
            spawned = told(await lead.call_tool("worker_spawn", {"task": "do it"}))
            asked = {"worker_ids": [spawned["worker_id"]], "timeout_s": 30}
        elif waits == "swarm_spawn":
            tasks = [{"id": "one", "prompt": "look"}]
            asked = {"tasks": tasks, "isolation": "shared", "wait_s": 30}

        async def wait() -> None:
            told(await lead.call_tool(call, asked, progress_callback=progress))

        group.start_soon(wait)
        await begin.reached.wait()
        begin.go_on.set()
        (worker,) = project.feed.views
        heard = await progress.until("I read the tests.")
        assert heard == f"{worker} running: writing; it says: I read the tests."
        await first.reached.wait()
        first.go_on.set()
        await progress.until("I read the tests. Now I edit.")
        second.go_on.set()


async def test_a_project_without_providers_is_told_how_to_get_one(
    open_project: OpenProject,
) -> None:
    async with (
        open_project(ScriptedDriver(lambda _: []), providers=()) as project,
        a_lead(project, "auto") as lead,
    ):
        for asked in ({}, {"healthy_only": True}):
            listed = told(await lead.call_tool("provider_list", asked))
            assert listed["providers"] == []
            (remedy,) = listed["warnings"]
            assert "run `go-ent init`" in remedy and "`opencode auth login`" in remedy
