"""In which order, and how fast, is a client told what happens in a session?

Nothing is told before the reply that names the session, and everything before the reply that ends
a turn. A client that reads slowly slows the session down; one that stops reading for a while gets
the pieces of a message in one, so that a model need not wait for a window to be redrawn.
"""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from goent.agent.events import AnyAgentEvent, Said, ToolCalled
from goent.agent.session import AgentSession
from goent.rpc import Peer

PATIENCE = 0.05  # seconds without reading, after which a client counts as slow
MAX_KEPT = 256 * 1024  # characters of text kept for a slow client; then the session waits
MAX_EVENTS = 256  # the same for what cannot be put together

_log = logging.getLogger(__name__)

Notice = tuple[str, object]  # a method and its parameters


class Encoder(Protocol):
    """How one version of the protocol words the events of one session."""

    def begin(self, session: AgentSession) -> None:
        """A reply tells the client of the session, as it is now."""
        ...

    def said(self, event: Said) -> Notice | None:
        """The same as `encode`, for what comes by the thousand."""
        ...

    def encode(self, event: AnyAgentEvent, session: AgentSession) -> Iterable[Notice]: ...


class _Gathered(Struct):
    """Pieces of one message, which become one."""

    first: Said
    parts: list[str]

    def takes(self, event: Said) -> bool:
        return self.first.message == event.message and self.first.role == event.role

    def whole(self) -> Said:
        return Said(message=self.first.message, role=self.first.role, text="".join(self.parts))


class Stream:
    """What one session tells. It is held until the client knows the session."""

    def __init__(self, peer: Peer, encoder: Encoder, tasks: TaskGroup) -> None:
        self._peer = peer
        self._encoder = encoder
        self._tasks = tasks
        self._session: AgentSession | None = None
        self._kept: deque[AnyAgentEvent | _Gathered] = deque()
        self._size = 0
        self._draining = False
        self._eased = anyio.Event()

    async def tell(self, event: AnyAgentEvent) -> None:
        if self._peer.crowded and not self._kept:
            with anyio.move_on_after(PATIENCE):
                await self._peer.room()
        if self._session is None or self._kept or self._peer.crowded:
            await self._keep(event)
        else:
            self._say(event, self._session)

    async def replay(self, event: AnyAgentEvent, session: AgentSession) -> None:
        """Tell what is long past: it comes before everything that is held."""
        self._say(event, session)
        if self._peer.crowded:
            await self._peer.room()

    def release(self, session: AgentSession) -> None:
        """The reply that names the session goes out next: what comes from now on may be told."""
        self._session = session
        self._encoder.begin(session)
        if self._kept:
            self._start_draining(session)

    async def flushed(self) -> None:
        """Wait until all that was told is on its way. What is held is not waited for."""
        while self._kept and self._session is not None:
            await self._eased.wait()

    async def _keep(self, event: AnyAgentEvent) -> None:
        self._gather(event, self._kept[-1] if self._kept else None)
        if self._session is not None:
            self._start_draining(self._session)
            while self._size > MAX_KEPT or len(self._kept) > MAX_EVENTS:
                await self._eased.wait()

    def _gather(self, event: AnyAgentEvent, last: AnyAgentEvent | _Gathered | None) -> None:
        """Pieces of a message become one, and of a tool call only the latest word is kept."""
        match event, last:
            case Said(text=text), _Gathered() if last.takes(event):
                self._size += len(text)
                last.parts.append(text)
            case Said(text=text), _:
                self._size += len(text)
                self._kept.append(_Gathered(first=event, parts=[text]))
            case ToolCalled(), ToolCalled() if last.id == event.id:
                self._kept[-1] = event
            case _:
                self._kept.append(event)

    def _start_draining(self, session: AgentSession) -> None:
        if not self._draining:
            self._draining = True
            self._tasks.start_soon(self._drain, session)

    async def _drain(self, session: AgentSession) -> None:
        try:
            while self._kept:
                await self._peer.room()
                event = self._kept.popleft()
                if isinstance(event, _Gathered):
                    event = event.whole()
                    self._size -= len(event.text)
                self._say_or_log(event, session)
                self._ease()
        finally:
            self._draining = False
            self._ease()

    def _say_or_log(self, event: AnyAgentEvent, session: AgentSession) -> None:
        try:
            self._say(event, session)
        except Exception:  # noqa: BLE001 (whoever told it has gone on: the next one may do)
            _log.exception("%s of session %r was not told", type(event).__name__, session.id)

    def _say(self, event: AnyAgentEvent, session: AgentSession) -> None:
        if type(event) is Said:
            notice = self._encoder.said(event)
            if notice is not None:
                self._peer.post(*notice)
            return
        for method, params in self._encoder.encode(event, session):
            self._peer.post(method, params)

    def _ease(self) -> None:
        self._eased.set()
        self._eased = anyio.Event()
