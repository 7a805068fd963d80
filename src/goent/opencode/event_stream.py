"""Reads the event stream of an OpenCode server and routes each event to its session.

One stream per process carries the events of all sessions, most of them noise to us. A question of
a subagent's session is told here and nowhere else: ACP passes on only those of its own sessions.
Without ACP the stream also carries all that a model says and does.

The server's event stream carries the news of all sessions, subagents' too; each goes to the worker
that it belongs to. When the stream breaks it is opened again, and what may have been missed is asked:
when it begins, and once more when the first event proves that from now on nothing is missed.
"""

from collections.abc import AsyncGenerator, Mapping
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

SILENCE_S = 90.0  # seconds; a heartbeat comes every ten


class Connected(ServerData, frozen=True, kw_only=True):
    """The stream begins; under load, what happens at that moment may still be missed."""


class Heartbeat(ServerData, frozen=True, kw_only=True):
    """The stream is alive, though nobody has anything to say."""


class SessionCreated(ServerData, frozen=True, kw_only=True):
    """A session began; one with a parent is a subagent's."""

    info: ServerSession


class SessionStatus(ServerData, frozen=True, kw_only=True):
    """A session is busy, idle, or waits before it calls its model again."""

    session: str
    status: SessionActivity


class SessionError(ServerData, frozen=True, kw_only=True):
    """Something failed, perhaps not for good; ACP tells no status code."""

    error: SessionFault
    session: str = ""


class PermissionQuestion(PendingQuestion, frozen=True, kw_only=True):
    """A session may not go on until somebody answers."""


class SessionIdle(ServerData, frozen=True, kw_only=True):
    """A turn is over. One that was aborted says so twice."""

    session: str


class MessageUpdated(ServerData, frozen=True, kw_only=True):
    """A message began or changed."""

    info: MessageInfo

    @property
    def session(self) -> str:
        return self.info.session


class PartUpdated(ServerData, frozen=True, kw_only=True):
    """A piece of a message, as it is now."""

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
    """More of a text; which part it belongs to has been told before."""

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


async def listen(client: OpenCodeClient, kinds: EventKinds) -> AsyncGenerator[ServerEvent]:
    """The events of all directories until the stream breaks; raises `ProtocolError` if it cannot be had."""
    async with aclosing(_stream(client, "/global/event")) as lines:
        async for line in lines:
            if told := _read(line, _GlobalEvent, kinds):
                yield told


async def listen_in_directory(
    client: OpenCodeClient, directory: str, kinds: EventKinds
) -> AsyncGenerator[tuple[str, ServerEvent | None]]:
    """The same of one directory: each event as it came, and as one of the kinds if it is."""
    async with aclosing(_stream(client, "/event", directory)) as lines:
        async for line in lines:
            yield line, _read(line, _Payload, kinds)


async def _stream(client: OpenCodeClient, path: str, directory: str = "") -> AsyncGenerator[str]:
    timeout = httpx2.Timeout(10.0, read=SILENCE_S)
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


def _read(data: str, shape: type[_GlobalEvent | _Payload], kinds: EventKinds) -> ServerEvent | None:
    try:
        told = msgspec.json.decode(data, type=shape)
        payload = told.payload if isinstance(told, _GlobalEvent) else told
        kind = kinds.get(payload.type)
        if kind is None or payload.properties is UNSET:
            return None
        return msgspec.json.decode(payload.properties, type=kind)
    except msgspec.DecodeError:
        return None  # an event that has changed its shape is one we cannot use


RECONNECT_S = 0.2


class SessionListener(Protocol):
    """A session of ours, as the server sees it. `asked` may take as long as an answer does."""

    @property
    def directory(self) -> str: ...

    async def hear(self, told: ServerEvent) -> None: ...

    async def hear_question(self, question: PendingQuestion) -> None: ...

    async def hear_tool_call(self, part: MessagePart) -> None:
        """A tool call of its own or of a subagent's, as it is now."""
        ...


class EventRouter:
    """The listeners of one server, and its event stream; `kinds` are the events that they need."""

    def __init__(self, client: OpenCodeClient, tasks: TaskGroup, kinds: EventKinds) -> None:
        self.broken_since: float | None = None
        self._client = client
        self._tasks = tasks
        self._kinds = kinds
        self._sessions: dict[str, SessionListener] = {}
        self._parents: dict[str, str] = {}
        self._heard: set[str] = set()
        self._stream_confirmed = False  # the stream that is open has brought an event

    def add(self, session: str, listener: SessionListener) -> None:
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
            await anyio.sleep(RECONNECT_S)

    async def _hear(self, told: ServerEvent) -> None:
        if not self._stream_confirmed or isinstance(told, Connected):
            self._stream_confirmed = not isinstance(told, Connected)
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
                if isinstance(told, PartUpdated) and told.part.type == "tool":
                    await self._show(told.part)
                if listener := self._sessions.get(told.session):
                    await listener.hear(told)

    async def _show(self, part: MessagePart) -> None:
        await self._find_owner(part.session)
        if listener := self._listener(part.session):
            await listener.hear_tool_call(part)

    async def _catch_up(self) -> None:
        """What was said and asked while nobody listened."""
        for listener in tuple(self._sessions.values()):
            await listener.hear(Connected())
        with suppress(ProtocolError):
            for directory in {listener.directory for listener in self._sessions.values()}:
                for question in await self._client.questions(directory):
                    await self._hear_question(question)

    async def _hear_question(self, question: PendingQuestion) -> None:
        if question.id in self._heard:
            return
        self._heard.add(question.id)
        await self._find_owner(question.session)
        if listener := self._listener(question.session):
            self._tasks.start_soon(listener.hear_question, question)

    async def _find_owner(self, session: str) -> None:
        """Whose subagent a session is that nobody told of; one is asked about once."""
        if session in self._sessions or session in self._parents:
            return
        above = session
        with suppress(ProtocolError):
            while above and above not in self._sessions:
                above = self._parents.get(above) or (await self._client.session(above)).parent or ""
            self._parents[session] = above

    def _listener(self, session: str) -> SessionListener | None:
        return self._sessions.get(self._parents.get(session, session))
