"""Speaks the older ACP dialect, whose connections open with `acp/initialize`.

It has no plans, diffs or modes: actions are sent as progress, with the completed share of the plan,
and text as output. During a turn, progress is repeated, so that a client can tell work from a hang.
A cancelled session is closed: it returns its output, and takes no further prompt.
"""

import logging
from collections.abc import Iterator, Mapping
from itertools import count

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw

from goent.acp import client_messages
from goent.acp.message_parts import AcpMessage, AcpText, ContentBlock, wrap_blocks
from goent.acp_server.client_connection import AcpNotification, ClientConnection
from goent.acp_server.client_sessions import (
    AgentHost,
    ClientSessions,
    SessionRequest,
    read_prompt,
    session_directory,
)
from goent.acp_server.handshake import CAPABILITIES, agent_info
from goent.acp_server.v1_protocol import turn_usage
from goent.agent.agent_events import (
    AnyAgentEvent,
    Noticed,
    PlanChanged,
    PromptPart,
    Said,
    StateChanged,
    TextPart,
    ToolCalled,
)
from goent.agent.agent_ports import ToolQuestion
from goent.agent.agent_session import AgentSession
from goent.domain.errors import GoentError, RequestError
from goent.domain.types import PermissionAnswer, PlanEntry
from goent.rpc.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    InvalidParams,
    MethodNotFound,
    RpcError,
    decode_params,
)
from goent.rpc.rpc_peer import Peer

PROGRESS = "session/progress"
OUTPUT = "session/output"
PERMISSION_REQUEST = "permission/request"
HEARTBEAT_S = 5.0  # between progress notifications of a turn in which nothing happens
FINISHING_STEP = "finishing"  # the step, once the whole plan is done
COMPLETE_PERCENT = 100

_OUTCOMES: Mapping[str, PermissionAnswer] = {
    "allow": "allow_once",
    "allow_always": "allow_always",
    "deny": "reject",
}
_UNCHANGED_STEPS = ("idle", "notice", "waiting")
_HEARTBEAT_TEXTS = {"running": "the model is working", "waiting": "waiting for an answer"}
_STATE_TEXTS = {
    "running": "the turn has started",
    "waiting": "waiting for an answer",
    "idle": "done",
}


class LegacyOutput(AcpMessage, frozen=True, kw_only=True):
    """A piece of the agent's text."""

    session_id: str
    content: AcpText


class LegacyProgress(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The current step; `percent` is the completed share of the plan, if there is one."""

    session_id: str
    step: str
    percent: int | None = None
    message: str


class LegacyPermissionRequest(AcpMessage, frozen=True, kw_only=True):
    """A permission request; its answer is a notification."""

    session_id: str
    request_id: str
    tool: str
    input: Raw
    options: tuple[str, ...]


class LegacyPermissionAnswer(AcpMessage, frozen=True, kw_only=True):
    """The answer to a permission request."""

    request_id: str
    outcome: str = ""


class LegacyEncoder:
    """Encodes the events of one session; remembers the plan's progress and the calls' states."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._percent: int | None = None
        self._calls: dict[str, str] = {}
        self._running_calls: dict[str, tuple[ToolCalled, float]] = {}  # each with when it began
        self._state = "idle"
        self._state_since = 0.0

    def begin(self, session: AgentSession) -> None:
        return

    def encode_text(self, event: Said) -> AcpNotification | None:
        if event.role != "agent":
            return None
        return OUTPUT, LegacyOutput(session_id=self._id, content=AcpText(text=event.text))

    def encode(self, event: AnyAgentEvent, session: AgentSession) -> Iterator[AcpNotification]:
        match event:
            case PlanChanged(entries=entries):
                done, total = _plan_share(entries)
                self._percent = 100 * done // total if total else None
                yield self._progress(_current_step(entries), f"{done} of {total} done")
            case ToolCalled() if self._calls.get(event.id) != event.status:
                self._calls[event.id] = event.status
                self._track_call(event)
                yield self._progress(event.tool, f"{event.title}: {event.status}")
            case Noticed(text=text):
                yield self._progress("notice", text)
            case StateChanged(state=state):
                self._state, self._state_since = state, anyio.current_time()
                yield self._progress(state, _STATE_TEXTS[state])
                if state == "idle":
                    self._running_calls.clear()
                    # After a plan that is done, the next turn has another one, or none.
                    self._percent = None if self._percent == COMPLETE_PERCENT else self._percent
            case _:
                return

    def heartbeat(self) -> AcpNotification | None:
        """The current step and its duration, for when nothing has happened."""
        if self._state == "idle":
            return None
        now = anyio.current_time()
        if self._running_calls and self._state == "running":
            call, since = next(reversed(self._running_calls.values()))
            return self._progress(call.tool, f"{call.title}: running for {now - since:.0f} s")
        return self._progress(
            self._state, f"{_HEARTBEAT_TEXTS[self._state]}, for {now - self._state_since:.0f} s"
        )

    def _track_call(self, call: ToolCalled) -> None:
        now = anyio.current_time()
        if call.status == "running":
            self._running_calls[call.id] = (call, now)
        elif self._running_calls.pop(call.id, None):
            self._state_since = now  # the model works from here on

    def _progress(self, step: str, message: str) -> AcpNotification:
        if self._percent == COMPLETE_PERCENT and step not in _UNCHANGED_STEPS:
            step = FINISHING_STEP
        return PROGRESS, LegacyProgress(
            session_id=self._id, step=step, percent=self._percent, message=message
        )


class LegacyAdapter:
    """Asks by notifications, which an id connects with their answers."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._numbers = count(1)
        self._open: dict[str, _PendingQuestion] = {}
        self._encoders: dict[str, LegacyEncoder] = {}

    def encoder(self, session_id: str) -> LegacyEncoder:
        encoder = self._encoders[session_id] = LegacyEncoder(session_id)
        return encoder

    async def send_heartbeats(self, session_id: str, over: anyio.Event) -> None:
        """Reports the current step until the turn is over; skipped while the client does not read."""
        while True:
            with anyio.move_on_after(HEARTBEAT_S):
                await over.wait()
                return
            heartbeat = self._encoders[session_id].heartbeat()
            if heartbeat and not self._peer.is_crowded:
                self._peer.notify_now(*heartbeat)

    async def ask(self, session_id: str, question: ToolQuestion) -> PermissionAnswer | None:
        request_id = f"permission-{next(self._numbers)}"
        pending = self._open[request_id] = _PendingQuestion()
        asked = LegacyPermissionRequest(
            session_id=session_id,
            request_id=request_id,
            tool=question.tool,
            input=question.input,
            options=tuple(_OUTCOMES),
        )
        try:
            self._peer.notify_now(PERMISSION_REQUEST, asked)
            await pending.settled.wait()
        finally:
            del self._open[request_id]
        return pending.answer

    def settle(self, answer: LegacyPermissionAnswer) -> None:
        """Takes the first answer to an open question; an unknown outcome counts as a rejection."""
        pending = self._open.get(answer.request_id)
        if pending is not None and not pending.settled.is_set():
            pending.answer = _OUTCOMES.get(answer.outcome, "reject")
            pending.settled.set()


class _PendingQuestion:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.answer: PermissionAnswer = "reject"


def _plan_share(entries: tuple[PlanEntry, ...]) -> tuple[int, int]:
    left = [entry for entry in entries if entry.status != "cancelled"]
    return sum(entry.status == "completed" for entry in left), len(left)


def _current_step(entries: tuple[PlanEntry, ...]) -> str:
    return next((entry.text for entry in entries if entry.status == "in_progress"), "plan")


_log = logging.getLogger(__name__)


class LegacyWelcome(AcpMessage, frozen=True, kw_only=True):
    """The result of `acp/initialize`."""

    protocol_version: int
    capabilities: client_messages.AgentCapabilities
    agent_info: client_messages.Implementation


class LegacyCreateParams(AcpMessage, frozen=True, kw_only=True):
    """The parameters of `session/create`."""

    cwd: str
    model: str | None = None


class LegacyCreated(AcpMessage, frozen=True, kw_only=True):
    """The result of `session/create`."""

    session_id: str


class LegacyPrompt(AcpMessage, frozen=True, kw_only=True):
    """The parameters of `session/prompt`: a string, or content blocks."""

    session_id: str
    prompt: Raw


class LegacyTurnEnd(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The result of `session/prompt`, with the whole text of the turn."""

    stop_reason: str
    output: str
    usage: client_messages.TurnUsage
    cost_usd: float | None


class LegacyCancelled(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The result of `session/cancel`, with the text of the session's last turn."""

    session_id: str
    status: str = "cancelled"
    output: str


class SupportedVersions(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The `data` of a refusal."""

    supported_versions: tuple[int, ...] = (client_messages.PROTOCOL_VERSION,)


class LegacyConnection:
    """One connection in the dialect, from `acp/initialize` on."""

    def __init__(self, peer: Peer, host: AgentHost, tasks: TaskGroup) -> None:
        self._adapter = LegacyAdapter(peer)
        side = ClientConnection(peer, self._adapter, client_messages.ClientCapabilities(), tasks)
        self._sessions = ClientSessions(host, side, tasks)
        self._tasks = tasks
        self._outputs: dict[str, str] = {}
        self._cancelled: dict[str, anyio.Event] = {}

    async def request(self, method: str, params: Raw) -> object:
        match method:
            case "session/create":
                return await self._create(decode_params(params, LegacyCreateParams))
            case "session/prompt":
                return await self._prompt(decode_params(params, LegacyPrompt))
            case "session/cancel":
                return await self._cancel(
                    decode_params(params, client_messages.SessionParams).session_id
                )
            case _:
                raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        match method:
            case "permission/response":
                self._adapter.settle(decode_params(params, LegacyPermissionAnswer))
            case "session/cancel":
                session_id = decode_params(params, client_messages.SessionParams).session_id
                if session_id not in self._cancelled:
                    self._sessions.get(session_id)
                    self._tasks.start_soon(self._cancel_in_background, session_id)
            case _:
                return

    async def _create(self, asked: LegacyCreateParams) -> LegacyCreated:
        place = SessionRequest(cwd=session_directory(asked.cwd, "cwd"))
        opened = await self._sessions.new(place, model=asked.model)
        self._sessions.announce(opened)
        return LegacyCreated(session_id=opened.session.id)

    async def _prompt(self, asked: LegacyPrompt) -> LegacyTurnEnd:
        if asked.session_id in self._cancelled:
            raise RequestError(f"session {asked.session_id!r} was cancelled: create a new one")
        opened = self._sessions.get(asked.session_id)
        over = anyio.Event()
        self._tasks.start_soon(self._adapter.send_heartbeats, asked.session_id, over)
        try:
            end = await self._sessions.prompt(opened, _read_legacy_prompt(asked.prompt))
        finally:
            over.set()
        self._outputs[asked.session_id] = end.text
        return LegacyTurnEnd(
            stop_reason=end.stop_reason,
            output=end.text,
            usage=turn_usage(end.usage),
            cost_usd=None if end.cost_usd is None else float(end.cost_usd),
        )

    async def _cancel(self, session_id: str) -> LegacyCancelled:
        """Closes the session; a second call waits for the first, and returns the same."""
        done = self._cancelled.get(session_id)
        if done is None:
            turn = self._sessions.get(session_id).turn
            done = self._cancelled[session_id] = anyio.Event()
            try:
                await self._sessions.close(session_id)
            finally:
                if turn is not None:
                    self._outputs[session_id] = turn.text()
                done.set()
        await done.wait()
        return LegacyCancelled(session_id=session_id, output=self._outputs.get(session_id, ""))

    async def _cancel_in_background(self, session_id: str) -> None:
        try:
            await self._cancel(session_id)
        except GoentError as error:
            _log.warning("cannot cancel session %r: %s", session_id, error)


class RefusedConnection:
    """A connection that asked for an unsupported version."""

    async def request(self, method: str, params: Raw) -> object:
        raise RpcError(
            INVALID_REQUEST, f"{method!r}: no protocol version was agreed on", SupportedVersions()
        )

    async def notification(self, method: str, params: Raw) -> None:
        return


def legacy_welcome(version: str) -> LegacyWelcome:
    return LegacyWelcome(
        protocol_version=client_messages.PROTOCOL_VERSION,
        capabilities=CAPABILITIES,
        agent_info=agent_info(version),
    )


def version_mismatch(asked: Raw) -> RpcError:
    return RpcError(
        INVALID_PARAMS,
        f"protocol version {bytes(asked).decode() or 'none'!r} is not supported; "
        f"use {client_messages.PROTOCOL_VERSION}",
        SupportedVersions(),
    )


def _read_legacy_prompt(prompt: Raw) -> tuple[PromptPart, ...]:
    try:
        if bytes(prompt)[:1] == b'"':
            return (TextPart(text=msgspec.json.decode(prompt, type=str)),)
        return read_prompt(msgspec.json.decode(wrap_blocks(prompt), type=tuple[ContentBlock, ...]))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(f"prompt: {error}; send a string or content blocks") from error
