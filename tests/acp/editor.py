"""A client on the bare wire: it says what it likes, and remembers every line it hears, in order."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from stand_in import StandInAgent

from goent.frontends.acp.server import serve
from goent.rpc.stdio import FdReceiveStream, FdSendStream

Line = dict[str, Any]

HELLO: Line = {"protocolVersion": 1, "clientCapabilities": {}}


class Editor:
    def __init__(self, receive: FdReceiveStream, send: FdSendStream, agent: StandInAgent) -> None:
        self.agent = agent
        self.heard: list[Line] = []
        self._receive = receive
        self._send = send
        self._lines = BufferedByteReceiveStream(receive)
        self._numbers = iter(range(1, 1_000_000))

    async def say(self, *lines: bytes | Line) -> None:
        raw = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
        await self._send.send(b"".join(line + b"\n" for line in raw))

    async def hear(self) -> Line:
        with anyio.fail_after(30):
            line = await self._lines.receive_until(b"\n", 1 << 26)
        message = msgspec.json.decode(line, type=Line)
        self.heard.append(message)
        return message

    async def begin(self, method: str, **params: Any) -> int:
        number = next(self._numbers)
        await self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    async def tell(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer(self, number: Any, result: Any) -> None:
        await self.say({"jsonrpc": "2.0", "id": number, "result": result})

    async def until(self, method: str) -> Line:
        """The next line that asks or tells this."""
        while (line := await self.hear()).get("method") != method:
            pass
        return line

    async def until_update(self, kind: str) -> Line:
        while True:
            update = (await self.until("session/update"))["params"]["update"]
            if update["sessionUpdate"] == kind:
                return update

    async def reply(self, number: int | str | None) -> Line:
        while (line := await self.hear()).get("id") != number or "method" in line:
            pass
        return line

    async def ask(self, method: str, **params: Any) -> Line:
        """The whole reply; what was heard before it is in `heard`."""
        return await self.reply(await self.begin(method, **params))

    async def result(self, method: str, **params: Any) -> Line:
        reply = await self.ask(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def code(self, method: str, **params: Any) -> int:
        reply = await self.ask(method, **params)
        assert "error" in reply, reply
        return reply["error"]["code"]

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
                await serve(near_in, near_out, standing_in.open_agent, version="1.2.3")

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
