"""What is said of a turn that failed?"""

from msgspec.structs import replace

from goent.domain.errors import (
    GoentError,
    ProtocolError,
    ProviderUnavailable,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.ports import WorkerSpec
from goent.domain.types import Failure

# The provider or the program is at fault, not the work: another provider may do.
ELSEWHERE = (ProviderUnavailable, WorkerCrashed, ProtocolError)


def as_failure(error: Exception) -> Failure:
    if isinstance(error, WorkerError):
        return Failure(kind=error.kind, message=str(error), retryable=error.retryable)
    if isinstance(error, GoentError):
        return Failure(kind="environment", message=str(error))
    return Failure(kind="internal", message=f"a fault of go-ent's own: {error!r}; see the log")


def failure_of(error: WorkerError, spec: WorkerSpec) -> Failure:
    """With the provider that would have been next, if the task was not allowed to move."""
    failure, others = as_failure(error), spec.provider.fallbacks
    if isinstance(error, ELSEWHERE) and others and not spec.fallbacks:
        return replace(failure, retry_with=others[0])
    return failure
