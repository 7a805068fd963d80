"""What does the older dialect let a client ask for?

A cancelled session is over there: it says what it had done, and takes no further prompt.
"""

import logging

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw

from goent.acp.base import Message
from goent.acp.content import ContentBlock, wrap_blocks
from goent.acp.messages import (
    PROTOCOL_VERSION,
    AgentCapabilities,
    ClientCapabilities,
    Implementation,
    SessionParams,
    TurnUsage,
)
from goent.agent.content import Given, Words
from goent.domain.errors import GoentError, RequestError
from goent.frontends.acp.client import ClientSide
from goent.frontends.acp.dialect import DialectAsking, PermissionAnswered
from goent.frontends.acp.given import directory, given
from goent.frontends.acp.hello import CAPABILITIES, who
from goent.frontends.acp.host import AgentHost
from goent.frontends.acp.sessions import Sessions, Wanted
from goent.frontends.acp.v1_methods import usage
from goent.rpc import InvalidParams, MethodNotFound, Peer, RpcError, decode_params
from goent.rpc.errors import INVALID_PARAMS, INVALID_REQUEST

_log = logging.getLogger(__name__)


class DialectWelcome(Message, frozen=True, kw_only=True):
    """Our first words."""

    protocol_version: int
    capabilities: AgentCapabilities
    agent_info: Implementation


class CreateParams(Message, frozen=True, kw_only=True):
    """Begin a session."""

    cwd: str
    model: str | None = None


class Created(Message, frozen=True, kw_only=True):
    """It has begun."""

    session_id: str


class DialectPrompt(Message, frozen=True, kw_only=True):
    """Take a turn: words, or blocks."""

    session_id: str
    prompt: Raw


class DialectEnd(Message, frozen=True, kw_only=True, omit_defaults=False):
    """How the turn ended, and all that was said in it."""

    stop_reason: str
    output: str
    usage: TurnUsage
    cost_usd: float | None


class DialectCancelled(Message, frozen=True, kw_only=True, omit_defaults=False):
    """The session is over; this is what it had said."""

    session_id: str
    status: str = "cancelled"
    output: str


class Versions(Message, frozen=True, kw_only=True, omit_defaults=False):
    """The `data` of a refusal: which versions would do."""

    supported_versions: tuple[int, ...] = (PROTOCOL_VERSION,)


class Dialect:
    """One connection that speaks it, from `acp/initialize` on."""

    def __init__(self, peer: Peer, host: AgentHost, tasks: TaskGroup) -> None:
        self._asking = DialectAsking(peer)
        side = ClientSide(peer, self._asking, ClientCapabilities(), tasks)
        self._sessions = Sessions(host, side, tasks)
        self._tasks = tasks
        self._outputs: dict[str, str] = {}
        self._cancelled: dict[str, anyio.Event] = {}

    async def request(self, method: str, params: Raw) -> object:
        match method:
            case "session/create":
                return await self._create(decode_params(params, CreateParams))
            case "session/prompt":
                return await self._prompt(decode_params(params, DialectPrompt))
            case "session/cancel":
                return await self._cancel(decode_params(params, SessionParams).session_id)
            case _:
                raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        match method:
            case "permission/response":
                self._asking.answered(decode_params(params, PermissionAnswered))
            case "session/cancel":
                session_id = decode_params(params, SessionParams).session_id
                if session_id not in self._cancelled:
                    self._sessions.get(session_id)
                    self._tasks.start_soon(self._cancel_unheard, session_id)
            case _:
                return

    async def _create(self, asked: CreateParams) -> Created:
        place = Wanted(cwd=directory(asked.cwd, "cwd"))
        opened = await self._sessions.new(place, model=asked.model)
        self._sessions.introduce(opened)
        return Created(session_id=opened.session.id)

    async def _prompt(self, asked: DialectPrompt) -> DialectEnd:
        if asked.session_id in self._cancelled:
            raise RequestError(f"session {asked.session_id!r} was cancelled: create a new one")
        opened = self._sessions.get(asked.session_id)
        over = anyio.Event()
        self._tasks.start_soon(self._asking.keep_telling, asked.session_id, over)
        try:
            end = await self._sessions.prompt(opened, _given(asked.prompt))
        finally:
            over.set()
        self._outputs[asked.session_id] = end.text
        return DialectEnd(
            stop_reason=end.stop_reason,
            output=end.text,
            usage=usage(end.usage),
            cost_usd=None if end.cost_usd is None else float(end.cost_usd),
        )

    async def _cancel(self, session_id: str) -> DialectCancelled:
        """The second one to ask hears the same as the first."""
        done = self._cancelled.get(session_id)
        if done is None:
            turn = self._sessions.get(session_id).turn
            done = self._cancelled[session_id] = anyio.Event()
            try:
                await self._sessions.close(session_id)
            finally:
                if turn is not None:
                    self._outputs[session_id] = turn.said()
                done.set()
        await done.wait()
        return DialectCancelled(session_id=session_id, output=self._outputs.get(session_id, ""))

    async def _cancel_unheard(self, session_id: str) -> None:
        try:
            await self._cancel(session_id)
        except GoentError as error:
            _log.warning("session %r was not cancelled well: %s", session_id, error)


class Refusing:
    """A connection that asked for a version which is not spoken."""

    async def request(self, method: str, params: Raw) -> object:
        raise RpcError(
            INVALID_REQUEST, f"{method!r} refused: no version was agreed upon", Versions()
        )

    async def notification(self, method: str, params: Raw) -> None:
        return


def welcome(version: str) -> DialectWelcome:
    return DialectWelcome(
        protocol_version=PROTOCOL_VERSION, capabilities=CAPABILITIES, agent_info=who(version)
    )


def mismatch(asked: Raw) -> RpcError:
    return RpcError(
        INVALID_PARAMS,
        f"protocol version {bytes(asked).decode() or 'none'!r} is not spoken here, "
        f"only {PROTOCOL_VERSION}",
        Versions(),
    )


def _given(prompt: Raw) -> tuple[Given, ...]:
    try:
        if bytes(prompt)[:1] == b'"':
            return (Words(text=msgspec.json.decode(prompt, type=str)),)
        return given(msgspec.json.decode(wrap_blocks(prompt), type=tuple[ContentBlock, ...]))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(f"prompt: {error}; send a string or content blocks") from error
