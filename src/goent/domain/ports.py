"""What the core needs to have workers run, said as protocols; `composition` passes the real ones in.

Other ports stand beside the values they speak of: `calls`, `ledger`, `health`, `forecasts`, `tasks`, `workspaces`,
`evaluations`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

from goent.domain.events import AnyEvent, DriverEvent, Envelope
from goent.domain.guard import ToolGuard
from goent.domain.settings import PermissionRule
from goent.domain.types import Answer, Check, Method, Prompt, Provider, Value

Emit = Callable[[DriverEvent], Awaitable[None]]
StopReason = Literal["end", "cancelled"]


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

    async def answer(self, permission_id: str, option: Answer, message: str = "") -> bool:
        """Answer a question that the running turn asked; `message` goes with a rejection.

        Whether the program can be told such a message with its no, and goes on.
        """
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

    def attend(self, token: str, guard: ToolGuard) -> None:
        """Tool calls of the process that has the token are decided by `guard`."""
        ...

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Calls of the session are the worker's; with None the gate answers them itself."""
        ...

    def unbind(self, session: str) -> None: ...

    def waiting(self, worker: str) -> float | None:
        """For how long the worker has been waiting for a model; None if it is not."""
        ...


class WorkerPasses(Protocol):
    """Says to the daemon which worker a process belongs to, however it was started."""

    def environment(self, worker: str) -> Mapping[str, str]:
        """For whatever is run for the worker: from there it can be looked at, and no other."""
        ...
