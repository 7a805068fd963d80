"""MCP servers at an address of this machine: the SDK's, and rough ones."""

import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from sdk_server import mcp

from goent.gateway.loopback_server import LoopbackServer

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


class Watched:
    """Notes every request on its way to the server: verb and head."""

    def __init__(self, app: App, *, newer_only: bool = False) -> None:
        self.app = app
        self.newer_only = newer_only
        self.seen: list[tuple[str, dict[str, str]]] = []

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            head = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.seen.append((scope["method"], head))
            if self.newer_only and head.get("mcp-protocol-version") != "2026-07-28":
                error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}
                return await reply(send, 400, {"jsonrpc": "2.0", "id": 1, "error": error})
        await self.app(scope, receive, send)
        return None


async def reply(
    send: Callable[[Message], Awaitable[None]],
    status: int,
    body: object,
    kind: str = "application/json",
    **head: str,
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = [(b"content-type", kind.encode())]
    fields += [(name.replace("_", "-").encode(), value.encode()) for name, value in head.items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": raw})


async def body_of(receive: Callable[[], Awaitable[Message]]) -> dict[str, Any]:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return json.loads(body) if body else {}


@asynccontextmanager
async def served(app: App) -> AsyncGenerator[str]:
    """The address at which the app is served."""
    server = LoopbackServer(app)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve_on, listener)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                server.stop()


@asynccontextmanager
async def sdk_served(
    *, as_json: bool = False, newer_only: bool = False
) -> AsyncGenerator[tuple[str, Watched]]:
    """The SDK's server, and what it was asked."""
    app = mcp.streamable_http_app(json_response=as_json)
    watched = Watched(app, newer_only=newer_only)
    async with app.router.lifespan_context(app), served(watched) as url:
        yield url, watched
