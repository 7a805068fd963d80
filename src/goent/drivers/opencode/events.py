"""What does OpenCode's server tell unasked, and which of it do we need?

One stream per process carries the events of all sessions, most of them noise to us. A question of
a subagent's session is told here and nowhere else: ACP passes on only those of its own sessions.
Without ACP the stream also carries all that a model says and does.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import httpx2
import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.domain.errors import ProtocolError
from goent.drivers.opencode.client import Client, in_directory
from goent.drivers.opencode.shapes import (
    Activity,
    MessageInfo,
    Part,
    Question,
    Reading,
    SessionFault,
    SessionInfo,
)

SILENCE = 90.0  # seconds; a heartbeat comes every ten


class Connected(Reading, frozen=True, kw_only=True):
    """The stream begins; under load, what happens at that moment may still be missed."""


class Heartbeat(Reading, frozen=True, kw_only=True):
    """The stream is alive, though nobody has anything to say."""


class SessionCreated(Reading, frozen=True, kw_only=True):
    """A session began; one with a parent is a subagent's."""

    info: SessionInfo


class SessionStatus(Reading, frozen=True, kw_only=True):
    """A session is busy, idle, or waits before it calls its model again."""

    session: str
    status: Activity


class SessionError(Reading, frozen=True, kw_only=True):
    """Something failed, perhaps not for good; ACP tells no status code."""

    error: SessionFault
    session: str = ""


class PermissionQuestion(Question, frozen=True, kw_only=True):
    """A session may not go on until somebody answers."""


class SessionIdle(Reading, frozen=True, kw_only=True):
    """A turn is over. One that was aborted says so twice."""

    session: str


class MessageTold(Reading, frozen=True, kw_only=True):
    """A message began or changed."""

    info: MessageInfo

    @property
    def session(self) -> str:
        return self.info.session


class PartTold(Reading, frozen=True, kw_only=True):
    """A piece of a message, as it is now."""

    part: Part

    @property
    def session(self) -> str:
        return self.part.session


class PartGrew(
    Reading,
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


Spoken = SessionIdle | MessageTold | PartTold | PartGrew
Sign = Connected | Heartbeat
Told = Sign | SessionCreated | SessionStatus | SessionError | PermissionQuestion | Spoken
Kinds = Mapping[str, type[Told]]

BESIDE_ACP: Kinds = {
    "server.connected": Connected,
    "server.heartbeat": Heartbeat,
    "session.created": SessionCreated,
    "session.status": SessionStatus,
    "session.error": SessionError,
    "permission.asked": PermissionQuestion,
    "message.part.updated": PartTold,
}
WHOLE: Kinds = {
    **BESIDE_ACP,
    "session.idle": SessionIdle,
    "message.updated": MessageTold,
    "message.part.delta": PartGrew,
}


class _Payload(Reading, frozen=True, kw_only=True):
    type: str = ""
    properties: Raw | UnsetType = UNSET


class _Event(Reading, frozen=True, kw_only=True):
    payload: _Payload = _Payload()


async def listen(client: Client, kinds: Kinds) -> AsyncGenerator[Told]:
    """The events of all directories until the stream breaks; raises `ProtocolError` if it cannot be had."""
    async with aclosing(_stream(client, "/global/event")) as lines:
        async for line in lines:
            if told := _read(line, _Event, kinds):
                yield told


async def listen_in(
    client: Client, directory: str, kinds: Kinds
) -> AsyncGenerator[tuple[str, Told | None]]:
    """The same of one directory: each event as it came, and as one of the kinds if it is."""
    async with aclosing(_stream(client, "/event", directory)) as lines:
        async for line in lines:
            yield line, _read(line, _Payload, kinds)


async def _stream(client: Client, path: str, directory: str = "") -> AsyncGenerator[str]:
    timeout = httpx2.Timeout(10.0, read=SILENCE)
    headers = in_directory(directory)
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


def _read(data: str, shape: type[_Event | _Payload], kinds: Kinds) -> Told | None:
    try:
        told = msgspec.json.decode(data, type=shape)
        payload = told.payload if isinstance(told, _Event) else told
        kind = kinds.get(payload.type)
        if kind is None or payload.properties is UNSET:
            return None
        return msgspec.json.decode(payload.properties, type=kind)
    except msgspec.DecodeError:
        return None  # an event that has changed its shape is one we cannot use
