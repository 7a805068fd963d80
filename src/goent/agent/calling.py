"""How are the tool calls of one answer run: permitted, side by side where that is safe, told?"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from goent.agent.content import Picture, Words
from goent.agent.events import AnyAgentEvent, StateChanged, ToolCalled
from goent.agent.permits import Permits
from goent.agent.ports import Call, Need, Outcome, Progress, Question, Rejection, Tool, ToolMistake
from goent.agent.records import AnyRecord, Planned, Ran
from goent.domain.errors import GoesOnElsewhere
from goent.domain.types import Answer
from goent.llm.talk import ToolUse

SAME = 3  # times that the same call in a row is run; the next one is not
ENOUGH = 6  # times after which the turn ends
REFUSED = (
    "The user did not allow this. Do not try the same by another way: go on without it, or say what "
    "you need."
)
NO_ANSWER = "Nobody answered the question whether this may be done, so it was not."
LOOPING = (
    "This very call has been made {times} times in a row, with the same arguments: it is not made "
    "again. Use what it told you, or do something else."
)
CANCELLED = "The user cancelled the turn; what this call had begun may have had an effect."
MOST_SHOWN = 20_000  # characters of a result that a client is sent

log = logging.getLogger(__name__)

Tell = Callable[[AnyAgentEvent], Awaitable[None]]
Ask = Callable[[Question], Awaitable[Answer | Rejection | None]]
Keep = Callable[[Sequence[AnyRecord]], Awaitable[None]]


class Repetition:
    """Is the model going in circles?"""

    def __init__(self) -> None:
        self._last: deque[tuple[str, str]] = deque(maxlen=ENOUGH)

    def add(self, use: ToolUse) -> int:
        """How often the same call has been made in a row, this time included."""
        key = (use.name, use.arguments)
        if self._last and self._last[-1] != key:
            self._last.clear()
        self._last.append(key)
        return len(self._last)


class _Pending:
    """A call between its wish and its end."""

    def __init__(self, use: ToolUse, call: Call | None, told: ToolCalled) -> None:
        self.use = use
        self.call = call
        self.told = told
        self.outcome: Outcome | None = None

    @property
    def alone(self) -> bool:
        return self.call is None or self.call.intent.alone


class Calling:
    """The tools of a session at work."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        permits: Permits,
        *,
        tell: Tell,
        ask: Ask,
        keep: Keep,
        patience: float,
    ) -> None:
        self._tools = tools
        self._permits = permits
        self._tell = tell
        self._ask = ask
        self._keep = keep
        self._patience = patience
        self._open: dict[str, _Pending] = {}

    async def run(self, uses: Sequence[ToolUse], repetition: Repetition) -> bool:
        """Run them all, in order; their ends are kept. False if the model goes in circles."""
        times = 0
        beside: list[_Pending] = []
        try:
            for use in uses:
                made = repetition.add(use)
                times = max(times, made)
                planned = await self._prepared(use, made)
                if planned.alone and beside:
                    await self._run(beside)
                    beside = []
                    planned = await self._prepared(use, made)  # what was read may let it be done
                if planned.alone:
                    await self._run([planned])
                else:
                    beside.append(planned)
            await self._run(beside)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._cut_off()
            raise
        return times < ENOUGH

    async def _cut_off(self) -> None:
        """The turn ends here: what was begun is told as ended."""
        for planned in tuple(self._open.values()):
            with suppress(GoesOnElsewhere):
                await self._end(planned, Outcome(text=CANCELLED, failed=True))

    async def _prepared(self, use: ToolUse, times: int) -> _Pending:
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
            planned = _Pending(use, None, told)
            planned.outcome = Outcome(text=str(mistake), failed=True)
            return planned
        intent = call.intent
        told = replace(
            told,
            kind=intent.kind,
            title=intent.title,
            shown=intent.shown,
            locations=intent.locations,
        )
        return _Pending(use, call, told)

    def _tool(self, use: ToolUse, times: int) -> Tool:
        tool = self._tools.get(use.name)
        if tool is None:
            offered = ", ".join(self._tools) or "none"
            raise ToolMistake(f"There is no tool {use.name!r} here; there are: {offered}.")
        if times > SAME:
            raise ToolMistake(LOOPING.format(times=times - 1))
        return tool

    async def _run(self, batch: Sequence[_Pending]) -> None:
        """One alone, or several that disturb nobody."""
        for planned in batch:
            self._open[planned.use.id] = planned
            await self._tell(planned.told)
            if planned.call and (refusal := await self._refusal(planned, planned.call)):
                planned.outcome = Outcome(text=refusal, failed=True)
        try:
            async with anyio.create_task_group() as group:
                for planned in batch:
                    group.start_soon(self._finish, planned)
        except* GoesOnElsewhere as elsewhere:
            raise elsewhere.exceptions[0] from None

    async def _refusal(self, planned: _Pending, call: Call) -> str:
        """Why the call may not be run; empty if it may."""
        need = call.intent.need
        verdict = self._permits.judge(call.intent)
        if verdict.action != "ask" or need is None:
            return verdict.reason
        answer = await self._answer(planned, need)
        if answer == "allow_always":
            self._permits.grant(need)
        if answer is None:
            return NO_ANSWER
        if isinstance(answer, Rejection):
            return f"The user rejected this call: {answer.message}"
        return REFUSED if answer == "reject" else ""

    async def _answer(self, planned: _Pending, need: Need) -> Answer | Rejection | None:
        told = planned.told
        question = Question(
            call=told.id,
            tool=told.tool,
            kind=told.kind,
            title=told.title,
            need=need,
            input=told.input,
            shown=(*told.shown, *_why(need)),
            locations=told.locations,
        )
        await self._tell(StateChanged(state="waiting"))
        answer = None
        with anyio.move_on_after(self._patience):
            answer = await self._ask(question)
        await self._tell(StateChanged(state="running"))
        return answer

    async def _finish(self, planned: _Pending) -> None:
        outcome = planned.outcome
        if outcome is None and planned.call:
            planned.told = replace(planned.told, status="running")
            await self._tell(planned.told)
            outcome = await self._outcome(planned, planned.call)
        assert outcome
        with anyio.CancelScope(shield=True):  # what was done is known, whatever comes next
            await self._end(planned, outcome)

    async def _end(self, planned: _Pending, outcome: Outcome) -> None:
        del self._open[planned.use.id]
        ran = Ran(
            call=_ended(planned.told, outcome), text=outcome.text, pictures=_pictures(outcome)
        )
        await self._keep([ran] if outcome.plan is None else [ran, Planned(entries=outcome.plan)])

    async def _outcome(self, planned: _Pending, call: Call) -> Outcome:
        async def report(progress: Progress) -> None:
            planned.told = replace(
                planned.told,
                shown=progress.shown or planned.told.shown,
                output=progress.output[-MOST_SHOWN:],
            )
            await self._tell(planned.told)

        try:
            return await call.run(report)
        except ToolMistake as mistake:
            return Outcome(text=str(mistake), failed=True)
        except Exception as error:  # a fault of one tool's is no end of the session
            if not isinstance(error, OSError):
                log.exception("the tool %r failed", planned.told.tool)
            return Outcome(text=f"{planned.told.title} failed: {error}", failed=True)


def _why(need: Need) -> tuple[Words, ...]:
    return (Words(text=f"This is always asked: {need.reason}."),) if need.reason else ()


def _ended(told: ToolCalled, outcome: Outcome) -> ToolCalled:
    return replace(
        told,
        status="failed" if outcome.failed else "completed",
        shown=outcome.shown or told.shown,
        locations=outcome.locations or told.locations,
        output=outcome.text[:MOST_SHOWN],
        exit=outcome.exit,
    )


def _pictures(outcome: Outcome) -> tuple[Picture, ...]:
    return tuple(Picture(media_type=i.media_type, data=i.data) for i in outcome.images)


def _input(arguments: str) -> Raw:
    """For people: as the model wrote it, if that is JSON."""
    try:
        return Raw(msgspec.json.format(arguments.encode(), indent=0))
    except msgspec.DecodeError:
        return Raw(msgspec.json.encode({"arguments": arguments}))
