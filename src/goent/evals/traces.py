"""Defines the trace: what an agent did in one attempt at a case, as graders see it."""

import os
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from goent.domain.types import Method, Value

_EMPTY: Final[tuple[object, ...]] = ("", None, [], {})
_OWN, _LOST = -1, -2  # in place of a call: the agent itself, and a missing call

CallStatus = Literal["ok", "error", "timeout", "cancelled", "unknown"]


class TracedCall(Value, frozen=True, kw_only=True):
    """One tool call. Times are ISO 8601; `input` and `output` are JSON values."""

    tool: str
    id: str = ""
    input: object = None
    output: object = None
    status: CallStatus = "unknown"
    start_time: str | None = None
    end_time: str | None = None
    duration_ms: float | None = None


class TracedMessage(Value, frozen=True, kw_only=True):
    """One message; `content` is text, or a JSON value in fixtures.

    `parent` is the id of the tool call whose subagent wrote it; the agent's own have none.
    """

    role: str
    content: object = ""
    tool_calls: tuple[TracedCall, ...] = ()
    start_time: str | None = None
    end_time: str | None = None
    parent: str | None = None


class TokenUsage(Value, frozen=True, kw_only=True):
    """As suites count it: `input` excludes what was `cached`, `output` includes `reasoning`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


class PermissionDecision(Value, frozen=True, kw_only=True):
    """A permission request during the attempt, and its answer. `call` is the tool call's id."""

    permission: str
    patterns: tuple[str, ...] = ()
    decision: Literal["reject", "once", "always"]
    by: str = "policy"
    at: str = ""
    call: str = ""


class TargetFailure(Value, frozen=True, kw_only=True, omit_defaults=True):
    """Why the attempt itself failed, so that there is nothing to grade."""

    kind: str
    message: str
    retryable: bool = False


class TraceWorker(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The worker of the attempt, if it was one provider. `worker` is its place in the user's history."""

    provider: str
    backend: str
    model: str
    method: Method
    worker: str = ""


class TracedTurn(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of a conversation: the indexes of its first message, and of the first of its answer."""

    begins: int
    answers: int
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    llm_calls: int | None = None
    start_time: str | None = None
    end_time: str | None = None


class Trace(Value, frozen=True, kw_only=True):
    """One attempt. What is unknown is None, not 0.

    `file_changes` is a unified diff of the workspace at `workspace_path`. `partial`: it was cut off.
    With `turns` it is a conversation, whose `messages` include the input.
    """

    messages: tuple[TracedMessage, ...] = ()
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    llm_calls: int | None = None
    start_time: str | None = None
    end_time: str | None = None
    log_path: str | None = None
    workspace_path: str | None = None
    workspace_removed: bool = False
    file_changes: str = ""
    permissions: tuple[PermissionDecision, ...] = ()
    failure: TargetFailure | None = None
    partial: bool = False
    by: TraceWorker | None = None
    turns: tuple[TracedTurn, ...] = ()

    def turn(self, number: int) -> "Trace":
        """What the agent did in one turn of a conversation, counted from 0."""
        here = self.turns[number]
        end = self.turns[number + 1].begins if number + 1 < len(self.turns) else len(self.messages)
        return replace(
            self,
            messages=self.messages[here.answers : end],
            usage=here.usage,
            cost_usd=here.cost_usd,
            duration_ms=here.duration_ms,
            llm_calls=here.llm_calls,
            start_time=here.start_time,
            end_time=here.end_time,
            turns=(),
        )

    def without_missing_workspace(self) -> "Trace":
        """Drops the path of a workspace that no longer exists."""
        if self.workspace_path is None or os.path.isdir(self.workspace_path):  # noqa: PTH112 (the path is a text)
            return self
        return replace(self, workspace_path=None, workspace_removed=True)

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """The agent's own tool calls, in order."""
        own = (message for message in self.messages if message.parent is None)
        return tuple(call for message in own for call in message.tool_calls)

    @property
    def all_calls(self) -> tuple[tuple[int, TracedCall], ...]:
        """All calls with their depth from 0; those of a subagent come right after the call that made it.

        Ids may repeat: a subagent's message belongs to the last earlier call with that id.
        """
        calls: list[TracedCall] = []
        made: dict[int, list[int]] = {}  # places of calls, by that of the call that made them
        latest: dict[str, int] = {}
        for message in self.messages:
            maker = _OWN if message.parent is None else latest.get(message.parent, _LOST)
            for call in message.tool_calls:
                made.setdefault(maker, []).append(len(calls))
                latest[call.id] = len(calls)
                calls.append(call)
        found: list[tuple[int, TracedCall]] = []
        waiting = [(1, place) for place in reversed(made.get(_LOST, ()))]
        waiting += [(0, place) for place in reversed(made.get(_OWN, ()))]
        while waiting:
            depth, place = waiting.pop()
            found.append((depth, calls[place]))
            waiting += [(depth + 1, inner) for inner in reversed(made.get(place, ()))]
        return tuple(found)

    @property
    def hides_subagents(self) -> bool:
        """Whether a subagent was called whose messages are missing."""
        told = {message.parent for message in self.messages}
        every = (call for message in self.messages for call in message.tool_calls)
        return any(call.tool.casefold() == "task" and call.id not in told for call in every)

    def without_subagents(self) -> "Trace":
        """The agent's own messages, each counted as one model call. Tokens and cost cannot be split."""
        own = tuple(each for each in self.messages if each.parent is None)
        if len(own) == len(self.messages):
            return self
        return replace(self, messages=own, llm_calls=sum(one.role == "assistant" for one in own))

    @property
    def answer(self) -> str:
        """The agent's last non-empty message, as text or JSON; for a conversation, all messages by role."""
        if self.turns:
            own = (one for one in self.messages if one.parent is None)
            said = (
                f"{one.role}: {_as_text(one.content)}" for one in own if one.content not in _EMPTY
            )
            return "\n\n".join(said)
        for message in reversed(self.messages):
            said = message.role == "assistant" and message.parent is None
            if said and message.content not in _EMPTY:
                return _as_text(message.content)
        return ""


def sum_usage(usages: Iterable[TokenUsage | None]) -> TokenUsage | None:
    """The sum of those that are known; None if none is."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    return TokenUsage(
        input=sum(usage.input for usage in known),
        output=sum(usage.output for usage in known),
        cached=sum(usage.cached for usage in known),
        reasoning=sum(usage.reasoning for usage in known),
    )


def sum_if_known(amounts: Sequence[float | None]) -> float | None:
    """None if one of them is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _as_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return msgspec.json.encode(content).decode()
