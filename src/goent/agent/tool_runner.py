"""Runs the tool calls of one model answer: with permission, in parallel where safe, reported."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, get_args

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from goent.agent.agent_events import (
    AnyAgentEvent,
    ImagePart,
    StateChanged,
    TextPart,
    ToolCalled,
    ToolKind,
)
from goent.agent.agent_ports import (
    AgentTool,
    PermissionNeed,
    Rejection,
    ToolIntent,
    ToolInvocation,
    ToolMistake,
    ToolOutcome,
    ToolPermission,
    ToolProgress,
    ToolQuestion,
)
from goent.agent.session_records import AnyRecord, Planned, Ran
from goent.domain.errors import GoesOnElsewhere, RequestError
from goent.domain.types import PermissionAnswer, Value
from goent.permissions.permission_rules import wildcard_matches
from goent.providers.model_messages import MessageToolUse

PermissionMode = Literal["ask", "accept-edits", "plan"]
PERMISSION_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
READ_ONLY_KINDS: frozenset[ToolKind] = frozenset({"read", "search", "think", "fetch"})
PLAN_MODE_REFUSAL = (
    "The session is in plan mode: nothing may be changed or run. Say what you would do; the user "
    "leaves plan mode to have it done."
)


class CallVerdict(Value, frozen=True, kw_only=True):
    """`reason` is what the model is told of a no."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""


class SessionPermissions:
    """What one session's user has decided so far."""

    def __init__(self, mode: PermissionMode = "ask") -> None:
        self.mode: PermissionMode = mode
        self._words: set[tuple[ToolPermission, str]] = set()  # granted as they are
        self._wildcards: set[tuple[ToolPermission, str]] = set()

    def set_mode(self, mode: str) -> None:
        for known in PERMISSION_MODES:
            if known == mode:
                self.mode = known
                return
        raise RequestError(f"there is no mode {mode!r}; one of: {', '.join(PERMISSION_MODES)}")

    def judge(self, intent: ToolIntent) -> CallVerdict:
        need = intent.need
        if need is None:
            return CallVerdict(action="allow")
        if self.mode == "plan" and intent.kind not in READ_ONLY_KINDS:
            return CallVerdict(action="deny", reason=PLAN_MODE_REFUSAL)
        if self.mode == "accept-edits" and need.permission == "edit" and not need.reason:
            return CallVerdict(action="allow")
        covered = need.patterns and all(self._covers(need, pattern) for pattern in need.patterns)
        return CallVerdict(action="allow" if covered else "ask")

    def grant(self, need: PermissionNeed) -> None:
        """An "always", for the rest of the session."""
        kept = self._words if need.exact else self._wildcards
        kept.update((need.permission, words) for words in need.always or need.patterns)

    def _covers(self, need: PermissionNeed, pattern: str) -> bool:
        words = (need.permission, pattern)
        if words in self._words or words in self._wildcards:
            return True
        return not need.exact and any(
            permission == need.permission and wildcard_matches(wildcard, pattern)
            for permission, wildcard in self._wildcards
        )


MAX_IDENTICAL_CALLS = 3  # times that the same call in a row is run; the next one is not
IDENTICAL_CALLS_TO_STOP = 6  # times after which the turn ends
REFUSED_TEXT = (
    "The user did not allow this. Do not try the same by another way: go on without it, or say what "
    "you need."
)
NO_ANSWER_TEXT = "Nobody answered the question whether this may be done, so it was not."
REPEATED_CALL_TEXT = (
    "This very call has been made {times} times in a row, with the same arguments: it is not made "
    "again. Use what it told you, or do something else."
)
CANCELLED_TEXT = "The user cancelled the turn; what this call had begun may have had an effect."
MAX_SHOWN_CHARS = 20_000  # characters of a result that a client is sent

log = logging.getLogger(__name__)

SendEvent = Callable[[AnyAgentEvent], Awaitable[None]]
AskUser = Callable[[ToolQuestion], Awaitable[PermissionAnswer | Rejection | None]]
KeepRecords = Callable[[Sequence[AnyRecord]], Awaitable[None]]


class Repetition:
    """Is the model going in circles?"""

    def __init__(self) -> None:
        self._last: deque[tuple[str, str]] = deque(maxlen=IDENTICAL_CALLS_TO_STOP)

    def count(self, use: MessageToolUse) -> int:
        """How often the same call has been made in a row, this time included."""
        key = (use.name, use.arguments)
        if self._last and self._last[-1] != key:
            self._last.clear()
        self._last.append(key)
        return len(self._last)


class _PendingCall:
    """A call between its wish and its end."""

    def __init__(self, use: MessageToolUse, call: ToolInvocation | None, told: ToolCalled) -> None:
        self.use = use
        self.call = call
        self.event = told
        self.outcome: ToolOutcome | None = None

    @property
    def runs_alone(self) -> bool:
        return self.call is None or self.call.intent.runs_alone


class ToolRunner:
    """The tools of a session at work."""

    def __init__(
        self,
        tools: Mapping[str, AgentTool],
        permits: SessionPermissions,
        *,
        tell: SendEvent,
        ask: AskUser,
        keep: KeepRecords,
        patience: float,
    ) -> None:
        self._tools = tools
        self._permits = permits
        self._send = tell
        self._ask = ask
        self._keep = keep
        self._patience = patience
        self._open: dict[str, _PendingCall] = {}

    async def run(self, uses: Sequence[MessageToolUse], repetition: Repetition) -> bool:
        """Run them all, in order; their ends are kept. False if the model goes in circles."""
        times = 0
        beside: list[_PendingCall] = []
        try:
            for use in uses:
                made = repetition.count(use)
                times = max(times, made)
                planned = await self._prepare(use, made)
                if planned.runs_alone and beside:
                    await self._run(beside)
                    beside = []
                    planned = await self._prepare(use, made)  # what was read may let it be done
                if planned.runs_alone:
                    await self._run([planned])
                else:
                    beside.append(planned)
            await self._run(beside)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._end_open_calls()
            raise
        return times < IDENTICAL_CALLS_TO_STOP

    async def _end_open_calls(self) -> None:
        """The turn ends here: what was begun is told as ended."""
        for planned in tuple(self._open.values()):
            with suppress(GoesOnElsewhere):
                await self._end(planned, ToolOutcome(text=CANCELLED_TEXT, failed=True))

    async def _prepare(self, use: MessageToolUse, times: int) -> _PendingCall:
        told = ToolCalled(
            id=use.id,
            tool=use.name,
            kind="other",
            title=use.name,
            status="pending",
            input=_input(use.arguments),
        )
        try:
            call = await self._tool(use, times).prepare(use.arguments.encode())
        except ToolMistake as mistake:
            planned = _PendingCall(use, None, told)
            planned.outcome = ToolOutcome(text=str(mistake), failed=True)
            return planned
        intent = call.intent
        told = replace(
            told,
            kind=intent.kind,
            title=intent.title,
            shown=intent.shown,
            locations=intent.locations,
        )
        return _PendingCall(use, call, told)

    def _tool(self, use: MessageToolUse, times: int) -> AgentTool:
        tool = self._tools.get(use.name)
        if tool is None:
            offered = ", ".join(self._tools) or "none"
            raise ToolMistake(f"There is no tool {use.name!r} here; there are: {offered}.")
        if times > MAX_IDENTICAL_CALLS:
            raise ToolMistake(REPEATED_CALL_TEXT.format(times=times - 1))
        return tool

    async def _run(self, batch: Sequence[_PendingCall]) -> None:
        """One alone, or several that disturb nobody."""
        for planned in batch:
            self._open[planned.use.id] = planned
            await self._send(planned.event)
            if planned.call and (refusal := await self._refusal(planned, planned.call)):
                planned.outcome = ToolOutcome(text=refusal, failed=True)
        try:
            async with anyio.create_task_group() as group:
                for planned in batch:
                    group.start_soon(self._finish, planned)
        except* GoesOnElsewhere as elsewhere:
            raise elsewhere.exceptions[0] from None

    async def _refusal(self, planned: _PendingCall, call: ToolInvocation) -> str:
        """Why the call may not be run; empty if it may."""
        need = call.intent.need
        verdict = self._permits.judge(call.intent)
        if verdict.action != "ask" or need is None:
            return verdict.reason
        answer = await self._answer(planned, need)
        if answer == "allow_always":
            self._permits.grant(need)
        if answer is None:
            return NO_ANSWER_TEXT
        if isinstance(answer, Rejection):
            return f"The user rejected this call: {answer.message}"
        return REFUSED_TEXT if answer == "reject" else ""

    async def _answer(
        self, planned: _PendingCall, need: PermissionNeed
    ) -> PermissionAnswer | Rejection | None:
        told = planned.event
        question = ToolQuestion(
            call=told.id,
            tool=told.tool,
            kind=told.kind,
            title=told.title,
            need=need,
            input=told.input,
            shown=(*told.shown, *_reason_parts(need)),
            locations=told.locations,
        )
        await self._send(StateChanged(state="waiting"))
        answer = None
        with anyio.move_on_after(self._patience):
            answer = await self._ask(question)
        await self._send(StateChanged(state="running"))
        return answer

    async def _finish(self, planned: _PendingCall) -> None:
        outcome = planned.outcome
        if outcome is None and planned.call:
            planned.event = replace(planned.event, status="running")
            await self._send(planned.event)
            outcome = await self._outcome(planned, planned.call)
        assert outcome
        with anyio.CancelScope(shield=True):  # what was done is known, whatever comes next
            await self._end(planned, outcome)

    async def _end(self, planned: _PendingCall, outcome: ToolOutcome) -> None:
        del self._open[planned.use.id]
        ran = Ran(
            call=_ended_call(planned.event, outcome), text=outcome.text, pictures=_pictures(outcome)
        )
        await self._keep([ran] if outcome.plan is None else [ran, Planned(entries=outcome.plan)])

    async def _outcome(self, planned: _PendingCall, call: ToolInvocation) -> ToolOutcome:
        async def report(progress: ToolProgress) -> None:
            planned.event = replace(
                planned.event,
                shown=progress.shown or planned.event.shown,
                output=progress.output[-MAX_SHOWN_CHARS:],
            )
            await self._send(planned.event)

        try:
            return await call.run(report)
        except ToolMistake as mistake:
            return ToolOutcome(text=str(mistake), failed=True)
        except Exception as error:  # a fault of one tool's is no end of the session
            if not isinstance(error, OSError):
                log.exception("the tool %r failed", planned.event.tool)
            return ToolOutcome(text=f"{planned.event.title} failed: {error}", failed=True)


def _reason_parts(need: PermissionNeed) -> tuple[TextPart, ...]:
    return (TextPart(text=f"This is always asked: {need.reason}."),) if need.reason else ()


def _ended_call(told: ToolCalled, outcome: ToolOutcome) -> ToolCalled:
    return replace(
        told,
        status="failed" if outcome.failed else "completed",
        shown=outcome.shown or told.shown,
        locations=outcome.locations or told.locations,
        output=outcome.text[:MAX_SHOWN_CHARS],
        exit=outcome.exit,
    )


def _pictures(outcome: ToolOutcome) -> tuple[ImagePart, ...]:
    return tuple(ImagePart(media_type=i.media_type, data=i.data) for i in outcome.images)


def _input(arguments: str) -> Raw:
    """For people: as the model wrote it, if that is JSON."""
    try:
        return Raw(msgspec.json.format(arguments.encode(), indent=0))
    except msgspec.DecodeError:
        return Raw(msgspec.json.encode({"arguments": arguments}))
