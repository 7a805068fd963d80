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
from goent.agent.session_records import AnyRecord, Planned, Ran, SessionReporter
from goent.domain.errors import GoesOnElsewhere, RequestError
from goent.domain.types import PermissionAnswer, Value
from goent.permissions.permission_rules import wildcard_matches
from goent.providers.model_messages import MessageToolUse

PermissionMode = Literal["ask", "accept-edits", "plan"]
PERMISSION_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
READ_ONLY_KINDS: frozenset[ToolKind] = frozenset({"read", "search", "think", "fetch"})
PLAN_MODE_REFUSAL = (
    "The session is in plan mode: nothing may be changed or run. Describe what you would do; the "
    "user leaves plan mode to have it done."
)


class CallVerdict(Value, frozen=True, kw_only=True):
    """Whether a call may run; `reason` tells the model why not."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""


class SessionPermissions:
    """The mode of a session, and what its user has allowed for all of it."""

    def __init__(self, mode: PermissionMode = "ask") -> None:
        self.mode: PermissionMode = mode
        self._exact: set[tuple[ToolPermission, str]] = set()
        self._wildcards: set[tuple[ToolPermission, str]] = set()

    def set_mode(self, mode: str) -> None:
        for known in PERMISSION_MODES:
            if known == mode:
                self.mode = known
                return
        raise RequestError(f"unknown mode {mode!r}; use one of: {', '.join(PERMISSION_MODES)}")

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
        """Allows it for the rest of the session."""
        granted = self._exact if need.exact else self._wildcards
        granted.update((need.permission, pattern) for pattern in need.always or need.patterns)

    def _covers(self, need: PermissionNeed, pattern: str) -> bool:
        if (need.permission, pattern) in self._exact | self._wildcards:
            return True
        return not need.exact and any(
            permission == need.permission and wildcard_matches(wildcard, pattern)
            for permission, wildcard in self._wildcards
        )


MAX_IDENTICAL_CALLS = 3  # in a row that are run
IDENTICAL_CALLS_TO_STOP = 6  # in a row that end the turn
REFUSED_TEXT = (
    "The user did not allow this. Do not try the same in another way: continue without it, or say "
    "what you need."
)
NO_ANSWER_TEXT = "Nobody answered the permission request, so this was not done."
REPEATED_CALL_TEXT = (
    "This call was made {times} times in a row with the same arguments, so it is not made again. "
    "Use its result, or do something else."
)
CANCELLED_TEXT = "The user cancelled the turn; this call may have had an effect."
MAX_SHOWN_CHARS = 20_000  # of a result that a client is sent

log = logging.getLogger(__name__)

SendEvent = Callable[[AnyAgentEvent], Awaitable[None]]


class Repetition:
    """Counts identical calls in a row."""

    def __init__(self) -> None:
        self._last: deque[tuple[str, str]] = deque(maxlen=IDENTICAL_CALLS_TO_STOP)

    def count(self, use: MessageToolUse) -> int:
        """How often this call has been made in a row, this time included."""
        key = (use.name, use.arguments)
        if self._last and self._last[-1] != key:
            self._last.clear()
        self._last.append(key)
        return len(self._last)


class _PendingCall:
    """A call that has not ended; without `call` it was refused, and has its outcome."""

    def __init__(
        self,
        event: ToolCalled,
        call: ToolInvocation | None,
        outcome: ToolOutcome | None = None,
    ) -> None:
        self.event = event
        self.call = call
        self.outcome = outcome

    @property
    def runs_alone(self) -> bool:
        return self.call is None or self.call.intent.runs_alone


class ToolRunner:
    """Runs the tool calls of a session."""

    def __init__(
        self,
        tools: Mapping[str, AgentTool],
        permissions: SessionPermissions,
        reporter: SessionReporter,
        *,
        patience: float,
    ) -> None:
        self._tools = tools
        self._permissions = permissions
        self._reporter = reporter
        self._patience = patience
        self._open: dict[str, _PendingCall] = {}

    async def run(self, uses: Sequence[MessageToolUse], repetition: Repetition) -> bool:
        """Runs all calls in order, and records them. False if the model repeats itself."""
        most = 0
        parallel: list[_PendingCall] = []
        try:
            for use in uses:
                times = repetition.count(use)
                most = max(most, times)
                pending = await self._prepare(use, times)
                if pending.runs_alone and parallel:
                    await self._run(parallel)
                    parallel = []
                    pending = await self._prepare(use, times)  # the reads before may allow it now
                if pending.runs_alone:
                    await self._run([pending])
                else:
                    parallel.append(pending)
            await self._run(parallel)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                for pending in tuple(self._open.values()):
                    with suppress(GoesOnElsewhere):
                        await self._end(pending, ToolOutcome(text=CANCELLED_TEXT, failed=True))
            raise
        return most < IDENTICAL_CALLS_TO_STOP

    async def _prepare(self, use: MessageToolUse, times: int) -> _PendingCall:
        event = ToolCalled(
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
            return _PendingCall(event, None, ToolOutcome(text=str(mistake), failed=True))
        intent = call.intent
        event = replace(
            event,
            kind=intent.kind,
            title=intent.title,
            shown=intent.shown,
            locations=intent.locations,
        )
        return _PendingCall(event, call)

    def _tool(self, use: MessageToolUse, times: int) -> AgentTool:
        tool = self._tools.get(use.name)
        if tool is None:
            offered = ", ".join(self._tools) or "none"
            raise ToolMistake(f"There is no tool {use.name!r}; available: {offered}.")
        if times > MAX_IDENTICAL_CALLS:
            raise ToolMistake(REPEATED_CALL_TEXT.format(times=times - 1))
        return tool

    async def _run(self, batch: Sequence[_PendingCall]) -> None:
        """Runs one call alone, or several in parallel."""
        for pending in batch:
            self._open[pending.event.id] = pending
            await self._reporter.send(pending.event)
            if pending.call and (refusal := await self._refusal(pending, pending.call)):
                pending.outcome = ToolOutcome(text=refusal, failed=True)
        try:
            async with anyio.create_task_group() as group:
                for pending in batch:
                    group.start_soon(self._finish, pending)
        except* GoesOnElsewhere as elsewhere:
            raise elsewhere.exceptions[0] from None

    async def _refusal(self, pending: _PendingCall, call: ToolInvocation) -> str:
        """Why the call may not run; empty if it may."""
        need = call.intent.need
        verdict = self._permissions.judge(call.intent)
        if verdict.action != "ask" or need is None:
            return verdict.reason
        answer = await self._answer(pending.event, need)
        if answer == "allow_always":
            self._permissions.grant(need)
        if answer is None:
            return NO_ANSWER_TEXT
        if isinstance(answer, Rejection):
            return f"The user rejected this call: {answer.message}"
        return REFUSED_TEXT if answer == "reject" else ""

    async def _answer(
        self, event: ToolCalled, need: PermissionNeed
    ) -> PermissionAnswer | Rejection | None:
        reason = (TextPart(text=f"This is always asked: {need.reason}."),) if need.reason else ()
        question = ToolQuestion(
            call=event.id,
            tool=event.tool,
            kind=event.kind,
            title=event.title,
            need=need,
            input=event.input,
            shown=(*event.shown, *reason),
            locations=event.locations,
        )
        await self._reporter.send(StateChanged(state="waiting"))
        answer = None
        with anyio.move_on_after(self._patience):
            answer = await self._reporter.ask(question)
        await self._reporter.send(StateChanged(state="running"))
        return answer

    async def _finish(self, pending: _PendingCall) -> None:
        outcome = pending.outcome
        if outcome is None and pending.call:
            pending.event = replace(pending.event, status="running")
            await self._reporter.send(pending.event)
            outcome = await self._outcome(pending, pending.call)
        assert outcome
        with anyio.CancelScope(shield=True):  # what was done is recorded, whatever comes next
            await self._end(pending, outcome)

    async def _outcome(self, pending: _PendingCall, call: ToolInvocation) -> ToolOutcome:
        async def report(progress: ToolProgress) -> None:
            pending.event = replace(
                pending.event,
                shown=progress.shown or pending.event.shown,
                output=progress.output[-MAX_SHOWN_CHARS:],
            )
            await self._reporter.send(pending.event)

        try:
            return await call.run(report)
        except ToolMistake as mistake:
            return ToolOutcome(text=str(mistake), failed=True)
        except Exception as error:  # a failing tool does not end the session
            log.exception("the tool %r failed", pending.event.tool)
            return ToolOutcome(text=f"{pending.event.title} failed: {error}", failed=True)

    async def _end(self, pending: _PendingCall, outcome: ToolOutcome) -> None:
        event = pending.event
        del self._open[event.id]
        ended = replace(
            event,
            status="failed" if outcome.failed else "completed",
            shown=outcome.shown or event.shown,
            locations=outcome.locations or event.locations,
            output=outcome.text[:MAX_SHOWN_CHARS],
            exit=outcome.exit,
        )
        images = (ImagePart(media_type=i.media_type, data=i.data) for i in outcome.images)
        records: list[AnyRecord] = [Ran(call=ended, text=outcome.text, pictures=tuple(images))]
        if outcome.plan is not None:
            records.append(Planned(entries=outcome.plan))
        await self._reporter.keep(records)


def _input(arguments: str) -> Raw:
    """For people: the arguments as the model wrote them, if they are JSON."""
    try:
        return Raw(msgspec.json.format(arguments.encode(), indent=0))
    except msgspec.DecodeError:
        return Raw(msgspec.json.encode({"arguments": arguments}))
