"""The measured programs on our own transport: `agent`, and the `client` that starts it."""

import sys
import time

import anyio
import msgspec
from bench.rpc import Row
from msgspec import Raw

from goent.acp.agent_messages import (
    AgentMessageChunk,
    AnyUpdate,
    PermissionOutcome,
    PermissionRequest,
    SessionUpdate,
)
from goent.acp.client_messages import PromptParams, PromptResult
from goent.acp.message_parts import AcpText
from goent.agents.agent_connection import AgentConnection
from goent.rpc.byte_streams import stdio
from goent.rpc.json_rpc import MethodNotFound, decode_params
from goent.rpc.rpc_peer import Peer


class Agent:
    """Sends as many updates as the prompt says."""

    peer: Peer

    async def request(self, method: str, params: Raw) -> object:
        if method == "_cpu":
            return {"cpu": time.process_time()}
        if method != "session/prompt":
            raise MethodNotFound(method)
        asked = decode_params(params, PromptParams)
        block = asked.prompt[0]
        assert isinstance(block, AcpText)
        for number in range(int(block.text)):
            chunk = AgentMessageChunk(content=AcpText(text=f"piece {number} "), message_id="msg_1")
            update = SessionUpdate(session_id=asked.session_id, update=chunk)
            await self.peer.notify("session/update", update)
        return PromptResult(stop_reason="end_turn")

    async def notification(self, method: str, params: Raw) -> None:
        return


class Client:
    """Counts what it is told."""

    count = 0

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        self.count += 1

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        raise AssertionError(f"the benchmark asks for no permission: {request!r}")


class Cpu(msgspec.Struct):
    cpu: float


async def agent() -> None:
    handler = Agent()
    async with stdio() as (receive, send):
        handler.peer = Peer(receive, send, handler)
        await handler.peer.run()


async def client(messages: int) -> list[Row]:
    command = [sys.executable, "-m", "bench.rpc_ours", "agent"]
    seen = Client()
    rows: list[Row] = []
    async with (
        await anyio.open_process(command, stderr=None) as process,
        anyio.create_task_group() as tasks,
    ):
        assert process.stdout and process.stdin
        connection = AgentConnection(process.stdout, process.stdin, seen, name="the agent")
        tasks.start_soon(connection.run)
        rows.append(await measure(connection, messages))
        await connection.aclose()
    assert seen.count == messages
    return rows


async def measure(connection: AgentConnection, messages: int) -> Row:
    before = await agent_cpu(connection)
    started = time.process_time()
    await connection.prompt("ses_1", [AcpText(text=str(messages))])
    spent = time.process_time() - started
    after = await agent_cpu(connection)
    return Row(stack="ours", messages=messages, agent=after - before, client=spent)


async def agent_cpu(connection: AgentConnection) -> float:
    return msgspec.json.decode(await connection.extension("_cpu", {}), type=Cpu).cpu


if __name__ == "__main__":
    if sys.argv[1] == "agent":
        anyio.run(agent)
    else:
        print(msgspec.json.encode(anyio.run(client, int(sys.argv[2]))).decode())
