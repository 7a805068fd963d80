"""A session's tools on real files, for the tests."""

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace
from sandboxed import a_sandbox

from goent.agent.agent_ports import (
    AgentTool,
    ClientFiles,
    ClientTerminals,
    ToolContext,
    ToolInvocation,
    ToolOutcome,
    ToolProgress,
)
from goent.agent.tools.toolbox import open_tools
from goent.domain.sandbox_port import SandboxStrictness
from goent.proc.process_table import marked_processes, new_owner

RIPGREP = Path(__file__).parents[2] / "node_modules" / ".bin" / "rg"


class Bench:
    """Calls tools by name, as a model that was permitted everything."""

    def __init__(self, desk: ToolContext, tools: Mapping[str, AgentTool]) -> None:
        self.desk = desk
        self.tools = tools
        self.told: list[ToolProgress] = []

    async def prepare(self, tool: str, **arguments: object) -> ToolInvocation:
        return await self.tools[tool].prepare(json.dumps(arguments).encode())

    async def call(self, tool: str, **arguments: object) -> ToolOutcome:
        return await self.run(await self.prepare(tool, **arguments))

    async def run(self, call: ToolInvocation) -> ToolOutcome:
        return await call.run(self._report)

    async def said(self, tool: str, **arguments: object) -> str:
        return (await self.call(tool, **arguments)).text

    async def over(self, name: str) -> ToolOutcome:
        """What a background command says, from now to its end."""
        said = ""
        with anyio.fail_after(60):
            while True:
                done = await self.call("Bash", output_of=name)
                said += done.text
                if "has ended" in done.text:
                    return ToolOutcome(text=said, failed=done.failed, exit=done.exit)

    async def _report(self, progress: ToolProgress) -> None:
        self.told.append(progress)


@asynccontextmanager
async def a_bench(  # noqa: PLR0913 (so much lies on a desk)
    cwd: Path,
    *,
    roots: tuple[Path, ...] = (),
    environ: Mapping[str, str] | None = None,
    reading: ClientFiles | None = None,
    writing: ClientFiles | None = None,
    terminals: ClientTerminals | None = None,
    writable: tuple[Path, ...] = (),
    level: SandboxStrictness = "auto",
) -> AsyncGenerator[Bench]:
    """Whatever was started is gone at the end."""
    owner = new_owner("tools-test")
    desk = ToolContext(
        session="ses_test",
        cwd=cwd,
        roots=(cwd, *roots),
        environ={**os.environ, **(environ or {})},
        file_reader=reading,
        file_writer=writing,
        terminals=terminals,
        writable=writable,
        owner=owner,
    )
    async with (
        a_sandbox(cwd.parent / "home", level=level).session(
            cwd, roots=(*desk.roots, *writable), env=desk.environ
        ) as limits,
        open_tools(replace(desk, sandbox=limits)) as tools,
    ):
        yield Bench(desk, tools)
    assert list(marked_processes(owner)) == []


def with_ripgrep() -> dict[str, str]:
    return {"PATH": f"{RIPGREP.parent}:{os.environ['PATH']}"}


def without_ripgrep() -> dict[str, str]:
    folders = os.environ["PATH"].split(":")
    return {"PATH": ":".join(folder for folder in folders if not Path(folder, "rg").exists())}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 (files and reports ring no bell)
            await anyio.sleep(0.02)
