"""An editor's end of `go-ent acp`: it allows what it is asked, once."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from acp_lines import Line, Wire
from world import World


class AgentWire(Wire):
    """Every line that was heard is kept in `heard`."""

    async def ask(self, method: str, **params: Any) -> Line:
        """The result. Questions that come meanwhile are answered with yes."""
        number = await self.begin(method, **params)
        while (line := await self.hear()).get("id") != number or "method" in line:
            if line.get("method") == "session/request_permission":
                await self._allow(line)
        assert "result" in line, line
        return line["result"]

    async def prompt(self, session: str, *blocks: Line) -> Line:
        return await self.ask("session/prompt", sessionId=session, prompt=list(blocks))

    async def _allow(self, asked: Line) -> None:
        options = asked["params"]["options"]
        chosen = next(o["optionId"] for o in options if o["kind"] == "allow_once")
        outcome = {"outcome": "selected", "optionId": chosen}
        await self.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}})

    def updates(self, kind: str) -> list[Line]:
        told = [
            line["params"]["update"] for line in self.heard if "update" in line.get("params", {})
        ]
        return [update for update in told if update["sessionUpdate"] == kind]


def words(text: str) -> Line:
    return {"type": "text", "text": text}


@asynccontextmanager
async def an_agent(world: World, *options: str) -> AsyncGenerator[AgentWire]:
    """On leaving, the editor hangs up, and the agent must end well by itself."""
    command = [sys.executable, "-m", "goent", "acp", *options]
    async with await anyio.open_process(
        command, cwd=world.project, env=world.env, stderr=None
    ) as process:
        assert process.stdin and process.stdout
        wire = AgentWire(process.stdout, process.stdin)
        await wire.ask("initialize", protocolVersion=1, clientCapabilities={})
        yield wire
        await process.stdin.aclose()
        with anyio.fail_after(60):
            assert await process.wait() == 0
