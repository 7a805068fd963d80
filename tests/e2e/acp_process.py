"""`go-ent acp` as a process, and the two ends that tests drive it from: lines, and the SDK."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import acp
import anyio
import msgspec
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from world import World

COMMAND = (sys.executable, "-m", "goent", "acp")

Line = dict[str, Any]


class Wire:
    """A client that says what it likes, and remembers every line it hears."""

    def __init__(self, process: Process) -> None:
        assert process.stdin and process.stdout
        self.process = process
        self.heard: list[Line] = []
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._count = 0

    async def say(self, *lines: bytes | Line) -> None:
        raw = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
        await self._stdin.send(b"".join(line + b"\n" for line in raw))

    async def hear(self) -> Line:
        with anyio.fail_after(60):
            line = await self._lines.receive_until(b"\n", 1 << 26)
        self.heard.append(msgspec.json.decode(line, type=Line))
        return self.heard[-1]

    async def until(self, method: str) -> Line:
        while (line := await self.hear()).get("method") != method:
            pass
        return line

    async def begin(self, method: str, **params: Any) -> int:
        self._count += 1
        await self.say({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        return self._count

    async def tell(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def reply(self, number: int | str | None) -> Line:
        while (line := await self.hear()).get("id") != number or "method" in line:
            pass
        return line

    async def ask(self, method: str, **params: Any) -> Line:
        return await self.reply(await self.begin(method, **params))

    async def result(self, method: str, **params: Any) -> Line:
        reply = await self.ask(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def error(self, method: str, **params: Any) -> Line:
        reply = await self.ask(method, **params)
        assert "error" in reply, reply
        return reply["error"]

    async def hang_up(self) -> int:
        await self._stdin.aclose()
        with anyio.fail_after(60):
            return await self.process.wait()


@asynccontextmanager
async def a_wire(world: World, *options: str) -> AsyncGenerator[Wire]:
    """On leaving, the client hangs up, and the agent must end well by itself."""
    command = (*COMMAND, *options)
    async with await anyio.open_process(
        command, cwd=world.project, env=world.env, stderr=None
    ) as process:
        wire = Wire(process)
        yield wire
        assert await wire.hang_up() == 0


class SdkClient:
    """An editor on the official SDK. `answer` is the kind of option that it chooses."""

    def __init__(self, answer: str = "allow_once") -> None:
        self.answer = answer
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[Any] = []
        self.question = anyio.Event()

    def on_connect(self, conn: Any) -> None:
        return

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        self.question.set()
        if self.answer == "wait":
            await anyio.sleep_forever()
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = next(option for option in options if option.kind == self.answer)
        return RequestPermissionResponse(
            outcome=AllowedOutcome(option_id=chosen.option_id, outcome="selected")
        )

    def of(self, session: str, kind: str) -> list[Any]:
        return [u for s, u in self.updates if s == session and u.session_update == kind]

    def text(self, session: str, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.of(session, kind))

    def statuses(self, session: str) -> list[str]:
        """How each tool call ended."""
        last = {u.tool_call_id: u.status for u in self.of(session, "tool_call")}
        last.update({u.tool_call_id: u.status for u in self.of(session, "tool_call_update")})
        return list(last.values())


@asynccontextmanager
async def an_sdk_client(world: World, client: SdkClient, *options: str) -> AsyncGenerator[Any]:
    async with acp.spawn_agent_process(
        client,  # pyright: ignore[reportArgumentType] (any object with the methods will do)
        *(*COMMAND, *options),
        env=world.env,
        cwd=world.project,
        transport_kwargs={"stderr": None},
        use_unstable_protocol=True,
    ) as (connection, _process):
        await connection.initialize(protocol_version=1)
        yield connection
