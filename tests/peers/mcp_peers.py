"""MCP clients that others made, each started with `go-ent mcp` as its server."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from world import GO_ENT, World, refusal

TESTS = Path(__file__).parent.parent
NPM = TESTS / "npm" / "mcp"
NODE = NPM / "node_modules" / ".bin" / "node"
FASTMCP = TESTS.parent / ".venv" / "fastmcp"
MOST_LINE = 1 << 24
COMMANDS = {
    "TypeScript SDK v1": [str(NODE), str(NPM / "sdk_v1.mjs")],
    "TypeScript SDK v2": [str(NODE), str(NPM / "sdk_v2.mjs"), "auto"],
    "TypeScript SDK v2, with a handshake": [str(NODE), str(NPM / "sdk_v2.mjs"), "legacy"],
    "FastMCP": [sys.executable, str(Path(__file__).parent / "fastmcp_client.py")],
}
MODES = {"Python SDK": "auto", "Python SDK, with a handshake": "legacy"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client made of a tool's answer. `thrown`: it did not accept it."""

    structured: dict[str, Any] | None = None
    error: str | None = None
    thrown: str | None = None


class Peer(Protocol):
    """A client that is connected."""

    tools: list[str]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer: ...


class PythonPeer:
    """The Python SDK's client, which is in our own process."""

    def __init__(self, client: Client, tools: list[str]) -> None:
        self._client = client
        self.tools = tools

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        try:
            result = await self._client.call_tool(name, arguments)
        except Exception as thrown:  # noqa: BLE001 (whatever a client throws is its answer)
            return Answer(thrown=repr(thrown))
        structured = msgspec.convert(result.structured_content, dict[str, Any] | None)
        return Answer(structured=structured, error=refusal(result) if result.is_error else None)


class ProcessPeer:
    """A client in a process of its own, which reads calls and writes answers."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin and process.stdout
        self._calls = process.stdin
        self._answers = BufferedByteReceiveStream(process.stdout)
        self.tools: list[str] = []

    async def begin(self) -> None:
        self.tools = msgspec.json.decode(await self._line(), type=dict[str, list[str]])["tools"]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        await self._calls.send(msgspec.json.encode({"name": name, "arguments": arguments}) + b"\n")
        return msgspec.json.decode(await self._line(), type=Answer)

    async def _line(self) -> bytes:
        with anyio.fail_after(120):
            return await self._answers.receive_until(b"\n", MOST_LINE)


@asynccontextmanager
async def a_peer(world: World, name: str) -> AsyncGenerator[Peer]:
    if name in MODES:
        async with world.client(mode=MODES[name]) as client:
            yield PythonPeer(client, [tool.name for tool in (await client.list_tools()).tools])
        return
    env = world.env | ({"PYTHONPATH": str(FASTMCP)} if name == "FastMCP" else {})
    command = [*COMMANDS[name], *GO_ENT, "mcp"]
    async with await anyio.open_process(
        command, cwd=world.project, env=env, stderr=sys.stderr
    ) as process:
        peer = ProcessPeer(process)
        await peer.begin()
        yield peer
        assert process.stdin
        await process.stdin.aclose()
        with anyio.fail_after(30):
            await process.wait()
