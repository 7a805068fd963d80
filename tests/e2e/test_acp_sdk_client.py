"""`go-ent acp`, driven by the protocol's own SDK: a real process, real tools, a scripted model."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp_process import SdkClient, an_sdk_client
from world import World, a_world

from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

WRITE = call("Write", file_path="note.txt", content="a note\n")
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("say hello", say("Hello, you.")),
            case("write a note", WRITE, say("Done, or told not to.")),
            case("write two", WRITE, call("Bash", command="echo two > two.txt"), say("Both.")),
            case("think long", say("Half of it.").having(gate="long")),
            case("left", say("L").having(gate="left")),
            case("right", say("R")),
            case(None, say("What?")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
MODEL = ("--model", "moonshot/glm-4")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path, SCRIPT) as world:
        yield world


async def begun(connection: Any, world: World) -> str:
    session = await connection.new_session(cwd=str(world.project), mcp_servers=[])
    return session.session_id


async def prompt(connection: Any, session: str, text: str) -> str:
    with anyio.fail_after(90):
        ended = await connection.prompt(session_id=session, prompt=[acp.text_block(text)])
    return ended.stop_reason


@pytest.mark.spec("A04", "A06", "A07", "A13")
async def test_a_session_says_what_it_has_and_answers(world: World):
    client = SdkClient()
    async with an_sdk_client(world, client, *MODEL) as agent:
        made = await agent.new_session(cwd=str(world.project), mcp_servers=[])
        model, mode = made.config_options
        assert (model.category, model.current_value) == ("model", "moonshot/glm-4")
        assert (mode.category, mode.current_value) == ("mode", "ask")
        assert made.modes.current_mode_id == "ask"
        session = made.session_id
        ended = await agent.prompt(session_id=session, prompt=[acp.text_block("say hello")])
        assert ended.stop_reason == "end_turn"
        assert ended.usage.total_tokens > 0
        assert client.text(session) == "Hello, you."
        assert client.of(session, "available_commands_update")
        assert client.of(session, "session_info_update")[-1].title == "say hello"
        assert client.of(session, "usage_update")[-1].used > 0
        assert await prompt(agent, session, "/mode plan") == "end_turn"
        assert client.of(session, "current_mode_update")[-1].current_mode_id == "plan"
        changed = await agent.set_config_option(session_id=session, config_id="mode", value="ask")
        assert [option.current_value for option in changed.config_options][1] == "ask"


@pytest.mark.spec("A09")
async def test_what_is_allowed_is_done_and_asked_again_unless_for_ever(world: World):
    client = SdkClient("allow_once")
    async with an_sdk_client(world, client, *MODEL) as agent:
        session = await begun(agent, world)
        assert await prompt(agent, session, "write two") == "end_turn"
        assert (world.project / "note.txt").read_text() == "a note\n"
        assert (world.project / "two.txt").read_text() == "two\n"
        assert client.statuses(session) == ["completed", "completed"]
        assert len(client.asked) == 2
        client.answer = "allow_always"
        await prompt(agent, session, "write two")
        await prompt(agent, session, "write two")
        assert len(client.asked) == 4


@pytest.mark.spec("A10")
@pytest.mark.parametrize("answer", ["reject_once", "cancelled"])
async def test_what_is_denied_is_not_done_and_the_model_is_told(world: World, answer: str):
    client = SdkClient(answer)
    async with an_sdk_client(world, client, *MODEL) as agent:
        session = await begun(agent, world)
        assert await prompt(agent, session, "write a note") == "end_turn"
        assert not (world.project / "note.txt").exists()
        assert client.statuses(session) == ["failed"]
        assert client.text(session) == "Done, or told not to."
        assert len(client.asked) == 1


@pytest.mark.spec("A08")
async def test_a_cancelled_turn_keeps_what_was_said_and_the_session(world: World):
    client = SdkClient("wait")
    async with an_sdk_client(world, client, *MODEL) as agent:
        session = await begun(agent, world)
        ends: list[str] = []

        async def turn(text: str) -> None:
            ends.append(await prompt(agent, session, text))

        async with anyio.create_task_group() as tasks:  # while the model thinks
            tasks.start_soon(turn, "think long")
            await world.models.at_gate("long", timeout=60)
            await agent.cancel(session_id=session)
        async with anyio.create_task_group() as tasks:  # while the client is asked
            tasks.start_soon(turn, "write a note")
            with anyio.fail_after(60):
                await client.question.wait()
            await agent.cancel(session_id=session)
        assert ends == ["cancelled", "cancelled"]
        assert not (world.project / "note.txt").exists()
        client.answer = "allow_once"
        assert await prompt(agent, session, "write a note") == "end_turn"
        assert (world.project / "note.txt").exists()


@pytest.mark.spec("A06")
async def test_sessions_outlive_the_process(world: World):
    client = SdkClient()
    async with an_sdk_client(world, client, *MODEL) as agent:
        session = await begun(agent, world)
        await prompt(agent, session, "write a note")
    again = SdkClient()
    async with an_sdk_client(world, again, *MODEL) as agent:
        listed = await agent.list_sessions(cwd=str(world.project))
        assert [(one.session_id, one.title) for one in listed.sessions] == [
            (session, "write a note")
        ]
        loaded = await agent.load_session(
            cwd=str(world.project), session_id=session, mcp_servers=[]
        )
        assert loaded.modes.current_mode_id == "ask"
        kinds = [update.session_update for _, update in again.updates]
        assert kinds[0] == "user_message_chunk"
        assert again.text(session, "user_message_chunk") == "write a note"
        assert again.text(session) == "Done, or told not to."
        assert again.statuses(session) == ["completed"]
        assert await prompt(agent, session, "say hello") == "end_turn"
        await agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="not found"):
            await prompt(agent, session, "say hello")
        before = len(again.updates)
        await agent.resume_session(cwd=str(world.project), session_id=session)
        assert not [u for _, u in again.updates[before:] if u.session_update.endswith("chunk")]


@pytest.mark.spec("A06", "A07")
async def test_two_sessions_work_side_by_side(world: World):
    client = SdkClient()
    async with an_sdk_client(world, client, *MODEL) as agent:
        left, right = await begun(agent, world), await begun(agent, world)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt, agent, left, "left")
            await world.models.at_gate("left", timeout=60)
            assert await prompt(agent, right, "right") == "end_turn"
            assert (client.text(left), client.text(right)) == ("", "R")
            world.models.open_gate("left")
        assert client.text(left) == "L"
