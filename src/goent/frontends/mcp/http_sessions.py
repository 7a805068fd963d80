"""The sessions of clients that come by HTTP: when there are too many, the idlest one ends.

Few clients delete their session before they go, and a new one must not wait until those have timed
out. A client whose session was ended is told 404, and opens another, as the protocol says.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

HEADER = b"mcp-session-id"
NOT_FOUND = 404

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Inside = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass
class Session:
    """A client's session."""

    under_way: Counter[str] = field(default_factory=Counter[str])  # by HTTP method
    used_at: float = field(default_factory=anyio.current_time)

    @property
    def idleness(self) -> tuple[bool, float]:
        """Ordered: whose client has gone comes before whose client still listens."""
        return self.listens, self.used_at

    @property
    def listens(self) -> bool:
        return self.under_way["GET"] > 0

    @property
    def at_work(self) -> bool:
        return self.under_way["POST"] > 0


class Sessions:
    """Passes requests on, and ends the idlest session when there is no room for another."""

    def __init__(self, inside: Inside, most: int, forget: Callable[[str], None]) -> None:
        self._inside = inside
        self._most = most
        self._forget = forget
        self._open: dict[str, Session] = {}
        self._opening = 0
        self._room = anyio.Lock()

    async def handle(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        name = dict(scope["headers"]).get(HEADER, b"").decode("latin-1")
        if name:
            await self._within(name, scope, receive, send)
        elif b'"initialize"' in body:
            await self._greeted(scope, receive, send)
        else:
            await self._inside(scope, receive, send)

    async def _within(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        async def watch(message: Message) -> None:
            if message.get("status") == NOT_FOUND:
                self._drop(name)
            await send(message)

        with self._in_use(name, scope["method"]):
            await self._inside(scope, receive, watch)
        if scope["method"] == "DELETE":
            self._drop(name)

    async def _greeted(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._room:
            if len(self._open) + self._opening >= self._most:
                await self._end_idlest(scope)
            self._opening += 1
        answered = False

        async def watch(message: Message) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._opening -= 1
                name = dict(message["headers"]).get(HEADER, b"").decode("latin-1")
                if name:
                    self._open[name] = Session()
            await send(message)

        try:
            await self._inside(scope, receive, watch)
        finally:
            if not answered:
                self._opening -= 1

    async def _end_idlest(self, scope: Scope) -> None:
        """None, if all are at work: then the newcomer is refused."""
        idle = {name: session for name, session in self._open.items() if not session.at_work}
        if not idle:
            return
        name = min(idle, key=lambda each: idle[each].idleness)
        self._drop(name)
        delete = {**scope, "method": "DELETE", "headers": [(HEADER, name.encode("latin-1"))]}
        await self._inside(delete, _nothing_more, _unheard)

    @contextmanager
    def _in_use(self, name: str, method: str) -> Generator[None]:
        session = self._open.get(name, Session())
        session.under_way[method] += 1
        session.used_at = anyio.current_time()
        try:
            yield
        finally:
            session.under_way[method] -= 1
            session.used_at = anyio.current_time()

    def _drop(self, name: str) -> None:
        self._open.pop(name, None)
        self._forget(name)


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(_: Message) -> None: ...
