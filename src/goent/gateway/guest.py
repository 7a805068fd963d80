"""How does an HTTP server live inside the daemon? uvicorn, as a guest."""

import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio
import uvicorn

GRACE_S = 2
KEEP_ALIVE_S = 600  # a client that reuses a connection which is just being closed sees an error


class GuestServer(uvicorn.Server):
    """Signals stay with the daemon, and no clock ticks ten times a second."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._stopped = anyio.Event()

    async def serve_on(self, listener: socket.socket) -> None:
        with anyio.CancelScope(shield=True):  # `stop` ends it, so that connections are closed
            await self.serve([listener])

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        await self._stopped.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
