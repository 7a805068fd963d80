"""What the core needs of the rooms below it, said as protocols; `app` passes the real ones in."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from pathlib import Path
from typing import Literal, Protocol

from goent.domain.budgets import Admission, Hold, Limit, Spender, Standing
from goent.domain.errors import WorkerError
from goent.domain.events import AnyEvent, DriverEvent, Envelope
from goent.domain.forecasts import Sample
from goent.domain.health import Condition, HealthKey, HealthRecord
from goent.domain.settings import PermissionRule
from goent.domain.tasks import Classification, TaskText
from goent.domain.types import (
    Answer,
    Check,
    Method,
    Price,
    Prompt,
    Provider,
    Usage,
    Value,
)

Emit = Callable[[DriverEvent], Awaitable[None]]
StopReason = Literal["end", "cancelled"]


class WorkerSpec(Value, frozen=True, kw_only=True):
    """All that a driver is told about the worker it is to run.

    `fallbacks` may serve its model calls if the provider cannot. `resume` is the `token` of an
    earlier session of the worker's, whose memory it shall have.
    `asked` questions have been put in its name before: their ids are taken. `allowed_tools` are
    all that go-ent's own agent may use; None: all.
    """

    id: str
    cwd: Path
    provider: Provider
    method: Method
    rules: tuple[PermissionRule, ...]
    dedicated: bool = False
    fallbacks: tuple[Provider, ...] = ()
    resume: str | None = None
    asked: int = 0
    allowed_tools: tuple[str, ...] | None = None


class Signs(Value, frozen=True, kw_only=True):
    """Does a silent worker live, and what is it doing? For its owner to read."""

    alive: bool
    detail: str


class Session(Protocol):
    """One worker's conversation with the program that does the work."""

    @property
    def token(self) -> str:
        """What a later session is opened with to go on where this one was; empty if none can."""
        ...

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        """Take one turn. Raises a `WorkerError` if it fails."""
        ...

    async def cancel(self) -> None:
        """Ask the running turn to stop; `prompt` then returns "cancelled"."""
        ...

    async def answer(self, permission_id: str, option: Answer) -> None:
        """Answer a question that the running turn asked."""
        ...

    async def signs(self) -> Signs:
        """Look after a turn from which nothing has been heard for long."""
        ...


class Driver(Protocol):
    """One way to run workers."""

    def open(self, spec: WorkerSpec) -> AbstractAsyncContextManager[Session]:
        """A session that leaves nothing behind when the context closes."""
        ...


class Journal(Protocol):
    """The append-only truth of one project."""

    async def append(self, batch: Sequence[tuple[str, float, AnyEvent]]) -> list[Envelope]:
        """Store (worker, at, event) in one commit; the stamped envelopes come back in order."""
        ...

    async def read(
        self, *, worker: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[Envelope]:
        """Envelopes with `seq > after`, in order."""
        ...

    async def workers(self, *, limit: int = 200) -> list[str]:
        """The newest workers' ids, newest first, and every one that is not closed."""
        ...

    async def swarms(self, *, limit: int = 50) -> list[str]:
        """The newest swarms' ids, newest first."""
        ...


class LedgerEntry(Value, frozen=True, kw_only=True):
    """One metered model call, as the user's ledger keeps it."""

    at: float
    project: str
    worker: str
    provider: str
    backend: str
    model: str
    usage: Usage
    cost_usd: Decimal | None
    source: str
    status: int = 200
    group: str = ""

    @property
    def spender(self) -> Spender:
        return Spender(project=self.project, worker=self.worker, group=self.group)


class CostRow(Value, frozen=True, kw_only=True):
    """A line of a cost report. `cost_usd` is None as soon as one call's price is unknown.

    `known_usd` is then the sum of the others, and `unknown_calls` says how many are missing in it.
    """

    key: str
    calls: int
    usage: Usage
    cost_usd: Decimal | None
    known_usd: Decimal = Decimal(0)
    unknown_calls: int = 0


class Ledger(Protocol):
    """What was spent, by this user, in all projects."""

    async def begin(self, call: str, entry: LedgerEntry, hold: Hold | None = None) -> Admission:
        """A call wants to go out. Until it is settled it is in no report."""
        ...

    async def hold_back(self, spender: Spender, usd: Decimal, limits: Sequence[Limit]) -> Admission:
        """Hold the amount back for a worker, if the hard limits have room for it."""
        ...

    async def release(self, spender: Spender) -> None:
        """What was held back for the worker is free again."""
        ...

    async def standings(self, limits: Sequence[Limit], project: str) -> list[Standing]:
        """How the limits stand; that of a task means a worker of the project."""
        ...

    async def settle(self, call: str, entry: LedgerEntry | None) -> None:
        """The call is over: what it took, or None if nothing can be owed for it."""
        ...

    async def lost(self, project: str) -> list[LedgerEntry]:
        """Enter what a dead go-ent of the project never settled, as calls of unknown cost."""
        ...

    async def add(self, entry: LedgerEntry) -> None:
        """Enter a call that nobody saw begin."""
        ...

    async def report(
        self, *, by: Literal["provider", "model", "worker", "day"], project: str | None = None
    ) -> list[CostRow]: ...


class Prices(Protocol):
    """What providers charge, in USD. None where nobody says: unknown is not 0."""

    async def cost(self, provider: Provider, usage: Usage, at: float) -> Decimal | None:
        """Of one call that ended at that time."""
        ...

    async def price(self, provider: Provider, at: float) -> Price | None:
        """Per million tokens, as far as one figure each can tell."""
        ...


class Calibrations(Protocol):
    """How each model's own count of tokens differs from our estimate."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        """The estimate, set right by what earlier calls told; as it is while there are too few."""
        ...

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None:
        """A call came back: `actual` is its whole prompt, cached tokens included."""
        ...


class HealthRecords(Protocol):
    """What is kept of the health of providers, for all go-ents of a user."""

    def known(self, key: HealthKey) -> HealthRecord:
        """As last seen: at once, from memory."""
        ...

    async def change(
        self, key: HealthKey, step: Callable[[HealthRecord], HealthRecord | None]
    ) -> HealthRecord | None:
        """Take the step from what is kept now, with nobody in between; None leaves it."""
        ...

    async def forget(self, backend: str, model: str) -> bool:
        """Whether there was something to forget."""
        ...


class Healths(Protocol):
    """Who can be asked. A call that was admitted ends in exactly one of the three ways."""

    def condition(self, provider: Provider) -> Condition: ...

    def under_way(self, provider: Provider) -> int:
        """Calls of this go-ent."""
        ...

    async def admits(self, provider: Provider, *, force: bool = False) -> bool:
        """Whether a call may go out now; `force` where there is nobody else to ask."""
        ...

    async def served(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        """It answered a call that began then; `used_up_for_s` if that was the last for so long."""
        ...

    async def failed(self, provider: Provider, error: WorkerError, *, began: float) -> None: ...

    async def released(self, provider: Provider) -> None:
        """The call was given up, and tells nothing."""
        ...

    async def forget(self, provider: Provider) -> bool:
        """Ask it as if nothing had been; whether there was something."""
        ...


class Meter(Protocol):
    """Who knows of the model calls that are still under way."""

    async def settle(self, worker: str) -> None:
        """Return when the worker's calls have been counted; bounded."""
        ...


class Verifier(Protocol):
    """Runs the commands that prove or refute a claim."""

    async def verify(self, commands: Sequence[str], cwd: Path) -> tuple[Check, ...]: ...


class CallBegun(Value, frozen=True, kw_only=True):
    """One model call that is about to leave the gateway."""

    id: str
    worker: str
    backend: str
    model: str


class CallSize(Value, frozen=True, kw_only=True):
    """How many tokens a call is likely to take; reasoning is output."""

    input: int
    output: int


Sizing = Callable[[], Awaitable[CallSize]]


class Hindrance(Value, frozen=True, kw_only=True):
    """Why a call cannot go out yet, and in how many seconds to ask again."""

    reason: str
    wait_s: float


class CallMade(Value, frozen=True, kw_only=True):
    """One model call that is over.

    `usage` is None if the provider told none; `whole` says that it is the last word: a stream that
    was cut may have told a part. `owed` is False if the provider cannot bill the call: it refused it, or never got it.
    """

    id: str
    worker: str
    session: str
    backend: str
    model: str
    status: int
    usage: Usage | None
    owed: bool
    seconds: float
    whole: bool = True
    error: str = ""


class Moved(Value, frozen=True, kw_only=True):
    """A worker's model calls go to another provider from here on."""

    worker: str
    from_provider: str
    to_provider: str
    reason: str


class CallWitness(Protocol):
    """Who is told what becomes of model calls."""

    async def begun(self, call: CallBegun, size: Sizing) -> Hindrance | None:
        """The call may go out, unless something hinders it now. `size` costs time to find out.

        Raises `BudgetSpent` if it may not go out at all.
        """
        ...

    async def metered(self, call: CallMade) -> None: ...

    async def moved(self, move: Moved) -> None: ...

    async def noticed(self, worker: str, text: str) -> None:
        """Something that the worker's program does not see and its owner should."""
        ...


class Gate(Protocol):
    """Where a worker's model calls go in. The driver says whose session is whose."""

    def base_url(self, backend: str) -> str:
        """The address that stands in for the backend's own `base_url`."""
        ...

    def issue_token(self) -> str:
        """A key for one worker process, good for this gate alone."""
        ...

    def revoke_token(self, token: str) -> None: ...

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Calls of the session are the worker's; with None the gate answers them itself."""
        ...

    def unbind(self, session: str) -> None: ...

    def waiting(self, worker: str) -> float | None:
        """For how long the worker has been waiting for a model; None if it is not."""
        ...


class Classifier(Protocol):
    """Who says what a task is."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        """By its words, and by what it asks to be read, counted on disk within a time limit."""
        ...


class History(Protocol):
    """What earlier tasks of this user took, in all projects."""

    async def add(self, sample: Sample) -> None:
        """A task is over. A disk that refuses costs the lesson, never the task."""
        ...

    async def recent(self) -> Sequence[Sample]:
        """The newest ones; the same object as before if there are no others."""
        ...
