"""Values that every room uses: providers, usage, prices, routes, failures, checks."""

from decimal import Decimal
from typing import Literal, Self

from msgspec import Struct

Method = Literal["acp", "cli", "serve", "api", "agent"]
Dialect = Literal["openai", "anthropic"]
WorkerState = Literal["starting", "running", "waiting", "completed", "failed", "cancelled"]
Isolation = Literal["auto", "worktree", "copy", "shared", "dedicated"]
Preset = Literal["readonly", "ask", "edit", "auto"]
PermissionAnswer = Literal["allow_once", "allow_always", "reject"]
Evidence = Literal["claimed", "verified", "refuted"]
CostSource = Literal["gateway", "opencode", "estimate"]
OverlapKind = Literal["file_overlap", "hunk_conflict"]

ONE_TURN_METHODS: frozenset[Method] = frozenset({"cli"})  # workers close after their first turn
OWN_AGENT_TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "TodoWrite")
ENDED_STATES: frozenset[WorkerState] = frozenset({"completed", "failed", "cancelled"})
MILLION = Decimal(1_000_000)


class Value(Struct, frozen=True, kw_only=True):
    """The base of values: immutable, and constructed by keyword."""


class Usage(Value, frozen=True, kw_only=True):
    """Tokens. `input` excludes cached ones, `output` excludes `reasoning` (billed as output)."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    def __add__(self, other: Self) -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
        )

    def __sub__(self, other: Self) -> "Usage":
        return Usage(
            input=self.input - other.input,
            output=self.output - other.output,
            cache_read=self.cache_read - other.cache_read,
            cache_write=self.cache_write - other.cache_write,
            reasoning=self.reasoning - other.reasoning,
        )

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning


class Price(Value, frozen=True, kw_only=True):
    """USD per million tokens. A missing cache price is the price of input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def cost(self, usage: Usage) -> Decimal:
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return (
            usage.input * self.input
            + (usage.output + usage.reasoning) * self.output
            + usage.cache_read * read
            + usage.cache_write * write
        ) / MILLION


class RateLimits(Value, frozen=True, kw_only=True):
    """A provider's limits: parallel calls, requests and tokens per minute."""

    concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None


class Provider(Value, frozen=True, kw_only=True):
    """A model that workers can run on. `name` is go-ent's, `backend` is OpenCode's provider id.

    `listed`: no file names it, but its server lists it. `options` are those of the model in `opencode.json`,
    as JSON.
    """

    name: str
    backend: str
    model: str
    method: Method = "acp"
    context_limit: int | None = None
    best_for: tuple[str, ...] = ()
    price: Price | None = None
    fallbacks: tuple[str, ...] = ()
    limits: RateLimits = RateLimits()
    listed: bool = False
    options: bytes = b""

    @property
    def opencode_model(self) -> str:
        return f"{self.backend}/{self.model}"


class Pin(Value, frozen=True, kw_only=True):
    """The caller's explicit choice: obeyed, or refused with the reason."""

    provider: str | None = None
    model: str | None = None
    method: Method | None = None


class Route(Value, frozen=True, kw_only=True):
    """A routing decision: the provider, the method, the reason, and the fallbacks."""

    provider: Provider
    method: Method
    reason: str
    fallbacks: tuple[Provider, ...] = ()


class Prompt(Value, frozen=True, kw_only=True):
    """The prompt of one turn."""

    text: str
    files: tuple[str, ...] = ()


class Failure(Value, frozen=True, kw_only=True):
    """Why a turn failed; the message names the value and the remedy."""

    kind: str
    message: str
    retryable: bool = False
    retry_with: str | None = None


class FileChange(Value, frozen=True, kw_only=True):
    """A file that a worker changed, with the lines added and removed."""

    path: str
    added: int | None = None
    removed: int | None = None


class GuardedChange(Value, frozen=True, kw_only=True):
    """A file that other programs obey and that changed while a worker worked; `reason` names them."""

    path: str
    reason: str


class AlsoChanged(Value, frozen=True, kw_only=True):
    """A file that changed while a worker worked in a shared folder, perhaps by somebody else.

    `by` are the workers that may have changed it; with a single one, that one did; if empty, it is unknown.
    """

    path: str
    by: tuple[str, ...] = ()


class Overlap(Value, frozen=True, kw_only=True):
    """A file that another worker also changed, in the same folder and at the same time.

    `hunk_conflict`: lines that one of them wrote are gone.
    """

    worker_id: str
    path: str
    kind: OverlapKind = "file_overlap"


class Command(Value, frozen=True, kw_only=True):
    """A shell command that a worker ran."""

    command: str
    exit: int | None = None


class Check(Value, frozen=True, kw_only=True):
    """A verify command's outcome; `exit` is None when it did not end in time."""

    command: str
    exit: int | None
    tail: str


class PlanEntry(Value, frozen=True, kw_only=True):
    """One line of a worker's own todo list."""

    text: str
    status: Literal["pending", "in_progress", "completed", "cancelled"]


class PermissionOption(Value, frozen=True, kw_only=True):
    """One answer that the worker's program offers."""

    id: PermissionAnswer
    label: str


class Secret:
    """A key that cannot be printed, logged or journaled by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def rounded_usd(amount: Decimal | None) -> float | None:
    """Money as JSON shows it; an unknown amount stays unknown."""
    return None if amount is None else float(round(amount, 9))


BudgetScope = Literal["task", "group", "day", "project"]
