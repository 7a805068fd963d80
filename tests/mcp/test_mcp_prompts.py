import pytest
from lead import a_lead
from mcp import MCPError, types
from scripted_project import OpenProject

from goent.testing.driver import ScriptedDriver

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_delegate_tells_the_lead_how_to_hand_a_task_over(
    open_project: OpenProject, mode: str
) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project, a_lead(project, mode) as lead:
        (prompt,) = (await lead.list_prompts()).prompts
        assert prompt.name == "delegate"
        assert [(a.name, a.required) for a in prompt.arguments or ()] == [
            ("task", True),
            ("provider", False),
        ]
        task = "rename {this} to that"
        got = await lead.get_prompt("delegate", {"task": task, "provider": "glm"})
        (message,) = got.messages
        assert isinstance(message.content, types.TextContent)
        text = message.content.text
        assert task in text and "provider 'glm'" in text
        for tool in ("worker_spawn", "verify", "worker_wait", "worker_answer", "worker_result"):
            assert tool in text
        with pytest.raises(MCPError, match="needs an argument 'task'"):
            await lead.get_prompt("delegate", {"task": " "})
        with pytest.raises(MCPError, match="unknown prompt 'nope'"):
            await lead.get_prompt("nope")
