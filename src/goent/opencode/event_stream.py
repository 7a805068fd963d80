"""Follows the event stream of an OpenCode server and routes each event to its session.

One stream carries the events of all sessions, subagents' too. Without ACP it carries everything a
model says and does; beside ACP it brings what ACP leaves out: retries, errors and the questions of
subagents. When the stream breaks it is opened again, and open questions are looked up twice: on
connecting, and on the first event after that, which proves that nothing is missed from then on.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Protocol

import anyio
import httpx2
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from msgspec import UNSET, Raw, UnsetType

from goent.domain.errors import ProtocolError
from goent.opencode.server_api import (
    MessageInfo,
    MessagePart,
    OpenCodeClient,
    PendingQuestion,
    ServerData,
    ServerSession,
    SessionActivity,
    SessionFault,
    directory_header,
)
from goent.proc.concurrency import task_group

SILENCE_TIMEOUT_S = 90.0  # a heartbeat comes every ten seconds
RECONNECT_S = 0.2


class Connected(ServerData, frozen=True, kw_only=True):
    """The stream is open; under load, what happens at that moment may still be missed."""


class Heartbeat(ServerData, frozen=True, kw_only=True):
    """The stream is alive, though there is no news."""


class SessionCreated(ServerData, frozen=True, kw_only=True):
    """A session began; one with a parent is a subagent's."""

    info: ServerSession


class SessionStatus(ServerData, frozen=True, kw_only=True):
    """A session is busy, idle, or waiting to call its model again."""

    session: str
    status: SessionActivity


class SessionError(ServerData, frozen=True, kw_only=True):
    """Something failed, perhaps only for now. ACP does not pass on its status code."""

    error: SessionFault
    session: str = ""


class PermissionQuestion(PendingQuestion, frozen=True, kw_only=True):
    """A session waits for a permission."""


class SessionIdle(ServerData, frozen=True, kw_only=True):
    """A turn is over. An aborted turn sends this twice."""

    session: str


class MessageUpdated(ServerData, frozen=True, kw_only=True):
    """A message began or changed."""

    info: MessageInfo

    @property
    def session(self) -> str:
        return self.info.session


class PartUpdated(ServerData, frozen=True, kw_only=True):
    """A part of a message, as it is now."""

    part: MessagePart

    @property
    def session(self) -> str:
        return self.part.session


class PartDelta(
    ServerData,
    frozen=True,
    kw_only=True,
    rename={"session": "sessionID", "message": "messageID", "part": "partID"},
):
    """More text of a part that an earlier event introduced."""

    session: str
    message: str
    part: str
    field: str = ""
    delta: str = ""


MessageEvent = SessionIdle | MessageUpdated | PartUpdated | PartDelta
StreamSign = Connected | Heartbeat
ServerEvent = (
    StreamSign | SessionCreated | SessionStatus | SessionError | PermissionQuestion | MessageEvent
)
EventKinds = Mapping[str, type[ServerEvent]]

EVENTS_BESIDE_ACP: EventKinds = {
    "server.connected": Connected,
    "server.heartbeat": Heartbeat,
    "session.created": SessionCreated,
    "session.status": SessionStatus,
    "session.error": SessionError,
    "permission.asked": PermissionQuestion,
    "message.part.updated": PartUpdated,
}
ALL_EVENTS: EventKinds = {
    **EVENTS_BESIDE_ACP,
    "session.idle": SessionIdle,
    "message.updated": MessageUpdated,
    "message.part.delta": PartDelta,
}


class _Payload(ServerData, frozen=True, kw_only=True):
    type: str = ""
    properties: Raw | UnsetType = UNSET


class _GlobalEvent(ServerData, frozen=True, kw_only=True):
    payload: _Payload = _Payload()


async def stream_events(
    client: OpenCodeClient, kinds: EventKinds, directory: str = ""
) -> AsyncGenerator[tuple[str, ServerEvent | None]]:
    """Each event of a directory, or of all of them: as it came, and decoded if it is one of `kinds`.

    Ends when the stream ends; raises `ProtocolError` when it breaks or cannot be opened.
    """
    path, shape = ("/event", _Payload) if directory else ("/global/event", _GlobalEvent)
    async with aclosing(_stream_lines(client, path, directory)) as lines:
        async for line in lines:
            yield line, _decode_event(line, shape, kinds)


async def _stream_lines(client: OpenCodeClient, path: str, directory: str) -> AsyncGenerator[str]:
    timeout = httpx2.Timeout(10.0, read=SILENCE_TIMEOUT_S)
    headers = directory_header(directory)
    client.check_open(f"GET {path}")
    try:
        async with client.http.stream("GET", path, headers=headers, timeout=timeout) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                if line.startswith("data:"):
                    yield line[5:].strip()
    except httpx2.HTTPError as error:
        trouble = str(error) or type(error).__name__
        raise ProtocolError(f"OpenCode's event stream: {trouble}") from error


def _decode_event(
    data: str, shape: type[_GlobalEvent | _Payload], kinds: EventKinds
) -> ServerEvent | None:
    try:
        event = msgspec.json.decode(data, type=shape)
        payload = event.payload if isinstance(event, _GlobalEvent) else event
        kind = kinds.get(payload.type)
        if kind is None or payload.properties is UNSET:
            return None
        return msgspec.json.decode(payload.properties, type=kind)
    except msgspec.DecodeError:
        return None  # an event that has changed its shape is one we cannot use


class SessionListener(Protocol):
    """A session of ours, as its server's events reach it."""

    @property
    def directory(self) -> str: ...

    async def hear(self, event: ServerEvent) -> None: ...

    async def hear_question(self, question: PendingQuestion) -> None:
        """A question of the session or of a subagent. May take as long as its answer."""
        ...

    async def hear_tool_call(self, part: MessagePart) -> None:
        """A tool call of the session or of a subagent, as it is now."""
        ...


class EventRouter:
    """Follows one event stream and hands each event to the session it belongs to.

    `observe` sees every event first, as it came and decoded.
    """

    def __init__(
        self,
        client: OpenCodeClient,
        kinds: EventKinds,
        *,
        directory: str = "",
        observe: Callable[[str, ServerEvent | None], None] = lambda _line, _event: None,
    ) -> None:
        self.broken_since: float | None = None
        self._client = client
        self._tasks: TaskGroup | None = None  # answers questions while the router runs
        self._kinds = kinds
        self._directory = directory
        self._observe = observe
        self._sessions: dict[str, SessionListener] = {}
        self._parents: dict[str, str] = {}
        self._known_questions: set[str] = set()
        self._stream_confirmed = False  # the open stream has delivered an event

    def add(self, session: str, listener: SessionListener) -> None:
        self._sessions[session] = listener

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)
        self._parents = {
            child: parent for child, parent in self._parents.items() if parent != session
        }

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Follow the stream until cancelled, reconnecting; started when it is first connected."""
        connected = False
        async with task_group() as self._tasks:
            while True:
                with suppress(ProtocolError):
                    async with aclosing(
                        stream_events(self._client, self._kinds, self._directory)
                    ) as events:
                        async for line, event in events:
                            self._observe(line, event)
                            if event is None:
                                continue
                            self.broken_since = None
                            await self._route(event)
                            if isinstance(event, Connected) and not connected:
                                connected = True
                                task_status.started()
                self.broken_since = self.broken_since or anyio.current_time()
                await anyio.sleep(RECONNECT_S)

    async def _route_question(self, question: PendingQuestion) -> None:
        """Hand a question to its session, once."""
        if question.id in self._known_questions:
            return
        self._known_questions.add(question.id)
        if (listener := await self.owner(question.session)) and self._tasks:
            self._tasks.start_soon(listener.hear_question, question)

    async def owner(self, session: str) -> SessionListener | None:
        """Who listens for a session or, if it is a subagent's, for the one above it."""
        if session not in self._sessions and session not in self._parents:
            above = session
            with suppress(ProtocolError):
                while above and above not in self._sessions:
                    known = self._parents.get(above)
                    above = known or (await self._client.session(above)).parent or ""
                self._parents[session] = above
        return self._listener(session)

    async def _route(self, event: ServerEvent) -> None:
        if not self._stream_confirmed or isinstance(event, Connected):
            self._stream_confirmed = not isinstance(event, Connected)
            await self._catch_up()
        match event:
            case SessionCreated(info=info) if info.parent:
                self._parents[info.id] = self._parents.get(info.parent, info.parent)
            case Connected() | Heartbeat() | SessionCreated():
                pass
            case PermissionQuestion():
                await self._route_question(event)
            case SessionStatus(session=session):
                if listener := self._listener(session):
                    await listener.hear(event)
            case _:
                if isinstance(event, PartUpdated):
                    await self._route_tool_call(event.part)
                if listener := self._sessions.get(event.session):
                    await listener.hear(event)

    async def _route_tool_call(self, part: MessagePart) -> None:
        if part.type == "tool" and (listener := await self.owner(part.session)):
            await listener.hear_tool_call(part)

    async def _catch_up(self) -> None:
        """Look up what happened while the stream was down."""
        for listener in tuple(self._sessions.values()):
            await listener.hear(Connected())
        with suppress(ProtocolError):
            for directory in {listener.directory for listener in self._sessions.values()}:
                for question in await self._client.questions(directory):
                    await self._route_question(question)

    def _listener(self, session: str) -> SessionListener | None:
        return self._sessions.get(self._parents.get(session, session))
