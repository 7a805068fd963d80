"""What does OpenCode's server tell unasked, and which of it do we need?

One stream per process carries the events of all sessions, most of them noise to us. A question of
a subagent's session is told here and nowhere else: ACP passes on only those of its own sessions.
"""

from collections.abc import AsyncGenerator

import httpx2
import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.domain.errors import ProtocolError
from goent.drivers.opencode.inner import Inner, Question, Reading, SessionInfo

SILENCE = 90.0  # seconds; a heartbeat comes every ten


class Connected(Reading, frozen=True, kw_only=True):
    """The stream is up: nothing from here on is missed."""


class SessionCreated(Reading, frozen=True, kw_only=True):
    """A session began; one with a parent is a subagent's."""

    info: SessionInfo


class RetryStatus(Reading, frozen=True, kw_only=True):
    """`next` is when the model is called again, in milliseconds since the epoch."""

    type: str
    attempt: int = 0
    message: str = ""
    next: float = 0


class SessionStatus(Reading, frozen=True, kw_only=True):
    """A session is busy, idle, or waits before it calls its model again."""

    session: str
    status: RetryStatus


class ErrorData(Reading, frozen=True, kw_only=True, rename={"status": "statusCode"}):
    """What the provider said."""

    message: str = ""
    status: int | None = None


class SessionFault(Reading, frozen=True, kw_only=True):
    """An error by OpenCode's name for it."""

    name: str
    data: ErrorData = ErrorData()


class SessionError(Reading, frozen=True, kw_only=True):
    """Something failed, perhaps not for good; ACP tells no status code."""

    error: SessionFault
    session: str = ""


class PermissionQuestion(Question, frozen=True, kw_only=True):
    """A session may not go on until somebody answers."""


Told = Connected | SessionCreated | SessionStatus | SessionError | PermissionQuestion

_KINDS: dict[str, type[Told]] = {
    "server.connected": Connected,
    "session.created": SessionCreated,
    "session.status": SessionStatus,
    "session.error": SessionError,
    "permission.asked": PermissionQuestion,
}


class _Payload(Reading, frozen=True, kw_only=True):
    type: str = ""
    properties: Raw | UnsetType = UNSET


class _Event(Reading, frozen=True, kw_only=True):
    payload: _Payload = _Payload()


async def listen(inner: Inner) -> AsyncGenerator[Told]:
    """The events until the stream breaks; raises `ProtocolError` if it cannot be had."""
    timeout = httpx2.Timeout(10.0, read=SILENCE)
    try:
        async with inner.client.stream("GET", "/global/event", timeout=timeout) as reply:
            reply.raise_for_status()
            async for line in reply.aiter_lines():
                if line.startswith("data:") and (told := _read(line[5:])):
                    yield told
    except httpx2.HTTPError as error:
        trouble = str(error) or type(error).__name__
        raise ProtocolError(f"OpenCode's event stream: {trouble}") from error


def _read(data: str) -> Told | None:
    try:
        payload = msgspec.json.decode(data, type=_Event).payload
        kind = _KINDS.get(payload.type)
        if kind is None or payload.properties is UNSET:
            return None
        return msgspec.json.decode(payload.properties, type=kind)
    except msgspec.DecodeError:
        return None  # an event that has changed its shape is one we cannot use
