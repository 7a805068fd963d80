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
    """The attempt failed, not the answer. `kind` as in `TargetFailure`."""

    exit_code = 3

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


class StreamLogFile(Value, frozen=True, kw_only=True):
    """A target writes a stream log of an attempt there."""

    file_path: str
    target_name: str
    eval_case_id: str | None = None
    attempt: int | None = None


class CaseAttempt(Value, frozen=True, kw_only=True):
    """One try at a case. `cwd` is a directory of its own; `number` counts from 0, `trial` from 1."""

    case: EvalCase
    target: str
    cwd: Path
    number: int = 0
    trial: int = 1
    timeout_s: float = 600.0


class AttemptObserver(Protocol):
    """Who is told what an attempt does while it does it, so that nothing is lost when it is cut off."""

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        """The message of this number, from 0, is whole, or has grown: it replaces the one of that number.

        It stands now in front of the one that has the number `before`, else where it stood, a new one last.
        """
        ...

    def permission_decided(self, decision: PermissionDecision) -> None: ...

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        """What the attempt has taken so far, in all."""
        ...

    def log_started(self, chosen: StreamLogFile) -> None: ...

    def warn(self, text: str) -> None:
        """Something that the attempt can live with, and its user should know."""
        ...


class SilentObserver:
    """The witness where nobody has to know what is done on the way."""

    def message(
        self, number: int, message: TracedMessage, *, before: int | None = None
    ) -> None: ...

    def permission_decided(self, decision: PermissionDecision) -> None: ...

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None: ...

    def log_started(self, chosen: StreamLogFile) -> None: ...

    def warn(self, text: str) -> None: ...


class EvalTarget(Protocol):
    """Somebody who can be given cases."""

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        """Raises `TargetError`. Cancelled, it leaves nothing running."""
        ...


@runtime_checkable
class ConversationalTarget(EvalTarget, Protocol):
    """A target that can be talked to, turn by turn. Others are told each time what was said before."""

    def conversation(self, attempt: CaseAttempt) -> AbstractAsyncContextManager[EvalTarget]:
        """Who is asked in each turn, with no more than what is new, and gives the trace of that turn."""
        ...


class AttemptDirectory(Protocol):
    """The directory of one attempt."""

    @property
    def path(self) -> Path: ...

    async def changes(self) -> str:
        """What the attempt changed in it, as a unified diff; '' if nobody asked for a workspace."""
        ...

    def mark_passed(self) -> None:
        """Nobody has to look at it any more."""
        ...


class AttemptDirectories(Protocol):
    """Who makes such directories."""

    def space(
        self, case: EvalCase, *, target: str, trial: int, number: int
    ) -> AbstractAsyncContextManager[AttemptDirectory]:
        """Raises `TargetError` of the kind `setup_failed`."""
        ...


R = TypeVar("R", bound=Value)


class DaemonRefused(GoentError):
    """It does not do what it was asked; `kind` is the name of its error."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DaemonGone(GoentError):
    """It cannot be reached, or has ended in the middle of it."""


class EvalDaemon(Protocol):
    """One conversation with the daemon. Any number of things can be asked at once."""

    async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
        """Raises `DaemonRefused` or `DaemonGone`."""
        ...

    def events(self, worker: str) -> AbstractAsyncContextManager[AsyncIterator[EventEnvelope]]:
        """All that happens to one worker, from its beginning on. Raises `DaemonGone`."""
        ...


OpenDaemon = Callable[[], AbstractAsyncContextManager[EvalDaemon]]
