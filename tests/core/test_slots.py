"""How many turns run at once, and what waits for one of its own."""

import pytest
from scripted_project import OpenProject, assert_grammar, result, spawn, wait

from goent.domain.errors import OpenCodeMissing
from goent.domain.replies import PromptReply
from goent.domain.settings import LimitSettings
from goent.domain.types import Prompt
from goent.testing.driver import Pause, ScriptedDriver, ScriptedMove, say

pytestmark = pytest.mark.anyio


async def test_a_session_is_opened_when_there_is_a_slot_for_its_turn(
    open_project: OpenProject,
) -> None:
    pause = Pause()

    def turns(prompt: Prompt) -> list[ScriptedMove]:
        return [pause, say("first")] if prompt.text == "first" else [say(prompt.text)]

    driver = ScriptedDriver(turns)
    async with open_project(driver, limits=LimitSettings(workers=1)) as project:
        first = await spawn(project, "first")
        await pause.reached.wait()
        second, third = await spawn(project, "second"), await spawn(project, "third")
        await project.ask("worker_cancel", worker_id=third)
        await project.closed(third)
        assert_grammar(await project.events(third))
        assert [spec.id for spec in driver.opened] == [first]
        pause.go_on.set()
        await wait(project, first, second)
        assert [spec.id for spec in driver.opened] == [first, second]
        prompted = await project.ask("worker_prompt", worker_id=first, prompt="more", wait_s=10)
        assert isinstance(prompted, PromptReply) and prompted.state == "completed"


async def test_a_session_that_cannot_be_opened_gives_its_slot_back(
    open_project: OpenProject,
) -> None:
    driver = ScriptedDriver(lambda _: [], open_error=OpenCodeMissing("install it by npm"))
    async with open_project(driver, limits=LimitSettings(workers=1)) as project:
        for worker in [await spawn(project), await spawn(project)]:
            await project.closed(worker)
            assert (await result(project, worker)).failure
