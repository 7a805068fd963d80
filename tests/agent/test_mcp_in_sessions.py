"""Tools of MCP servers in a session of the agent: offered, asked for, and of one mind with it."""

from pathlib import Path

import anyio
import pytest
from mcp_desk import rough, sdk
from own_stage import Editor, a_stage, allow, reject, say

from goent.testing.script import Script, anthropic, call, case
from goent.testing.script import say as says

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SCRIPT = Script(
    providers={
        "anthropic": anthropic(
            case("add up", call("mcp__calc__add", a=2, b=40), says("That is it.")),
            case("look", call("mcp__calc__picture"), says("A pixel.")),
            case("grow", call("mcp__calc__grow"), says("Grown.")),
            case("the new one", call("mcp__calc__late"), says("Used.")),
            models=("claude-haiku", "claude-sonnet"),
        )
    }
)


async def test_a_session_uses_its_servers_asks_first_and_says_what_is_wrong(tmp_path: Path):
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.agent() as agent:
        servers = [sdk("calc"), rough("gone")]
        session = await agent.new(editor, stage.project, servers=servers)
        await session.greet()
        await say(session, "please add up")
        assert [q.need.permission for q in editor.asked] == ["mcp"]
        [ended] = editor.ends(session.id)
        assert (ended.status, ended.title) == ("completed", "calc: Add up")
        assert '"total":42' in ended.output.replace(" ", "").replace("\n", "")
        assert any(
            "'gone'" in notice and "licence" in notice for notice in editor.notices(session.id)
        )

        await say(session, "look at it")
        assert editor.ends(session.id)[-1].status == "completed"
        assert stage.models.calls[-1].status == 200, "the picture went to the model"

        await say(session, "grow")
        with anyio.fail_after(60):
            while not _succeeded(editor, session.id):
                await say(session, "the new one")


async def test_a_refused_call_does_not_reach_the_server(tmp_path: Path):
    editor = Editor(reject)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.agent() as agent:
        session = await agent.new(editor, stage.project, servers=[sdk("calc")])
        await say(session, "please add up")
        [ended] = editor.ends(session.id)
        assert ended.status == "failed" and "42" not in ended.output


@pytest.mark.spec("A15")
async def test_tools_of_servers_are_left_out_unless_they_are_allowed(tmp_path: Path):
    async with a_stage(tmp_path, SCRIPT) as stage:
        for tools, status in ((["Read"], "failed"), (["Read", "mcp__calc__add"], "completed")):
            editor = Editor(allow)
            async with stage.agent(tools=tools) as agent:
                session = await agent.new(editor, stage.project, servers=[sdk("calc")])
                await say(session, "please add up")
                assert [end.status for end in editor.ends(session.id)] == [status]
            request = stage.models.calls[-1].request
            assert request and set(request.tools) == set(tools)


def _succeeded(editor: Editor, session: str) -> bool:
    last = editor.ends(session)[-1]
    return last.tool == "mcp__calc__late" and last.output == "here I am"
