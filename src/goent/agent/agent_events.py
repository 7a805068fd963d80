"""Defines the content of prompts and tool calls, and every event that a session sends its client.

Shaped after the second version of the protocol: everything that changes has an id and is told
again whole, and the end of a turn is a state. Versions of the protocol are encoders of these.
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
    """A file that comes with the prompt; `text` is None if it is none."""

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
    """A file that a call looks at or changes, so that an editor can follow."""

    path: str
    line: int | None = None


MessageRole = Literal["user", "agent", "thought"]
ToolKind = Literal["read", "edit", "execute", "search", "think", "fetch", "other"]
CallStatus = Literal["pending", "running", "completed", "failed"]
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class AgentEvent(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", omit_defaults=True):
    """Tagged with its class name."""


class Said(AgentEvent, frozen=True, kw_only=True, gc=False):
    """A piece of a message; pieces with one `message` belong together."""

    message: str
    role: MessageRole
    text: str


class Asked(AgentEvent, frozen=True, kw_only=True):
    """What the user gave, when a session is told again."""

    message: str
    given: tuple[PromptPart, ...]


class ToolCalled(AgentEvent, frozen=True, kw_only=True):
    """A tool call as it stands now; `id` stays the same. `shown` and `output` come as they grow."""

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
    """How full the context is, and what the session has cost: None if a price is unknown."""

    used: int
    size: int
    cost_usd: Decimal | None


class Retitled(AgentEvent, frozen=True, kw_only=True):
    """The session has another title."""

    title: str
    updated_at: str


class OptionsChanged(AgentEvent, frozen=True, kw_only=True):
    """Mode or model are others now: ask the session which."""


class Noticed(AgentEvent, frozen=True, kw_only=True):
    """Something that the user should know: a model was chosen, a provider failed over, a budget."""

    text: str


class StateChanged(AgentEvent, frozen=True, kw_only=True):
    """A turn runs, waits for an answer, or is over."""

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
