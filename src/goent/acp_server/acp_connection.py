"""Serves one client of `go-ent acp`, from the greeting to the end of the connection."""

import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio

from goent import __version__
from goent.acp_server.client_sessions import OpenAgent
from goent.acp_server.handshake import Greeting
from goent.acp_server.server import serve_acp
from goent.domain.ports import GATE_VARIABLE
from goent.rpc.byte_streams import PrefixedStream, stdio

if TYPE_CHECKING:
    from goent.agent.coding_agent import CodingAgent


def serve_client(
    greeting: Greeting, *, model: str, mode: str, allowed_tools: frozenset[str] | None
) -> None:
    """Returns when the client has hung up, or a signal has come."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="go-ent acp: %(message)s")

    # Taken out once, at the start: nothing that the agent runs may see it.
    gate = os.environ.pop(GATE_VARIABLE, "")

    def open_agent() -> "AbstractAsyncContextManager[CodingAgent]":
        from goent.composition.agent_app import open_agent  # noqa: PLC0415 (models and store: for a session)

        return open_agent(
            os.environ, gate=gate, model=model, mode=mode, allowed_tools=allowed_tools
        )

    anyio.run(_serve, greeting, open_agent)


async def _serve(greeting: Greeting, open_agent: OpenAgent) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signals, tasks.cancel_scope)
        async with stdio() as (receive, send):
            await serve_acp(
                PrefixedStream(greeting.unread, receive),
                send,
                open_agent,
                version=__version__,
                greeted=greeting.client,
            )
        tasks.cancel_scope.cancel()


async def _cancel_on_signals(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
