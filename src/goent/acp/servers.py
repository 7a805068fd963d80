"""Which MCP servers does a client name for a session?"""

from msgspec import Raw

from goent.acp.base import Fields, Message


class Pair(Message, frozen=True, kw_only=True):
    """A variable of the environment, or a header."""

    name: str
    value: str


class StdioServer(Message, frozen=True, kw_only=True):
    """One that is started, and spoken to on its pipes. It has no `type` on the wire."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[Pair, ...] = ()


class HttpServer(Message, frozen=True, kw_only=True, tag="http"):
    """One that is spoken to over HTTP."""

    name: str
    url: str
    headers: tuple[Pair, ...] = ()


def transport(raw: Raw) -> str:
    """How the server is spoken to: `stdio`, `http`, or what this version does not know."""
    return Fields.of(raw).text("type") or "stdio"
