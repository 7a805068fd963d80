"""Where do the scripted models live? On a loopback port, for as long as their context."""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from goent.domain.types import Usage
from goent.testing.calls import PATIENCE, Call, CallLog, Gates
from goent.testing.http import BadRequest, ClientGone, Connection
from goent.testing.script import Script
from goent.testing.stage import Stage


class ScriptedModels:
    """A server of scripted models: `async with ScriptedModels(script) as server: …`."""

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self.script = script
        self._log = CallLog()
        self._gates = Gates(self._log.notify)
        self._stage = Stage(script, self._log, self._gates)
        self._wanted_port = port
        self._listener: socket.socket | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self._wanted_port), backlog=512)
        self._listener.settimeout(0)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._accept, self._listener, self._tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks and self._listener
        self._tasks.cancel_scope.cancel()
        try:
            # The body's error is kept from the group, which would wrap what a test wants to see.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._listener.close()

    @property
    def url(self) -> str:
        if self._listener is None:
            raise RuntimeError("the server has no address before `async with`")
        host, port = self._listener.getsockname()
        return f"http://{host}:{port}"

    def base_url(self, provider: str) -> str:
        """What a client of this provider takes as its base URL."""
        if provider not in self.script.providers:
            known = ", ".join(self.script.providers)
            raise KeyError(f"{provider!r} is not in the script; it has: {known}")
        return f"{self.url}/{provider}/v1"

    @property
    def calls(self) -> Sequence[Call]:
        """Every request so far, in order of arrival."""
        return self._log.calls

    def billed(self, provider: str | None = None, session: str | None = None) -> Usage:
        """The server's own count of all tokens, or of one provider's or one session's."""
        chosen = (
            call.usage
            for call in self.calls
            if provider in (None, call.provider) and session in (None, call.session)
        )
        return sum(chosen, Usage())

    async def called(self, n: int = 1, *, timeout: float = PATIENCE) -> Sequence[Call]:  # noqa: ASYNC109 (a barrier's bound is part of its error)
        """Wait until `n` requests have arrived."""
        await self._log.until(lambda: len(self.calls) >= n, f"not {n} calls", timeout)
        return self.calls

    async def wait_for(
        self,
        wanted: Callable[[Call], bool],
        *,
        timeout: float = PATIENCE,  # noqa: ASYNC109 (a barrier's bound is part of its error)
    ) -> Call:
        """Wait until a call is as wanted, and return the first that is."""
        await self._log.until(lambda: any(map(wanted, self.calls)), "no such call", timeout)
        return next(filter(wanted, self.calls))

    def open_gate(self, name: str) -> None:
        """Let pass whoever waits, or will come, at `gate: name`."""
        self._gates.open(name)

    async def at_gate(self, name: str, n: int = 1, *, timeout: float = PATIENCE) -> None:  # noqa: ASYNC109 (a barrier's bound is part of its error)
        """Wait until `n` requests have come to the gate."""
        what = f"not {n} at the gate {name!r}"
        await self._log.until(lambda: self._gates.arrived(name) >= n, what, timeout)

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listener)
            with suppress(BlockingIOError, ConnectionAbortedError):
                tasks.start_soon(self._serve, Connection(listener.accept()[0]))

    async def _serve(self, connection: Connection) -> None:
        try:
            while request := await connection.request():
                ended = await self._stage.answer(connection, request)
                if not ended or connection.closed or not request.keep_alive:
                    break
        except BadRequest as error:
            message = str(error).encode()
            with suppress(ClientGone):
                await connection.begin(400, {"content-type": "text/plain"}, len(message))
                await connection.send(message)
        finally:
            connection.close()
