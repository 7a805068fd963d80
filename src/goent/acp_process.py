"""`go-ent acp`: the agent as a process of its own, on standard input and output.

What it loads before the first reply decides how long an editor waits: the protocol, and no more.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio

from goent import __version__
from goent.frontends.acp.server import serve
from goent.rpc.stdio import stdio

if TYPE_CHECKING:
    from goent.agent.agent import Agent

TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "TodoWrite")
MODES = ("ask", "accept-edits", "plan")


def run_acp(arguments: Sequence[str]) -> int:
    """Serve one client until it hangs up; nothing of the sessions is left running."""
    asked = _parsed(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="go-ent acp: %(message)s")
    anyio.run(_serve, asked)
    return 0


async def _serve(asked: argparse.Namespace) -> None:
    def open_agent() -> "AbstractAsyncContextManager[Agent]":
        from goent.agent_app import AgentArguments, open_agent  # noqa: PLC0415 (see above)

        return open_agent(
            AgentArguments(model=asked.model, allowed_tools=asked.allowed_tools, mode=asked.mode),
            os.environ,
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


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="go-ent acp",
        description="An agent for editors and other ACP clients, on any model.",
    )
    parser.add_argument(
        "--model",
        default="auto",
        help="haiku, sonnet, a provider's name or backend/model; without it the task decides",
    )
    parser.add_argument(
        "--allowed-tools",
        type=_tools,
        metavar="NAMES",
        help=f"of {','.join(TOOLS)} and mcp__SERVER__TOOL; others are neither offered nor run",
    )
    parser.add_argument(
        "--mode", default="ask", choices=MODES, help="what is asked before it is done"
    )
    return parser.parse_args(arguments)


def _tools(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in TOOLS and not name.startswith("mcp__"):
            raise argparse.ArgumentTypeError(
                f"there is no tool {name!r}; one of {', '.join(TOOLS)}"
            )
    return frozenset(names)
