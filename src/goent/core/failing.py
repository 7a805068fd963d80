"""What is said of a turn that failed?"""

from goent.domain.errors import (
    GoentError,
    ProtocolError,
    ProviderUnavailable,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.types import Failure

# The provider or the program is at fault, not the work: another provider may do.
ELSEWHERE = (ProviderUnavailable, WorkerCrashed, ProtocolError)


def as_failure(error: Exception) -> Failure:
    if isinstance(error, WorkerError):
        return Failure(kind=error.kind, message=str(error), retryable=error.retryable)
    if isinstance(error, GoentError):
        return Failure(kind="environment", message=str(error))
    return Failure(kind="internal", message=f"a fault of go-ent's own: {error!r}; see the log")
