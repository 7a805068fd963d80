"""A client that wants to know is told when workers come, change and speak: in both eras."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from lead import a_lead
from mcp import Client, types
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from scripted_project import OpenProject
from world import told

from goent.frontends.mcp import changes
from goent.testing.driver import Pause, ScriptedDriver, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(30),
    pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning"),
]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "GATHER_S", 0.02)


class Ear:
    """What a client of the older era hears, and whether it has heard something yet."""

    def __init__(self) -> None:
        self.lists = 0
        self.updated: list[str] = []
        self._stirred = anyio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ResourceListChangedNotification):
            self.lists += 1
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.append(message.params.uri)
        self._stirred.set()

    async def until(self, heard: Callable[[], object]) -> None:
        with anyio.fail_after(10):
            while not heard():
                self._stirred = anyio.Event()
                await self._stirred.wait()


async def spawn(lead: Client, **more: Any) -> str:
    worker: str = told(await lead.call_tool("worker_spawn", {"task": "do it"} | more))["worker_id"]
    return worker


async def test_who_listens_hears_what_it_named_and_nothing_else(open_project: OpenProject) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with open_project(driver) as project, a_lead(project, "auto") as lead:
        mine = await spawn(lead)
        await pause.reached.wait()
        uri = changes.uri_of(mine)
        async with lead.listen(resource_subscriptions=[uri]) as named:
            other = await spawn(lead)
            pause.go_on.set()
            with anyio.fail_after(10):
                assert await anext(aiter(named)) == ResourceUpdated(uri)
        async with lead.listen(resources_list_changed=True) as listing:
            third = await spawn(lead)
            with anyio.fail_after(10):
                assert await anext(aiter(listing)) == ResourcesListChanged()
            resources = (await lead.list_resources()).resources
            assert {str(r.uri) for r in resources} == {*map(changes.uri_of, (mine, other, third))}


async def test_a_client_of_the_older_era_hears_of_the_list_and_of_what_it_subscribed_to(
    open_project: OpenProject,
) -> None:
    pauses = [Pause(), Pause()]
    driver = ScriptedDriver(lambda prompt: [pauses["2" in prompt.text], say("Done.")])
    ear = Ear()
    async with open_project(driver) as project, a_lead(project, "legacy", hears=ear) as lead:
        capability = lead.server_capabilities.resources
        assert capability and capability.list_changed and capability.subscribe
        first, second = await spawn(lead, task="1"), await spawn(lead, task="2")
        await ear.until(lambda: ear.lists)
        await lead.subscribe_resource(changes.uri_of(second))  # pyright: ignore[reportDeprecated] (of that era)
        for pause, worker in zip(pauses, (first, second), strict=True):
            pause.go_on.set()
            await lead.call_tool("worker_wait", {"worker_ids": [worker]})
        await ear.until(lambda: ear.updated)
        assert set(ear.updated) == {changes.uri_of(second)}
        await lead.unsubscribe_resource(changes.uri_of(second))  # pyright: ignore[reportDeprecated] (the same)
        heard, lists = list(ear.updated), ear.lists
        await lead.call_tool("worker_prompt", {"worker_id": second, "prompt": "on", "wait_s": 5})
        await ear.until(lambda: ear.lists > lists)
        assert ear.updated == heard, "it hears no more of what it no longer wants"


async def test_a_client_that_listens_to_nothing_is_told_nothing(open_project: OpenProject) -> None:
    ear = Ear()
    driver = ScriptedDriver(lambda _: [say("Done.")])
    async with open_project(driver) as project, a_lead(project, "auto", hears=ear) as lead:
        await spawn(lead, wait_s=5)
        async with lead.listen(resources_list_changed=True) as listing:
            await spawn(lead, wait_s=5)
            with anyio.fail_after(10):
                await anext(aiter(listing))
    assert ear.updated == []
