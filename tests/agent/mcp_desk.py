"""A session's desk, and servers to put on it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio

from goent.agent.agent_ports import McpServerSpec, ToolContext, ToolOutcome, ToolProgress
from goent.agent.mcp.mcp_client import McpServers, McpTimeouts
from goent.proc.process_table import new_owner

HERE = Path(__file__).parent
SDK = str(HERE / "sdk_server.py")
ROUGH = str(HERE / "rough_server.py")
# As long as a slow machine may take, where a test waits for what does come.
PATIENT = McpTimeouts(wait_s=60, start_s=60, call_s=60)
HURRIED = McpTimeouts(wait_s=60, start_s=3, call_s=60)


def a_desk(cwd: Path) -> ToolContext:
    kept = ("PATH", "HOME", "LANG")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    return ToolContext(
        session="s1",
        cwd=cwd,
        roots=(cwd,),
        environ={**environ, "FROM_THE_DESK": "desk"},
        owner=new_owner("test-mcp"),
    )


def sdk(name: str = "sdk", *arguments: str, **environ: str) -> McpServerSpec:
    return McpServerSpec(
        name=name, command=sys.executable, arguments=(SDK, *arguments), environ=environ
    )


def rough(how: str, *arguments: str, name: str = "") -> McpServerSpec:
    return McpServerSpec(
        name=name or how, command=sys.executable, arguments=("-S", ROUGH, how, *arguments)
    )


async def use(servers: McpServers, tool: str, arguments: bytes = b"{}") -> ToolOutcome:
    """Call a tool as the agent does."""
    call = await servers.tools[tool].prepare(arguments)
    return await call.run(_unheard)


async def until(true: Callable[[], bool]) -> None:
    """For what announces itself to nobody: a file, a tool more."""
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 (see above)
            await anyio.sleep(0.02)


async def _unheard(progress: ToolProgress) -> None:
    raise AssertionError(progress)
