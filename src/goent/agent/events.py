"""What happens in a session, one event at a time: all that a client is told.

Shaped after the second version of the protocol: everything that changes has an id and is told
again whole, and the end of a turn is a state. Versions of the protocol are encoders of these.
"""

from decimal import Decimal
from typing import Literal

from msgspec import Raw, Struct

from goent.agent.content import Given, Location, Shown
from goent.domain.types import PlanEntry

Role = Literal["user", "agent", "thought"]
Kind = Literal["read", "edit", "execute", "search", "think", "fetch", "other"]
CallStatus = Literal["pending", "running", "completed", "failed"]
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class AgentEvent(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", omit_defaults=True):
    """Tagged with its class name."""


class Said(AgentEvent, frozen=True, kw_only=True, gc=False):
    """A piece of a message; pieces with one `message` belong together."""

    message: str
    role: Role
    text: str


class Asked(AgentEvent, frozen=True, kw_only=True):
    """What the user gave, when a session is told again."""

    message: str
    given: tuple[Given, ...]


class ToolCalled(AgentEvent, frozen=True, kw_only=True):
    """A tool call as it stands now; `id` stays the same. `shown` and `output` come as they grow."""

    id: str
    tool: str
    kind: Kind
    title: str
    status: CallStatus
    input: Raw = Raw(b"{}")
    shown: tuple[Shown, ...] = ()
    locations: tuple[Location, ...] = ()
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
