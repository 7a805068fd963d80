"""Our transport and the official SDK understand each other, as processes on pipes."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
import anyio.lowlevel
import pytest
from acp.schema import AllowedOutcome, RequestPermissionResponse

from goent.acp.agent_messages import (
    AgentMessageChunk,
    AnyUpdate,
    OptionSelected,
    PermissionOutcome,
    PermissionRequest,
)
from goent.acp.message_parts import AcpText, find_option, plain_text
from goent.agents.agent_connection import AgentConnection
from goent.domain.errors import ProtocolError, TurnTimeout, UnknownModel, WorkerCrashed
from goent.rpc.json_rpc import RpcError

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent


class Listener:
    """Our client: keeps what it is told, and chooses the first option."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.asked: list[PermissionRequest] = []
        self.waiting = anyio.Event()

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        assert isinstance(update, AgentMessageChunk)
        self.heard.append(plain_text(update.content))
        if self.heard[-1] == "waiting":
            self.waiting.set()
        await anyio.lowlevel.checkpoint()

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        self.asked.append(request)
        return OptionSelected(option_id=request.options[0].option_id)


@asynccontextmanager
async def started(*command: str, listener: Listener) -> AsyncGenerator[AgentConnection]:
    async with await anyio.open_process([sys.executable, *command], stderr=None) as process:
        assert process.stdout and process.stdin
        agent = AgentConnection(process.stdout, process.stdin, listener, name="the agent")
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(agent.run)
                yield agent
                await agent.aclose()
            await process.wait()


@asynccontextmanager
async def sdk_agent() -> AsyncGenerator[tuple[AgentConnection, Listener]]:
    listener = Listener()
    async with started(str(HERE / "sdk_agent.py"), listener=listener) as agent:
        yield agent, listener


@pytest.mark.spec("A01", "A02")
async def test_we_drive_an_agent_of_the_sdk():
    async with sdk_agent() as (agent, listener):
        said = await agent.initialize()
        assert said.agent_capabilities.load_session
        session = await agent.new_session("/")
        model = find_option(session.config_options, "model")
        assert model and model.current_value == "a/one"

        result = await agent.prompt(session.session_id, [AcpText(text="stream 500")])
        assert result.stop_reason == "end_turn"
        assert listener.heard == [str(number) for number in range(500)]

        await agent.prompt(session.session_id, [AcpText(text="ask")])
        assert listener.asked[0].tool_call.title == "rm -rf /"
        assert listener.heard[-1] == "selected"

        listener.heard.clear()
        await agent.load_session("s1", "/")
        assert listener.heard == ["before"]
        await agent.close_session("s1")


async def test_a_model_is_what_the_agent_says_it_is():
    async with sdk_agent() as (agent, _):
        await agent.initialize()
        assert await agent.set_model("s1", "a/two") == "a/two"
        with pytest.raises(UnknownModel, match="'a/none'"):
            await agent.set_model("s1", "a/none")
        with pytest.raises(UnknownModel, match="'a/ignored' and uses 'a/one'"):
            await agent.set_model("s1", "a/ignored")


async def test_a_turn_can_be_cancelled_or_left():
    async with sdk_agent() as (agent, listener):
        await agent.initialize()

        async def cancel() -> None:
            await listener.waiting.wait()
            await agent.cancel("s1")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            assert (await agent.prompt("s1", [AcpText(text="wait")])).stop_reason == "cancelled"

        with pytest.raises(TurnTimeout):
            await agent.prompt("s1", [AcpText(text="wait")], timeout=0.2)
        with anyio.move_on_after(0.2) as left:
            await agent.prompt("s1", [AcpText(text="wait")])
        assert left.cancelled_caught
        assert (await agent.prompt("s1", [AcpText(text="stream 1")])).stop_reason == "end_turn"


async def test_files_are_neither_written_nor_read_for_the_agent(tmp_path: Path):
    file = anyio.Path(tmp_path / "x")
    async with sdk_agent() as (agent, _):
        await agent.initialize()
        with pytest.raises(RpcError, match="fs/read_text_file"):
            await agent.prompt("s1", [AcpText(text=f"write {file}")])
    assert not await file.exists()


async def test_an_agent_that_dies_is_a_crash():
    async with started("-c", "input()", listener=Listener()) as agent:
        with pytest.raises(WorkerCrashed, match="'initialize'"):
            await agent.initialize()


@pytest.mark.parametrize(
    ("result", "complaint"),
    [('{"protocolVersion": 2}', "speaks ACP version 2"), ("[]", "expected an object, not a list")],
)
async def test_an_agent_of_another_tongue_is_refused(result: str, complaint: str):
    program = (
        f"""input(); print('{{"jsonrpc":"2.0","id":1,"result":{result}}}', flush=True); input()"""
    )
    async with started("-c", program, listener=Listener()) as agent:
        with pytest.raises(ProtocolError, match=complaint):
            await agent.initialize()


class SdkListener:
    """The SDK's client: keeps what it is told, and chooses the first option."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.waiting = anyio.Event()

    def on_connect(self, conn: acp.Agent) -> None:
        return

    async def session_update(self, session_id: str, update: Any, **_extra: Any) -> None:
        self.heard.append(update.content.text)
        if self.heard[-1] == "waiting":
            self.waiting.set()

    async def request_permission(self, options: Any, **_extra: Any) -> RequestPermissionResponse:
        chosen = AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return RequestPermissionResponse(outcome=chosen)


@pytest.mark.spec("A01", "A02")
async def test_a_client_of_the_sdk_drives_an_agent_of_ours():
    listener = SdkListener()
    part: Any = listener  # the SDK takes one that does a part of its protocol
    with anyio.fail_after(30):
        async with acp.spawn_agent_process(
            part, sys.executable, str(HERE / "own_agent.py"), transport_kwargs={"stderr": None}
        ) as (agent, _process):
            said = await agent.initialize(protocol_version=1)
            assert said.agent_info and said.agent_info.name == "own"
            session = await agent.new_session(cwd="/", mcp_servers=[])
            assert session.config_options and session.config_options[0].id == "model"

            result = await agent.prompt(session_id="s1", prompt=[acp.text_block("stream 500")])
            assert result.stop_reason == "end_turn"
            assert listener.heard == [str(number) for number in range(500)]

            await agent.prompt(session_id="s1", prompt=[acp.text_block("ask")])
            assert listener.heard[-1] == "yes"

            async def cancel() -> None:
                await listener.waiting.wait()
                await agent.cancel(session_id="s1")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel)
                result = await agent.prompt(session_id="s1", prompt=[acp.text_block("wait")])
            assert result.stop_reason == "cancelled"
