"""Where do workers' model calls come in? A loopback HTTP server that lives in the daemon."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import quote

import anyio

from goent.domain.guard import ToolGuard
from goent.gateway.guard_desk import GUARD_BACKEND
from goent.gateway.guest import BACKLOG, GuestServer
from goent.gateway.passes import Passes
from goent.gateway.relay import WARM_BACKEND, PlanCourse, Relay
from goent.upstream.ask import Upstream

__all__ = ["WARM_BACKEND", "Gateway"]


class Gateway:
    """The ports `Gate` and `Meter`, over a server on 127.0.0.1."""

    def __init__(self, relay: Relay, passes: Passes, port: int) -> None:
        self.port = port
        self._relay = relay
        self._passes = passes

    @classmethod
    @asynccontextmanager
    async def open(cls, upstream: Upstream, plan: PlanCourse) -> "AsyncGenerator[Gateway]":
        """Listening on entry. On leaving, calls under way are cut off and reported."""
        passes = Passes()
        with _listener() as listener:
            port = int(listener.getsockname()[1])
            async with anyio.create_task_group() as tasks:
                relay = Relay(upstream, plan, passes, port)
                server = GuestServer(relay)
                tasks.start_soon(server.serve_on, listener)
                try:
                    yield cls(relay, passes, port)
                finally:
                    relay.calls.cancel_all()
                    server.stop()

    def base_url(self, backend: str) -> str:
        """The address that stands in for the backend's own `base_url`."""
        return f"http://127.0.0.1:{self.port}/{quote(backend, safe='')}"

    def issue_token(self) -> str:
        """A key for one worker process, good for this gateway alone."""
        return self._passes.issue()

    def revoke_token(self, token: str) -> None:
        self._passes.revoke(token)

    @property
    def guard_url(self) -> str:
        """Where the guard inside a worker's program asks about tool calls."""
        return self.base_url(GUARD_BACKEND)

    def attend(self, token: str, guard: ToolGuard) -> None:
        """Tool calls of the process that has the token are decided by `guard`."""
        self._passes.attend(token, guard)

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Calls of the session are the worker's; with None the gateway answers them itself.

        Where the session's name is not known ahead (`opencode run`), any name will do: sessions
        that nobody announced belong to the worker that was bound last.
        """
        self._passes.bind(token=token, session=session, worker=worker)

    def unbind(self, session: str) -> None:
        self._passes.unbind(session)

    def waiting(self, worker: str) -> float | None:
        """For how long the worker has been waiting for a model; None if it is not."""
        return self._relay.calls.waiting(worker)

    async def settle(self, worker: str) -> None:
        """Return when the worker's calls have been counted; bounded."""
        await self._relay.calls.settle(worker)


def _listener() -> socket.socket:
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it on, every
    # answer waits 40 ms between its head and its body.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    return listener
