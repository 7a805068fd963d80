"""A client that wants to know is told when workers come, change and speak: in both eras."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from lead import a_lead
from mcp import Client, MCPError, types
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from scripted_project import OpenProject
from world import told

from goent.mcp import resources
from goent.testing.driver import Pause, ScriptedDriver, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(30),
    pytest.mark.filterwarnings("ignore:resources/:mcp.shared.exceptions.MCPDeprecationWarning"),
]

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "BATCH_S", 0.02)


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


def output_of(worker: str) -> str:
    return f"worker://{worker}/output"


async def spawn(lead: Client, **more: Any) -> str:
    worker: str = told(await lead.call_tool("worker_spawn", {"task": "do it"} | more))["worker_id"]
    return worker


async def test_who_listens_hears_what_it_named_and_nothing_else(open_project: OpenProject) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with open_project(driver) as project, a_lead(project, "auto") as lead:
        mine = await spawn(lead)
        await pause.reached.wait()
        uri = output_of(mine)
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
            assert {str(r.uri) for r in resources} == {*map(output_of, (mine, other, third))}


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
        await lead.subscribe_resource(output_of(second))  # pyright: ignore[reportDeprecated] (of that era)
        for pause, worker in zip(pauses, (first, second), strict=True):
            pause.go_on.set()
            await lead.call_tool("worker_wait", {"worker_ids": [worker]})
        await ear.until(lambda: ear.updated)
        assert set(ear.updated) == {output_of(second)}
        await lead.unsubscribe_resource(output_of(second))  # pyright: ignore[reportDeprecated] (the same)
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


async def swarm(lead: Client) -> tuple[str, str]:
    """A swarm of one task: its worker, and the URI of its result."""
    asked = {"tasks": [{"id": "one", "prompt": "look"}], "isolation": "shared"}
    spawned = told(await lead.call_tool("swarm_spawn", asked))
    return spawned["swarm_id"], f"swarm://{spawned['swarm_id']}/result"


async def test_a_swarms_result_is_listed_and_told_of_in_both_eras(
    open_project: OpenProject,
) -> None:
    pauses = [Pause(), Pause()]
    turns = iter(pauses)
    driver = ScriptedDriver(lambda _: [next(turns), say("Done.")])
    ear = Ear()
    async with open_project(driver) as project:
        async with a_lead(project, "auto") as lead:
            name, uri = await swarm(lead)
            await pauses[0].reached.wait()
            listed = {r.uri: r for r in (await lead.list_resources()).resources}
            assert listed[uri].name == f"{name} (running)"
            async with lead.listen(resource_subscriptions=[uri]) as named:
                pauses[0].go_on.set()
                with anyio.fail_after(10):
                    assert await anext(aiter(named)) == ResourceUpdated(uri)
            await lead.call_tool("swarm_wait", {"swarm_id": name})
            listed = {r.uri: r for r in (await lead.list_resources()).resources}
            assert listed[uri].name == f"{name} (completed, claimed)"
        async with a_lead(project, "legacy", hears=ear) as lead:
            name, uri = await swarm(lead)
            await lead.subscribe_resource(uri)  # pyright: ignore[reportDeprecated] (of that era)
            pauses[1].go_on.set()
            await ear.until(lambda: uri in ear.updated)


@pytest.mark.parametrize(
    "uri",
    ["worker://w-none/output", "swarm://s-none/result", "worker://", "https://example.com/", "x"],
)
async def test_nobody_can_subscribe_to_what_there_is_not(
    open_project: OpenProject, uri: str
) -> None:
    async with open_project(ScriptedDriver(lambda _: [say("Done.")])) as project:
        async with a_lead(project, "legacy") as lead:
            with pytest.raises(MCPError, match=r"no worker|no swarm|unknown resource") as refused:
                await lead.subscribe_resource(uri)  # pyright: ignore[reportDeprecated] (of that era)
            assert (refused.value.code, refused.value.data) == (types.INVALID_PARAMS, {"uri": uri})
            await lead.unsubscribe_resource(uri)  # pyright: ignore[reportDeprecated] (the same)
        async with a_lead(project, "auto") as lead:
            there = output_of(await spawn(lead))
            async with lead.listen(
                resource_subscriptions=[uri, there], tools_list_changed=True
            ) as listening:
                honored = listening.honored
            assert honored.resource_subscriptions == [there]
            assert not honored.tools_list_changed and not honored.resources_list_changed


@ERAS
async def test_only_changes_that_are_told_are_advertised(
    open_project: OpenProject, mode: str
) -> None:
    async with (
        open_project(ScriptedDriver(lambda _: [])) as project,
        a_lead(project, mode) as lead,
    ):
        able = lead.server_capabilities
        assert able.tools and able.prompts and able.resources
        assert not able.tools.list_changed and not able.prompts.list_changed
        assert able.resources.list_changed and able.resources.subscribe


@ERAS
async def test_a_list_is_told_page_by_page_and_a_bogus_cursor_is_refused(
    open_project: OpenProject, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "PAGE_SIZE", 2)
    driver = ScriptedDriver(lambda _: [say("Done.")])
    async with open_project(driver) as project, a_lead(project, mode) as lead:
        workers = [await spawn(lead, wait_s=5) for _ in range(5)]
        pages: list[list[str]] = []
        cursor = None
        while cursor or not pages:
            page = await lead.list_resources(cursor=cursor)
            pages.append([resource.uri for resource in page.resources])
            cursor = page.next_cursor
            await spawn(lead, wait_s=5)  # what comes meanwhile moves nothing
        assert [len(page) for page in pages] == [2, 2, 1]
        found = [uri for page in pages for uri in page]
        assert found == [output_of(worker) for worker in reversed(workers)]
        for listing in (
            lead.list_resources,
            lead.list_tools,
            lead.list_prompts,
            lead.list_resource_templates,
        ):
            with pytest.raises(MCPError, match=r"cursor 'bogus'.*leave it out") as refused:
                await listing(cursor="bogus")
            assert refused.value.code == types.INVALID_PARAMS
