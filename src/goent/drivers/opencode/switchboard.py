"""Whose session is it that OpenCode's server speaks of?

The server's event stream carries the news of all sessions, subagents' too; each goes to the worker
that it belongs to. When the stream breaks it is opened again, and what may have been missed is asked:
when it begins, and once more when the first event proves that from now on nothing is missed.
"""

from contextlib import aclosing, suppress
from typing import Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from goent.domain.errors import ProtocolError
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.events import (
    Connected,
    Heartbeat,
    Kinds,
    PartTold,
    PermissionQuestion,
    SessionCreated,
    SessionStatus,
    Told,
    listen,
)
from goent.drivers.opencode.shapes import Part, Question

RECONNECT = 0.2


class Listener(Protocol):
    """A session of ours, as the server sees it. `asked` may take as long as an answer does."""

    @property
    def directory(self) -> str: ...

    async def hear(self, told: Told) -> None: ...

    async def asked(self, question: Question) -> None: ...

    async def saw(self, part: Part) -> None:
        """A tool call of its own or of a subagent's, as it is now."""
        ...


class Switchboard:
    """The listeners of one server, and its event stream; `kinds` are the events that they need."""

    def __init__(self, client: Client, tasks: TaskGroup, kinds: Kinds) -> None:
        self.broken_since: float | None = None
        self._client = client
        self._tasks = tasks
        self._kinds = kinds
        self._sessions: dict[str, Listener] = {}
        self._parents: dict[str, str] = {}
        self._heard: set[str] = set()
        self._proven = False  # the stream that is open has brought an event

    def add(self, session: str, listener: Listener) -> None:
        self._sessions[session] = listener

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)
        self._parents = {
            child: parent for child, parent in self._parents.items() if parent != session
        }

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Listen for as long as the task lives; started when the stream is up."""
        up = False
        while True:
            with suppress(ProtocolError):
                async with aclosing(listen(self._client, self._kinds)) as events:
                    async for told in events:
                        self.broken_since = None
                        await self._hear(told)
                        if isinstance(told, Connected) and not up:
                            up = True
                            task_status.started()
            self.broken_since = self.broken_since or anyio.current_time()
            await anyio.sleep(RECONNECT)

    async def _hear(self, told: Told) -> None:
        if not self._proven or isinstance(told, Connected):
            self._proven = not isinstance(told, Connected)
            await self._catch_up()
        match told:
            case SessionCreated(info=info) if info.parent:
                self._parents[info.id] = self._parents.get(info.parent, info.parent)
            case Connected() | Heartbeat() | SessionCreated():
                pass
            case PermissionQuestion():
                await self._hear_question(told)
            case SessionStatus(session=session):
                if listener := self._listener(session):
                    await listener.hear(told)
            case _:
                if isinstance(told, PartTold) and told.part.type == "tool":
                    await self._show(told.part)
                if listener := self._sessions.get(told.session):
                    await listener.hear(told)

    async def _show(self, part: Part) -> None:
        await self._learn(part.session)
        if listener := self._listener(part.session):
            await listener.saw(part)

    async def _catch_up(self) -> None:
        """What was said and asked while nobody listened."""
        for listener in tuple(self._sessions.values()):
            await listener.hear(Connected())
        with suppress(ProtocolError):
            for directory in {listener.directory for listener in self._sessions.values()}:
                for question in await self._client.questions(directory):
                    await self._hear_question(question)

    async def _hear_question(self, question: Question) -> None:
        if question.id in self._heard:
            return
        self._heard.add(question.id)
        await self._learn(question.session)
        if listener := self._listener(question.session):
            self._tasks.start_soon(listener.asked, question)

    async def _learn(self, session: str) -> None:
        """Whose subagent a session is that nobody told of; one is asked about once."""
        if session in self._sessions or session in self._parents:
            return
        above = session
        with suppress(ProtocolError):
            while above and above not in self._sessions:
                above = self._parents.get(above) or (await self._client.session(above)).parent or ""
            self._parents[session] = above

    def _listener(self, session: str) -> Listener | None:
        return self._sessions.get(self._parents.get(session, session))
