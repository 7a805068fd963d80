"""An editor on the bare wire, and go-ent's server with a stand-in for the agent."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from acp_lines import Line, Wire
from stand_in import StandInAgent

from goent.acp_server.server import serve_acp
from goent.rpc.byte_streams import FdReceiveStream, FdSendStream

HELLO: Line = {"protocolVersion": 1, "clientCapabilities": {}}


class Editor(Wire):
    def __init__(self, receive: FdReceiveStream, send: FdSendStream, agent: StandInAgent) -> None:
        super().__init__(receive, send)
        self.agent = agent
        self._receive = receive

    async def answer(self, number: Any, result: Any) -> None:
        await self.say({"jsonrpc": "2.0", "id": number, "result": result})

    async def until_update(self, kind: str) -> Line:
        while True:
            update = (await self.until("session/update"))["params"]["update"]
            if update["sessionUpdate"] == kind:
                return update

    async def code(self, method: str, **params: Any) -> int:
        return (await self.error(method, **params))["code"]

    async def session(self, cwd: str = "/", **more: Any) -> str:
        session: str = (await self.result("session/new", cwd=cwd, mcpServers=[], **more))[
            "sessionId"
        ]
        return session

    async def prompt(self, session: str, text: str) -> Line:
        return await self.result("session/prompt", sessionId=session, prompt=words(text))

    async def hang_up(self) -> None:
        await self._send.aclose()

    async def vanish(self) -> None:
        await self._send.aclose()
        await self._receive.aclose()

    def updates(self, kind: str) -> list[Line]:
        told = [line["params"]["update"] for line in self.heard if is_update(line)]
        return [update for update in told if update["sessionUpdate"] == kind]

    def text(self) -> str:
        return "".join(part["content"]["text"] for part in self.updates("agent_message_chunk"))

    async def hears_the_end(self) -> None:
        with anyio.fail_after(30):
            try:
                while True:
                    await self.hear()
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.ClosedResourceError):
                return


def is_update(line: Line) -> bool:
    return line.get("method") == "session/update"


def words(text: str) -> list[Line]:
    return [{"type": "text", "text": text}]


@asynccontextmanager
async def an_editor(
    agent: StandInAgent | None = None, hello: Line | None = HELLO
) -> AsyncGenerator[Editor]:
    """A server and its client; leaving it hangs up, and the server must end by itself."""
    standing_in = agent or StandInAgent()
    near_in, far_out = _pipe()
    far_in, near_out = _pipe()
    with anyio.fail_after(60):
        async with far_in, anyio.create_task_group() as tasks:

            async def run() -> None:
                await serve_acp(near_in, near_out, standing_in.open_agent, version="1.2.3")

            tasks.start_soon(run)
            async with far_out:
                editor = Editor(far_in, far_out, standing_in)
                if hello is not None:
                    await editor.result("initialize", **hello)
                yield editor
            with anyio.move_on_after(30):
                await editor.hears_the_end()


def _pipe() -> tuple[FdReceiveStream, FdSendStream]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return FdReceiveStream(ends[0]), FdSendStream(ends[1])
