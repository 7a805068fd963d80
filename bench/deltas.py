"""What does a piece of text cost the agent, from its event to the client's pipe, beside the SDK's?

`python -m bench.deltas agent` is the agent under test: the whole server of `go-ent acp`, with a
session that says as many pieces as it is asked for. The client reads as fast as it can.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from bench.cost import Failed, cpu_of, ended_in_time
from bench.place import Place
from bench.table import Row

from goent.acp_server.server import serve_acp
from goent.agent.agent_events import PromptPart, Said, TextPart
from goent.agent.agent_ports import AgentClient, McpServerSpec
from goent.agent.agent_session import AgentSession, SessionOptions, TurnEnd
from goent.agent.coding_agent import CodingAgent
from goent.domain.types import Usage
from goent.rpc.byte_streams import stdio

PIECES = 100_000
CHUNK = 1 << 20


class Talker(AgentSession):
    """Says as many pieces as the prompt says."""

    def __init__(self, client: AgentClient) -> None:
        self.id = "talker"
        self._client = client

    @property
    def options(self) -> SessionOptions:
        return SessionOptions(mode="ask", model="none", models=())

    @property
    def busy(self) -> bool:
        return False

    async def prompt(self, given: Sequence[PromptPart]) -> TurnEnd:
        [asked] = given
        assert isinstance(asked, TextPart)
        for number in range(int(asked.text)):
            piece = Said(message="m1", role="agent", text=f"piece {number} ")
            await self._client.send(self.id, piece)
        return TurnEnd(stop_reason="end_turn", text="", usage=Usage(), cost_usd=None)

    async def greet(self) -> None:
        return


class Talkers(CodingAgent):
    def __init__(self) -> None:
        return

    async def new(
        self,
        client: AgentClient,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[McpServerSpec] = (),
        model: str | None = None,
    ) -> AgentSession:
        return Talker(client)

    async def close(self, session: str) -> None:
        return


@asynccontextmanager
async def _open() -> AsyncGenerator[CodingAgent]:
    yield Talkers()


async def _serve() -> None:
    async with stdio() as (receive, send):
        await serve_acp(receive, send, _open, version="0")


async def run(_: Place) -> list[Row]:
    rates = [
        await anyio.to_thread.run_sync(_rate, module, greeted)
        for module, greeted in (("bench.deltas", True), ("bench.rpc_sdk", False))
    ]
    return [
        Row(
            measure=f"{PIECES:,} pieces of text, from the agent's event to the pipe",
            unit="per CPU s",
            ours=rates[0],
            peer=rates[1],
            peer_name="agent-client-protocol",
            at_least=5,
        )
    ]


def _rate(module: str, greeted: bool) -> float:
    with subprocess.Popen(
        [sys.executable, "-m", module, "agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as agent:
        assert agent.stdin and agent.stdout
        with ended_in_time(agent):
            session = "talker"
            if greeted:
                _ask(agent, "initialize", {"protocolVersion": 1})
                _ask(agent, "session/new", {"cwd": str(Path.cwd()), "mcpServers": []})
            _prompt(agent, session, 100)
            before = cpu_of(agent.pid)
            said = _prompt(agent, session, PIECES)
            spent = cpu_of(agent.pid) - before
            agent.stdin.close()
    if said.count(b"piece ") != PIECES:
        raise Failed(f"{module}: {said.count(b'piece ')} of {PIECES} pieces arrived")
    return PIECES / spent


def _prompt(agent: "subprocess.Popen[bytes]", session: str, pieces: int) -> bytes:
    words = {"type": "text", "text": str(pieces)}
    return _ask(agent, "session/prompt", {"sessionId": session, "prompt": [words]})


def _ask(agent: "subprocess.Popen[bytes]", method: str, params: dict[str, object]) -> bytes:
    """All that came before the reply, and the reply."""
    assert agent.stdin and agent.stdout
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    agent.stdin.write(json.dumps(request).encode() + b"\n")
    agent.stdin.flush()
    said = bytearray()
    while b'"id":7' not in said[-4096:].replace(b" ", b"") or not said.endswith(b"\n"):
        piece = os.read(agent.stdout.fileno(), CHUNK)
        if not piece:
            raise Failed(f"{agent.args!r} hung up")
        said += piece
    return bytes(said)


if __name__ == "__main__":
    anyio.run(_serve)
