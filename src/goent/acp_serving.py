"""One client of `go-ent acp`, from the greeting to the end of the connection."""

import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio

from goent import __version__
from goent.domain.gate import GATE
from goent.frontends.acp.greeting import Greeting
from goent.frontends.acp.host import OpenAgent
from goent.frontends.acp.server import serve
from goent.rpc.reread import Reread
from goent.rpc.stdio import stdio

if TYPE_CHECKING:
    from goent.agent.agent import Agent


def serve_client(
    greeting: Greeting, *, model: str, mode: str, allowed_tools: frozenset[str] | None
) -> None:
    """Returns when the client has hung up, or a signal has come."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="go-ent acp: %(message)s")

    # Taken out once, at the start: nothing that the agent runs may see it.
    gate = os.environ.pop(GATE, "")

    def open_agent() -> "AbstractAsyncContextManager[Agent]":
        from goent.composition.agent_app import open_agent  # noqa: PLC0415 (models and store: for a session)

        return open_agent(
            os.environ, gate=gate, model=model, mode=mode, allowed_tools=allowed_tools
        )

    anyio.run(_serve, greeting, open_agent)


async def _serve(greeting: Greeting, open_agent: OpenAgent) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signals, tasks.cancel_scope)
        async with stdio() as (receive, send):
            await serve(
                Reread(greeting.unread, receive),
                send,
                open_agent,
                version=__version__,
                greeted=greeting.client,
            )
        tasks.cancel_scope.cancel()


async def _end_on_signals(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
