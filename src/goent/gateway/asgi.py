"""Requests to the gateway and the replies to them, in ASGI without a framework."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Self
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from goent.domain.errors import AtLimit
from goent.domain.types import Dialect, Value
from goent.providers.connections import MemoryShare
from goent.providers.provider_errors import error_body

AsgiScope = Mapping[str, object]
AsgiMessage = Mapping[str, object]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)
SSE_HEADERS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
MAX_BODY = 64 * 1024 * 1024  # bytes of one request; providers take 32 to 50 MB
AUTHENTICATED_KEY = "goent.authenticated"  # in the scope: a function to call for a valid token


class RequestRefused(Exception):
    """The request is answered with an error in its dialect."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientHungUp(Exception):
    """The client left before its request was complete."""


class _Scope(Struct):
    method: str
    raw_path: bytes
    query_string: bytes
    headers: Headers


class _BodyMessage(Struct):
    type: str
    body: bytes = b""
    more_body: bool = False


class GatewayRequest(Value, frozen=True, kw_only=True):
    """`/<backend>/<rest>`, with the headers by lower-case name.

    A `v1/` before the rest is what the Anthropic SDK adds by itself to any address.
    """

    method: str
    backend: str
    path: str
    query: str
    headers: Headers

    @classmethod
    def parse(cls, scope: AsgiScope) -> Self:
        raw = msgspec.convert(scope, _Scope)
        backend, _, rest = raw.raw_path.decode("ascii", "replace").lstrip("/").partition("/")
        return cls(
            method=raw.method,
            backend=unquote(backend),
            path=rest.removeprefix("v1/"),
            query=raw.query_string.decode("ascii", "replace"),
            headers=raw.headers,
        )

    @property
    def dialect(self) -> Dialect:
        return "anthropic" if self.path.startswith("messages") else "openai"

    @property
    def token(self) -> str:
        return self.header(b"authorization").removeprefix("Bearer ") or self.header(b"x-api-key")

    def header(self, wanted: bytes) -> str:
        return next((v.decode("latin-1") for name, v in self.headers if name == wanted), "")


def mark_authenticated(scope: AsgiScope) -> None:
    """Tell the server that the client has shown a valid token."""
    report = scope.get(AUTHENTICATED_KEY)
    if callable(report):
        report()


async def read_body(receive: Receive, share: MemoryShare, *, most: int = MAX_BODY) -> bytes:
    """The request's whole body; its bytes are counted in `share`."""
    body = bytearray()
    more = True
    while more:
        message = msgspec.convert(await receive(), _BodyMessage)
        if message.type == "http.disconnect":
            raise ClientHungUp
        body += message.body
        more = message.more_body
        if len(body) > most:
            raise RequestRefused(413, f"the request is longer than {most} bytes, the limit")
        try:
            share.add(len(message.body))
        except AtLimit as full:
            raise RequestRefused(429, str(full)) from full
    return bytes(body)


async def wait_for_hang_up(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def start_reply(send: Send, status: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def send_piece(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def finish_reply(send: Send, body: bytes = b"") -> None:
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_reply(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await start_reply(send, status, (*headers, (b"content-length", b"%d" % len(body))))
    await finish_reply(send, body)


async def send_refusal(
    send: Send, dialect: Dialect, status: int, message: str, code: str | None = None
) -> None:
    await send_reply(send, status, JSON_HEADERS, error_body(dialect, status, message, code))
