"""Defines the ports between a run, its targets, their workspaces and the daemon."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from goent.domain.errors import GoentError
from goent.domain.events import EventEnvelope
from goent.domain.types import Value
from goent.evals.suites import EvalCase
from goent.evals.traces import PermissionDecision, TokenUsage, Trace, TracedMessage


class TargetError(GoentError):
    """The attempt itself failed. `kind` is that of `TargetFailure`."""

    exit_code = 3

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


class StreamLogFile(Value, frozen=True, kw_only=True):
    """The file to which a target writes the log of an attempt."""

    file_path: str
    target_name: str
    eval_case_id: str | None = None
    attempt: int | None = None


class CaseAttempt(Value, frozen=True, kw_only=True):
    """One try at a case, in its own directory `cwd`. `number` counts from 0, `trial` from 1."""

    case: EvalCase
    target: str
    cwd: Path
    number: int = 0
    trial: int = 1
    timeout_s: float = 600.0


class AttemptObserver(Protocol):
    """Gets what an attempt does as it happens, so that nothing is lost if it is cut off."""

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        """A new message with this number, from 0, or a longer version of an earlier one.

        It moves in front of the message `before`; otherwise it keeps its place, a new one at the end.
        """
        ...

    def permission_decided(self, decision: PermissionDecision) -> None: ...

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        """The total usage of the attempt so far."""
        ...

    def log_started(self, chosen: StreamLogFile) -> None: ...

    def warn(self, text: str) -> None:
        """A problem that does not fail the attempt."""
        ...


class SilentObserver:
    """Ignores everything."""

    def message(
        self, number: int, message: TracedMessage, *, before: int | None = None
    ) -> None: ...

    def permission_decided(self, decision: PermissionDecision) -> None: ...

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None: ...

    def log_started(self, chosen: StreamLogFile) -> None: ...

    def warn(self, text: str) -> None: ...


class ForwardingObserver:
    """Forwards everything to another observer."""

    def __init__(self, observer: AttemptObserver) -> None:
        self._observer = observer

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        self._observer.message(number, message, before=before)

    def permission_decided(self, decision: PermissionDecision) -> None:
        self._observer.permission_decided(decision)

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self._observer.usage_changed(usage, cost_usd)

    def log_started(self, chosen: StreamLogFile) -> None:
        self._observer.log_started(chosen)

    def warn(self, text: str) -> None:
        self._observer.warn(text)


class EvalTarget(Protocol):
    """Can be given cases."""

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        """Raises `TargetError`. If cancelled, it leaves nothing running."""
        ...


@runtime_checkable
class ConversationalTarget(EvalTarget, Protocol):
    """A target that remembers earlier turns. Others get the whole history with each turn."""

    def conversation(self, attempt: CaseAttempt) -> AbstractAsyncContextManager[EvalTarget]:
        """Yields a target that gets only what is new in each turn, and returns the trace of the turn."""
        ...


class AttemptDirectory(Protocol):
    """The directory of one attempt."""

    @property
    def path(self) -> Path: ...

    async def changes(self) -> str:
        """The attempt's changes as a unified diff; '' without a workspace."""
        ...

    def mark_passed(self) -> None:
        """It need not be kept for inspection."""
        ...


class AttemptDirectories(Protocol):
    """Makes directories for attempts."""

    def space(
        self, case: EvalCase, *, target: str, trial: int, number: int
    ) -> AbstractAsyncContextManager[AttemptDirectory]:
        """Raises `TargetError` of the kind `setup_failed`."""
        ...


R = TypeVar("R", bound=Value)


class DaemonRefused(GoentError):
    """The daemon refused a request; `kind` is the name of its error."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DaemonGone(GoentError):
    """The daemon is unreachable, or has ended during a request."""


class EvalDaemon(Protocol):
    """A connection to the daemon, for any number of parallel requests."""

    async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
        """Raises `DaemonRefused` or `DaemonGone`."""
        ...

    def events(self, worker: str) -> AbstractAsyncContextManager[AsyncIterator[EventEnvelope]]:
        """All events of a worker, from its first. Raises `DaemonGone`."""
        ...


OpenDaemon = Callable[[], AbstractAsyncContextManager[EvalDaemon]]
