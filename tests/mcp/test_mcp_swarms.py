"""A lead waits for a swarm: its questions come to the client, its whole result is a resource."""

import json
from typing import Any

import pytest
from lead import Person, a_lead, answers
from mcp import types
from scripted_project import OpenProject
from world import told

from goent.testing.driver import ScriptedDriver, question, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
TASKS = [{"id": name, "prompt": f"look at {name}"} for name in ("one", "two")]
SHARED = {"tasks": TASKS, "isolation": "shared", "swarm": "looks"}


def asks() -> ScriptedDriver:
    return ScriptedDriver(lambda _: [question("p1"), say("Done.")])


@ERAS
@pytest.mark.parametrize("waits", ["swarm_spawn", "swarm_wait"])
async def test_the_person_at_the_client_is_asked_for_each_worker_of_a_swarm(
    open_project: OpenProject, mode: str, waits: str
) -> None:
    person = Person(*["allow_once"] * 2)
    async with open_project(asks()) as project, a_lead(project, mode, person) as lead:
        at_once = {"wait_s": 30} if waits == "swarm_spawn" else {}
        swarm = told(await lead.call_tool("swarm_spawn", SHARED | at_once))
        if waits == "swarm_wait":
            wait: dict[str, Any] = {"swarm_id": swarm["swarm_id"], "timeout_s": 30}
            swarm = told(await lead.call_tool("swarm_wait", wait))
        assert (swarm["state"], swarm["done"]) == ("completed", 2)
        assert len(person.forms) == 2
        for line in swarm["tasks"]:
            (answer,) = await answers(project, line["worker_id"])
            assert answer[2] == "mcp elicitation"


async def test_the_whole_result_is_a_resource(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda _: [say("Done.")])
    async with open_project(driver) as project, a_lead(project, "auto", Person()) as lead:
        swarm = told(await lead.call_tool("swarm_spawn", SHARED | {"wait_s": 30}))["swarm_id"]
        templates = (await lead.list_resource_templates()).resource_templates
        assert "swarm://{id}/result" in [template.uri_template for template in templates]
        (content,) = (await lead.read_resource(f"swarm://{swarm}/result")).contents
        assert isinstance(content, types.TextResourceContents)
        whole = json.loads(content.text)
        assert (whole["swarm_id"], len(whole["tasks"])) == (swarm, 2)


async def test_an_unknown_swarm_is_refused_with_the_remedy(open_project: OpenProject) -> None:
    async with open_project(asks()) as project, a_lead(project, "auto", Person()) as lead:
        for tool in ("swarm_status", "swarm_wait", "swarm_result", "swarm_cancel", "swarm_merge"):
            result = await lead.call_tool(tool, {"swarm_id": "s-nobody"})
            assert result.is_error
            (said,) = result.content
            assert isinstance(said, types.TextContent)
            assert "no swarm 's-nobody'" in said.text
            assert "swarm list" in said.text


@pytest.mark.parametrize(
    ("task", "explanation"),
    [
        ({"taks": "x"}, "swarm_spawn: tasks[0].taks: unknown argument; did you mean 'task'?"),
        ({"task": "x", "timeout_s": 0}, "swarm_spawn: tasks[0].timeout_s: must be more than 0"),
        ({"task": "x", "prompt": "y"}, "swarm_spawn: tasks[0]: give task or prompt, not both"),
        ({}, "task 'one' has an empty `task`"),
    ],
)
async def test_a_mistake_in_a_task_is_explained_where_it_is(
    open_project: OpenProject, task: dict[str, Any], explanation: str
) -> None:
    async with open_project(asks()) as project, a_lead(project, "auto", Person()) as lead:
        result = await lead.call_tool("swarm_spawn", {"tasks": [{"id": "one"} | task]})
        assert result.is_error
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        assert explanation in content.text


async def test_a_task_is_named_as_in_worker_spawn(open_project: OpenProject) -> None:
    driver = ScriptedDriver(lambda prompt: [say(prompt.text)])
    async with open_project(driver) as project, a_lead(project, "auto", Person()) as lead:
        tasks = [{"id": "new", "task": "look"}, {"id": "old", "prompt": "look"}]
        asked = {"tasks": tasks, "isolation": "shared", "wait_s": 30}
        swarm = told(await lead.call_tool("swarm_spawn", asked))
        assert (swarm["state"], swarm["done"]) == ("completed", 2)
        tools = {tool.name: tool.input_schema for tool in (await lead.list_tools()).tools}
        schema = tools["swarm_spawn"]["$defs"]["SwarmTask"]
        assert schema["required"] == ["id", "task"]
        assert "prompt" not in schema["properties"]
