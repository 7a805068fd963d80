"""Defines the content of prompts and tool calls, and every event that a session sends its client.

Shaped after version 2 of ACP: everything that changes has an id and is sent again whole, and the
end of a turn is a state. Each version of the protocol is an encoder of these events.
"""

from decimal import Decimal
from typing import Literal

from msgspec import Raw, Struct

from goent.domain.types import PlanEntry, Value


class TextPart(Value, frozen=True, kw_only=True, tag="words"):
    """Text."""

    text: str


class ImagePart(Value, frozen=True, kw_only=True, tag="picture"):
    """An image, base64."""

    media_type: str
    data: str


class LinkPart(Value, frozen=True, kw_only=True, tag="link"):
    """A file or a page that the agent may open."""

    uri: str
    name: str = ""


class FilePart(Value, frozen=True, kw_only=True, tag="document"):
    """A file embedded in the prompt; `text` is None if it is not text."""

    uri: str
    text: str | None = None
    media_type: str | None = None


PromptPart = TextPart | ImagePart | LinkPart | FilePart


class DiffPart(Value, frozen=True, kw_only=True, tag="diff"):
    """A file before and after; a new one has no old text. Whole texts, or the part that changed."""

    path: str
    new: str
    old: str | None = None


class TerminalPart(Value, frozen=True, kw_only=True, tag="terminal"):
    """The output of a terminal that the client runs."""

    id: str


DisplayPart = TextPart | ImagePart | DiffPart | TerminalPart


class FileLocation(Value, frozen=True, kw_only=True):
    """A file that a call reads or changes, so that an editor can follow."""

    path: str
    line: int | None = None


MessageRole = Literal["user", "agent", "thought"]
ToolKind = Literal["read", "edit", "execute", "search", "think", "fetch", "other"]
CallStatus = Literal["pending", "running", "completed", "failed"]
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class AgentEvent(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", omit_defaults=True):
    """Tagged with its class name."""


class Said(AgentEvent, frozen=True, kw_only=True, gc=False):
    """A piece of a message; pieces with the same `message` belong together."""

    message: str
    role: MessageRole
    text: str


class Asked(AgentEvent, frozen=True, kw_only=True):
    """A prompt of the user, when a session is replayed."""

    message: str
    given: tuple[PromptPart, ...]


class ToolCalled(AgentEvent, frozen=True, kw_only=True):
    """The current state of a tool call; `shown` and `output` are sent again as they grow."""

    id: str
    tool: str
    kind: ToolKind
    title: str
    status: CallStatus
    input: Raw = Raw(b"{}")
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()
    output: str = ""
    exit: int | None = None


class PlanChanged(AgentEvent, frozen=True, kw_only=True):
    """The todo list, whole."""

    entries: tuple[PlanEntry, ...]


class UsageChanged(AgentEvent, frozen=True, kw_only=True):
    """The use of the context, and the cost of the session: None if a price is unknown."""

    used: int
    size: int
    cost_usd: Decimal | None


class Retitled(AgentEvent, frozen=True, kw_only=True):
    """The session's new title."""

    title: str
    updated_at: str


class OptionsChanged(AgentEvent, frozen=True, kw_only=True):
    """Mode or model have changed; the session's options have the new ones."""


class Noticed(AgentEvent, frozen=True, kw_only=True):
    """A notice to the user: the chosen model, a failover, a budget."""

    text: str


class StateChanged(AgentEvent, frozen=True, kw_only=True):
    """A turn is running, waiting for an answer, or has ended."""

    state: Literal["running", "waiting", "idle"]
    stop_reason: StopReason | None = None


AnyAgentEvent = (
    Said
    | Asked
    | ToolCalled
    | PlanChanged
    | UsageChanged
    | Retitled
    | OptionsChanged
    | Noticed
    | StateChanged
)
