"""What do a worker's events tell of an attempt? They become messages, tool calls, tokens and money."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from goent.domain.events import (
    Envelope,
    FailedOver,
    TextDelta,
    Thought,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerSpawned,
)
from goent.domain.forecasts import place_of
from goent.domain.types import Usage
from goent.evals.traces import (
    CallStatus,
    PermissionDecision,
    TokenUsage,
    Trace,
    TracedCall,
    TracedMessage,
    WorkedBy,
)

_STATUS: dict[str, CallStatus] = {"completed": "ok", "failed": "error"}


def when(at: float) -> str:
    """ISO 8601, in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, kw_only=True)
class _Call:
    first: ToolCall
    last: ToolCall
    input: object
    began: float
    ended: float | None = None

    def traced(self) -> TracedCall:
        # Who is told of a call only when it is over does not know how long it took.
        timed = self.ended is not None and self.first.status in ("pending", "running")
        return TracedCall(
            tool=self.last.tool,
            id=self.last.id,
            input=self.input,
            output=self.last.output or None,
            status=_STATUS.get(self.last.status, "unknown"),
            start_time=when(self.began) if timed or self.ended is None else None,
            end_time=None if self.ended is None else when(self.ended),
            duration_ms=round((self.ended - self.began) * 1000, 3)
            if timed and self.ended is not None
            else None,
        )


@dataclass(slots=True, kw_only=True)
class _Message:
    id: str
    began: float
    grew: float
    text: str = ""
    calls: list[str] = field(default_factory=list[str])


class Telling:
    """One worker's first turn, as far as it has been told."""

    def __init__(self) -> None:
        self.spawned: WorkerSpawned | None = None
        self.ended: TurnEnded | None = None
        self.decisions: list[PermissionDecision] = []
        self._worker = ""
        self._moved = False
        self._messages: list[_Message] = []
        self._calls: dict[str, tuple[int, _Call]] = {}  # with the place of its message
        self._speaking = ""
        self._began: float | None = None
        self._over: float | None = None
        self._reports: list[UsageReported] = []

    def take(self, told: Envelope) -> int | None:
        """The place of the message that has grown, if one has."""
        event = told.event
        match event:
            case TextDelta():
                return self._text(event, told.at)
            case Thought():
                self._speaking = event.message
            case ToolCall():
                return self._call(event, told.at)
            case UsageReported():
                self._reports.append(event)
            case WorkerSpawned():
                self.spawned, self._worker = event, place_of(told.worker, told.at)
            case FailedOver():
                self._moved = True
            case TurnStarted():
                self._began = told.at
            case TurnEnded():
                self.ended, self._over = event, told.at
            case _:
                pass
        return None

    def message(self, place: int) -> TracedMessage:
        said = self._messages[place]
        return TracedMessage(
            role="assistant",
            content=said.text.strip(),
            tool_calls=tuple(self._calls[call][1].traced() for call in said.calls),
            start_time=when(said.began),
            end_time=when(said.grew),
        )

    @property
    def usage(self) -> Usage | None:
        return sum((r.usage for r in self._reports), Usage()) if self._reports else None

    @property
    def llm_calls(self) -> int | None:
        return sum(report.calls for report in self._reports) if self._reports else None

    @property
    def cost(self) -> float | None:
        """In USD. None if nothing was told of it, or the price of one call is not known."""
        known = [report.cost_usd for report in self._reports if report.cost_usd is not None]
        return float(sum(known)) if known and len(known) == len(self._reports) else None

    def trace(self) -> Trace:
        timed = self._began is not None and self._over is not None
        return Trace(
            messages=tuple(self.message(place) for place in range(len(self._messages))),
            usage=counted(self.usage),
            cost_usd=self.cost,
            duration_ms=round((self._over - self._began) * 1000, 3)
            if timed and self._over is not None and self._began is not None
            else None,
            llm_calls=self.llm_calls,
            start_time=None if self._began is None else when(self._began),
            end_time=None if self._over is None else when(self._over),
            permissions=tuple(self.decisions),
            by=self._by(),
        )

    def _by(self) -> WorkedBy | None:
        if self.spawned is None or self._moved:
            return None
        return WorkedBy(
            provider=self.spawned.provider,
            backend=self.spawned.backend,
            model=self.spawned.model,
            method=self.spawned.method,
            worker=self._worker,
        )

    def _text(self, event: TextDelta, at: float) -> int:
        self._speaking = event.message
        last = self._messages[-1] if self._messages else None
        # Agents that do not number their messages begin a new one after their tools.
        if last is None or last.id != event.message or (not event.message and last.calls):
            last = self._begin(event.message, at)
        last.text += event.text
        last.grew = at
        return len(self._messages) - 1

    def _call(self, event: ToolCall, at: float) -> int:
        place, call = self._calls.get(event.id) or self._begin_call(event, at)
        call.last = event
        call.input = call.input if event.input is None else event.input
        if event.status in ("completed", "failed"):
            call.ended = at
        self._messages[place].grew = at
        return place

    def _begin_call(self, event: ToolCall, at: float) -> tuple[int, _Call]:
        last = self._messages[-1] if self._messages else None
        if last is None or (self._speaking and last.id != self._speaking):
            last = self._begin(self._speaking, at)
        last.calls.append(event.id)
        begun = _Call(first=event, last=event, input=event.input, began=at)
        self._calls[event.id] = (len(self._messages) - 1, begun)
        return self._calls[event.id]

    def _begin(self, name: str, at: float) -> _Message:
        begun = _Message(id=name, began=at, grew=at)
        self._messages.append(begun)
        return begun


def counted(usage: Usage | None) -> TokenUsage | None:
    """Tokens as suites count them: what was written to a cache is input, too."""
    if usage is None:
        return None
    return TokenUsage(
        input=usage.input + usage.cache_write,
        output=usage.output + usage.reasoning,
        cached=usage.cache_read,
        reasoning=usage.reasoning,
    )
