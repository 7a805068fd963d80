"""The protocols by which workers run: drivers, sessions, journal, gateway, tool guard.

One variable of its environment says it, as JSON; the agent takes it out before it starts anything.

Other ports stand beside the values they speak of: `calls`, `ledger`, `health`, `forecasts`, `tasks`, `workspaces`,
`evaluations`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

from goent.domain.events import AnyEvent, DriverEvent, EventEnvelope
from goent.domain.settings import PermissionRule
from goent.domain.types import Check, Dialect, Method, PermissionAnswer, Prompt, Provider, Value


class GuardedCall(Value, frozen=True, kw_only=True):
    """One call, before it runs. `owner` is the worker's own session, `session` perhaps a subagent's.

    `resumes` is whose session the call goes on with, if it is to go on with one.
    `worktree` is the top of the checkout, as the program sees it; `/` where there is none.
    """

    owner: str
    session: str
    call: str
    tool: str
    directory: str
    worktree: str = ""
    resumes: str = ""
    args: Mapping[str, object] = {}

    @property
    def is_own(self) -> bool:
        return self.session == self.owner


class GuardVerdict(Value, frozen=True, kw_only=True):
    """May it run? If not, `message` is what the model is told."""

    allow: bool
    message: str = ""


class ToolGuard(Protocol):
    """Whoever decides on the calls of one process."""

    @property
    def is_loaded(self) -> bool:
        """Whether the process may ask a model: one whose tools would run unasked may not."""
        ...

    def mark_loaded(self, directory: str) -> None:
        """The guard inside the process is in force in this directory."""
        ...

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """May take as long as a person needs to answer."""
        ...

    def shell_environment(self, session: str) -> Mapping[str, str]:
        """Variables for a command of a worker's session; without them it is not started."""
        ...

    def hint(self, session: str, output: str) -> str:
        """What to say after the words of a command that failed; nothing if the sandbox had no part."""
        ...


GATE_VARIABLE = "GOENT_GATE"


class GateModel(Value, frozen=True, kw_only=True):
    """The model that the worker was given."""

    name: str
    backend: str
    model: str
    dialect: Dialect
    context_limit: int | None = None
    options: bytes = b""


class GateAddress(Value, frozen=True, kw_only=True):
    """The value of `GOENT_GATE`. `url` stands in for the backend's own address.

    `writable` is of the project's settings, which a worktree may not hold. `refused` are the tools
    that the worker's rules refuse whatever they are given: the model is not offered them. `sandbox` is
    how its commands are confined; empty if they are not.
    """

    url: str
    token: str
    provider: GateModel
    writable: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    sandbox: str = ""


Emit = Callable[[DriverEvent], Awaitable[None]]
TurnStopReason = Literal["end", "cancelled"]


class WorkerSpec(Value, frozen=True, kw_only=True):
    """All that a driver is told about the worker it is to run.

    `fallbacks` may serve its model calls if the provider cannot. `resume` is the `token` of an
    earlier session of the worker's, whose memory it shall have.
    `asked` questions have been put in its name before: their ids are taken. `allowed_tools` are
    all that go-ent's own agent may use; None: all. `temperature` is for models that are called directly.
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
    temperature: float | None = None


class WorkerLiveness(Value, frozen=True, kw_only=True):
    """Does a silent worker live, and what is it doing? For its owner to read."""

    alive: bool
    detail: str


class WorkerSession(Protocol):
    """One worker's conversation with the program that does the work."""

    @property
    def token(self) -> str:
        """What a later session is opened with to go on where this one was; empty if none can."""
        ...

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        """Take one turn. Raises a `WorkerError` if it fails."""
        ...

    async def cancel(self) -> None:
        """Ask the running turn to stop; `prompt` then returns "cancelled"."""
        ...

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        """Answer a question that the running turn asked; `message` goes with a rejection.

        Whether the program can be told such a message with its no, and goes on.
        """
        ...

    async def liveness(self) -> WorkerLiveness:
        """Look after a turn from which nothing has been heard for long."""
        ...


class Driver(Protocol):
    """One way to run workers."""

    def open(self, spec: WorkerSpec) -> AbstractAsyncContextManager[WorkerSession]:
        """A session that leaves nothing behind when the context closes."""
        ...


class Journal(Protocol):
    """The append-only truth of one project."""

    async def append(self, batch: Sequence[tuple[str, float, AnyEvent]]) -> list[EventEnvelope]:
        """Store (worker, at, event) in one commit; the stamped envelopes come back in order."""
        ...

    async def read(
        self, *, worker: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[EventEnvelope]:
        """Envelopes with `seq > after`, in order."""
        ...

    async def workers(self, *, limit: int = 200) -> list[str]:
        """The newest workers' ids, newest first, and every one that is not closed."""
        ...

    async def swarms(self, *, limit: int = 50) -> list[str]:
        """The newest swarms' ids, newest first."""
        ...


class Meter(Protocol):
    """Who knows of the model calls that are still under way."""

    async def settle(self, worker: str) -> None:
        """Return when the worker's calls have been counted; bounded."""
        ...


class Verifier(Protocol):
    """Runs the commands that prove or refute a claim."""

    async def verify(self, commands: Sequence[str], cwd: Path) -> tuple[Check, ...]: ...


class Gate(Protocol):
    """Where a worker's model calls go in. The driver says whose session is whose."""

    def base_url(self, backend: str) -> str:
        """The address that stands in for the backend's own `base_url`."""
        ...

    def issue_token(self) -> str:
        """A key for one worker process, good for this gate alone."""
        ...

    def revoke_token(self, token: str) -> None: ...

    @property
    def guard_url(self) -> str:
        """Where the guard inside a worker's program asks about tool calls."""
        ...

    def set_guard(self, token: str, guard: ToolGuard) -> None:
        """Tool calls of the process that has the token are decided by `guard`."""
        ...

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Calls of the session are the worker's; with None the gate answers them itself."""
        ...

    def unbind(self, session: str) -> None: ...

    def waiting_s(self, worker: str) -> float | None:
        """For how long the worker has been waiting for a model; None if it is not."""
        ...


class WorkerPasses(Protocol):
    """Says to the daemon which worker a process belongs to, however it was started."""

    def environment(self, worker: str) -> Mapping[str, str]:
        """For whatever is run for the worker: from there it can be looked at, and no other."""
        ...
