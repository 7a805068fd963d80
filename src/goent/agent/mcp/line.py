"""What is a way to an MCP server, whatever it runs on?"""

from pathlib import Path
from typing import Protocol

from anyio import Event
from msgspec import Raw

from goent.agent.mcp.messages import PING, ROOTS_LIST, TOOLS_CHANGED, Empty, Root, Roots
from goent.domain.errors import GoentError
from goent.rpc import MethodNotFound

MAX_MESSAGE = 16 * 1024 * 1024


class ServerTrouble(GoentError):
    """The server cannot be used: not started, gone, or it makes no sense."""


class SessionForgotten(ServerTrouble):
    """The server is there, and has forgotten us: begin anew."""


class Line(Protocol):
    """One server. Refusals are `RpcError`, nonsense is `BadReply`, the rest `ServerTrouble`."""

    @property
    def last_words(self) -> str:
        """What it complained of, for the end of a sentence; empty if it did not."""
        ...

    async def request(self, method: str, params: object, *, name: str = "") -> Raw:
        """`name` is the tool's, for whoever routes by it. Cancelled, the server is told."""
        ...

    async def notify(self, method: str, params: object) -> None: ...

    async def begin(self, version: str, *, stateless: bool) -> None:
        """Speak this version from now on."""
        ...

    async def over(self) -> ServerTrouble:
        """Wait until the server is gone, and say how."""
        ...


class Callee:
    """What we do for a server."""

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots
        self.tools_changed = Event()

    async def request(self, method: str, params: Raw) -> object:
        if method == PING:
            return Empty()
        if method == ROOTS_LIST:
            return Roots(
                roots=tuple(Root(uri=path.as_uri(), name=path.name) for path in self._roots)
            )
        raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        if method == TOOLS_CHANGED:
            self.tools_changed.set()
