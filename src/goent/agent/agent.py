"""Which sessions are there, and how does one come about?"""

from collections.abc import Sequence
from pathlib import Path

from goent.agent.ports import Client, ServerSpec
from goent.agent.session import AgentSession
from goent.domain.errors import RequestError
from goent.domain.types import Value


class UnknownSession(RequestError):
    """No session has that id."""


class SessionBusy(RequestError):
    """A turn of the session is under way."""


class AuthRequired(RequestError):
    """No provider has a key; the message says how to give one."""


class SessionSummary(Value, frozen=True, kw_only=True):
    """A session as a list shows it; `updated_at` is ISO 8601, UTC."""

    id: str
    cwd: str
    title: str
    updated_at: str


class Agent:
    """All sessions of one connection. They end with it, and are kept for the next."""

    async def ready(self) -> None:
        """Raises `AuthRequired` if there is no provider that could be asked."""
        raise NotImplementedError

    async def new(
        self,
        client: Client,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[ServerSpec] = (),
        model: str | None = None,
    ) -> AgentSession:
        raise NotImplementedError

    async def open(
        self,
        client: Client,
        session: str,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[ServerSpec] = (),
    ) -> AgentSession:
        """A session of this connection, or one that was kept. Raises `UnknownSession`."""
        raise NotImplementedError

    def get(self, session: str) -> AgentSession:
        """One that is open in this connection. Raises `UnknownSession`."""
        raise NotImplementedError

    async def listed(
        self, *, cwd: str | None = None, cursor: str | None = None
    ) -> tuple[Sequence[SessionSummary], str | None]:
        """The newest first, a page of them, and where the next page begins."""
        raise NotImplementedError

    async def close(self, session: str) -> None:
        """End its turn and what it has running. It is kept. Raises `UnknownSession`."""
        raise NotImplementedError

    async def delete(self, session: str) -> None:
        """Close it and forget it. An unknown one is no error."""
        raise NotImplementedError
