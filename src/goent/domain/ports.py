"""The protocols by which workers run: drivers, sessions, journal, gateway, tool guard.

Other ports are beside the values they use: in `money`, `provider_condition`, `task_profile`, `workspace`,
`sandbox_port`, `local_servers` and `evaluation_messages`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

from goent.domain.events import AnyEvent, DriverEvent, EventEnvelope
from goent.domain.settings import PermissionRule
from goent.domain.types import Check, Dialect, Method, PermissionAnswer, Prompt, Provider, Value


class GuardedCall(Value, frozen=True, kw_only=True):
    """One tool call, before it runs. `owner` is the worker's session, `session` perhaps a subagent's.

    `resumes` is the session that the call resumes, if any. `worktree` is the top of the checkout, as the
    program sees it; `/` if there is none.
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
    """Whether a call may run; if not, `message` is for the model."""

    allow: bool
    message: str = ""


class ToolGuard(Protocol):
    """Decides on the tool calls of one process."""

    @property
    def is_loaded(self) -> bool:
        """Whether the process may call models: without its guard, its tools would run unasked."""
        ...

    def mark_loaded(self, directory: str) -> None:
        """The guard inside the process is in force in this directory."""
        ...

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """Decide on a call; this may take as long as a person needs to answer."""
        ...

    def shell_environment(self, session: str) -> Mapping[str, str]:
        """Variables for a command of a worker's session; without them it is not started."""
        ...

    def hint(self, session: str, output: str) -> str:
        """A hint for the output of a failed command; empty if the sandbox was not the cause."""
        ...


GATE_VARIABLE = "GOENT_GATE"


class GateModel(Value, frozen=True, kw_only=True):
    """The worker's model."""

    name: str
    backend: str
    model: str
    dialect: Dialect
    context_limit: int | None = None
    options: bytes = b""


class GateAddress(Value, frozen=True, kw_only=True):
    """The value of `GOENT_GATE`, as JSON; the agent removes it before it starts anything.

    `url` replaces the backend's own address. `writable` is from the project's settings, which a worktree
    may not contain. `refused` are the tools that the worker's rules always refuse: the model is not offered
    them. `sandbox` are the limits of its commands; empty if there are none.
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
    """The worker that a driver is to run.

    `fallbacks` may serve its model calls if the provider cannot. `resume` is the `token` of an earlier
    session that is resumed. `asked` is the number of earlier questions, whose ids are taken.
    `allowed_tools` limits go-ent's own agent; None means all. `temperature` is for method `api`.
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
    """Whether a silent worker is alive, and what it is doing, in words."""

    alive: bool
    detail: str


class WorkerSession(Protocol):
    """One worker's conversation with the program that does the work."""

    @property
    def token(self) -> str:
        """The token with which the session can be resumed; empty if it cannot."""
        ...

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        """Take one turn. Raises a `WorkerError` if it fails."""
        ...

    async def cancel(self) -> None:
        """Ask the running turn to stop; `prompt` then returns "cancelled"."""
        ...

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        """Answer a question of the running turn; `message` goes with a rejection.

        Returns whether the program accepts such a message and continues.
        """
        ...

    async def liveness(self) -> WorkerLiveness:
        """Check on a turn that has been silent for long."""
        ...


class Driver(Protocol):
    """One way to run workers."""

    def open(self, spec: WorkerSpec) -> AbstractAsyncContextManager[WorkerSession]:
        """A session; when the context closes, nothing of it is left."""
        ...


class Journal(Protocol):
    """The append-only events of one project."""

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
    """Knows the model calls that are in flight."""

    async def settle(self, worker: str) -> None:
        """Return when the worker's calls have been counted; bounded."""
        ...


class Verifier(Protocol):
    """Runs the commands that prove or refute a claim."""

    async def verify(self, commands: Sequence[str], cwd: Path) -> tuple[Check, ...]: ...


class Gate(Protocol):
    """The gateway for workers' model calls. The driver binds sessions to workers."""

    def base_url(self, backend: str) -> str:
        """The address that replaces the backend's own `base_url`."""
        ...

    def issue_token(self) -> str:
        """A key for one worker process, valid at this gateway only."""
        ...

    def revoke_token(self, token: str) -> None: ...

    @property
    def guard_url(self) -> str:
        """Where the guard inside a worker's program asks about tool calls."""
        ...

    def set_guard(self, token: str, guard: ToolGuard) -> None:
        """Let `guard` decide on the tool calls of the process with the token."""
        ...

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Charge calls of the session to the worker; with None the gateway answers them itself."""
        ...

    def unbind(self, session: str) -> None: ...

    def waiting_s(self, worker: str) -> float | None:
        """How long the worker has been waiting for a model; None if it is not waiting."""
        ...


class WorkerPasses(Protocol):
    """Identifies to the daemon the worker that a process belongs to, however it was started."""

    def environment(self, worker: str) -> Mapping[str, str]:
        """Variables for everything run for the worker: they allow a look at that worker only."""
        ...
