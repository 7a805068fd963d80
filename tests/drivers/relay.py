"""A TCP relay in front of a real OpenCode server, which can break the event stream and nothing else."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

STREAM = b"GET /global/event"
GREETING = b"server.connected"


class Relay:
    """While it is `broken`, every event stream is cut off and none can be opened.

    While it is `deaf`, an event stream begins and brings nothing; `begun` tells that it has.
    """

    def __init__(self, port: int) -> None:
        self.broken = False
        self.deaf = False
        self.begun = anyio.Event()
        self.url = ""
        self._port = port
        self._streams: set[anyio.CancelScope] = set()

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str) -> "AsyncGenerator[Relay]":
        relay = cls(urlsplit(url).port or 0)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)
        relay.url = f"http://127.0.0.1:{port}"
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, relay._pass)
            yield relay
            tasks.cancel_scope.cancel()

    def cut(self) -> None:
        self.broken, self.begun = True, anyio.Event()
        assert self._streams
        for scope in self._streams:
            scope.cancel()

    def mend(self) -> None:
        self.broken = False

    async def _pass(self, client: SocketStream) -> None:
        scope = anyio.CancelScope()
        async with client, await anyio.connect_tcp("127.0.0.1", self._port) as server:
            with scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._answer, server, client, scope)
                    await self._ask(client, server, scope)
        self._streams.discard(scope)

    async def _ask(self, client: ByteStream, server: ByteStream, scope: anyio.CancelScope) -> None:
        try:
            async for data in client:
                if data.startswith(STREAM):
                    self._streams.add(scope)
                    if self.broken:
                        break
                await server.send(data)
        except anyio.BrokenResourceError:
            pass
        scope.cancel()

    async def _answer(
        self, server: ByteStream, client: ByteStream, scope: anyio.CancelScope
    ) -> None:
        try:
            async for data in server:
                if GREETING in data:
                    self.begun.set()
                elif self.deaf and scope in self._streams and not data.startswith(b"HTTP/"):
                    continue
                await client.send(data)
        except anyio.BrokenResourceError:
            pass
        scope.cancel()
