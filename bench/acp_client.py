"""How does the bench talk to an ACP agent, ours or OpenCode? By one client, which allows everything."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL

import anyio
from bench.cost import Failed

from goent.acp.agent_messages import (
    AnyUpdate,
    OptionSelected,
    PermissionOutcome,
    PermissionRequest,
    ToolCallUpdate,
)
from goent.acp.message_parts import AcpText
from goent.agents.agent_connection import AgentConnection

PATIENCE_S = 120.0


class Driven:
    """An agent at work for us."""

    def __init__(self, connection: AgentConnection, pid: int, client: "_Client", cwd: Path) -> None:
        self.pid = pid
        self._connection = connection
        self._client = client
        self._cwd = cwd

    async def session(self) -> str:
        return (await self._connection.new_session(str(self._cwd))).session_id

    async def turn(self, session: str, prompt: str) -> int:
        """Take one; tells how many tool calls succeeded in it."""
        self._client.done = 0
        block = AcpText(text=prompt)
        ended = await self._connection.prompt(session, [block], timeout=PATIENCE_S)
        if ended.stop_reason != "end_turn":
            raise Failed(f"a turn ended with {ended.stop_reason!r}")
        return self._client.done


class _Client:
    done = 0

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        if isinstance(update, ToolCallUpdate) and update.status == "completed":
            self.done += 1

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        allowing = (o.option_id for o in request.options if o.kind.startswith("allow"))
        return OptionSelected(option_id=next(allowing))


@asynccontextmanager
async def driven(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str]
) -> AsyncGenerator[Driven]:
    """Started and greeted; it ends with the context."""
    client = _Client()
    async with (
        await anyio.open_process(command, cwd=cwd, env=env, stderr=DEVNULL) as process,
        anyio.create_task_group() as tasks,
    ):
        assert process.stdout and process.stdin
        connection = AgentConnection(process.stdout, process.stdin, client, name=command[0])
        tasks.start_soon(connection.run)
        await connection.initialize()
        yield Driven(connection, process.pid, client, cwd)
        await connection.aclose()
        with anyio.move_on_after(10):
            await process.wait()
