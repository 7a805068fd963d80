"""`go-ent acp` as a process, and the two ends that tests drive it from: lines, and the SDK."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import acp
import anyio
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse
from acp_lines import Wire
from anyio.abc import Process
from world import World

COMMAND = (sys.executable, "-m", "goent", "acp")


class ProcessWire(Wire):
    def __init__(self, process: Process) -> None:
        assert process.stdin and process.stdout
        super().__init__(process.stdout, process.stdin)
        self.process = process

    async def hang_up(self) -> int:
        await self._send.aclose()
        with anyio.fail_after(60):
            return await self.process.wait()


@asynccontextmanager
async def a_wire(world: World, *options: str) -> AsyncGenerator[ProcessWire]:
    """On leaving, the client hangs up, and the agent must end well by itself."""
    command = (*COMMAND, *options)
    async with await anyio.open_process(
        command, cwd=world.project, env=world.env, stderr=None
    ) as process:
        wire = ProcessWire(process)
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
