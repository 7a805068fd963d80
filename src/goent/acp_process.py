"""`go-ent acp`: the agent as a process of its own, on standard input and output.

What it loads before the first reply decides how long an editor waits: the protocol, and no more.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NamedTuple

import anyio

from goent import __version__
from goent.frontends.acp.server import serve
from goent.rpc.stdio import stdio

if TYPE_CHECKING:
    from goent.agent.agent import Agent

TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "TodoWrite")
MODES = ("ask", "accept-edits", "plan")
_OPTIONS = ("--model", "--mode", "--allowed-tools")


class AgentCommand(NamedTuple):
    """What the command line says. `allowed_tools` None: all."""

    model: str = "auto"
    mode: str = "ask"
    allowed_tools: frozenset[str] | None = None


def command_of(arguments: Sequence[str]) -> AgentCommand | None:
    """The plain ways to say it, read at once; None leaves the rest to the command line proper."""
    told: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name not in _OPTIONS or name in told:
            return None
        told[name] = value if given else next(words, "")
    if not all(told.values()) or told.get("--mode", "ask") not in MODES:
        return None
    tools = told.get("--allowed-tools")
    allowed = None if tools is None else tool_names(tools)
    if allowed and unknown_tool(allowed):
        return None
    return AgentCommand(told.get("--model", "auto"), told.get("--mode", "ask"), allowed)


def tool_names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def unknown_tool(names: frozenset[str]) -> str:
    """One that there cannot be; empty if there is none."""
    strange = (n for n in sorted(names) if n not in TOOLS and not n.startswith("mcp__"))
    return next(strange, "")


def run_acp(command: AgentCommand) -> int:
    """Serve one client until it hangs up; nothing of the sessions is left running."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="go-ent acp: %(message)s")
    anyio.run(_serve, command)
    return 0


async def _serve(command: AgentCommand) -> None:
    def open_agent() -> "AbstractAsyncContextManager[Agent]":
        from goent.agent_app import open_agent  # noqa: PLC0415 (see above)

        return open_agent(
            os.environ,
            model=command.model,
            mode=command.mode,
            allowed_tools=command.allowed_tools,
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signals, tasks.cancel_scope)
        async with stdio() as (receive, send):
            await serve(receive, send, open_agent, version=__version__)
        tasks.cancel_scope.cancel()


async def _end_on_signals(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
