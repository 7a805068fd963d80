"""The errors that go-ent raises, sorted by what the caller should do about them.

GoentError
├── ConfigError             fix a file and retry                    exit 2
├── RequestError            cannot be served as asked               MCP tool error, JSON-RPC -32602
│   └── UnknownWorker · UnknownSwarm · WorkerBusy · WorkerIsClosed · GoesOnElsewhere · NoRoute ·
│       BudgetExceeded · StartedByWorker
├── EnvironmentTrouble      go-ent or the machine is at fault       exit 3
│   └── OpenCodeMissing · Ending
└── WorkerError             one worker failed, others continue      a Failure in its result
    ├── ProviderUnavailable      another provider may succeed: RateLimited (AtLimit) · ProviderTimeout ·
    │                            OutOfCredit · ProviderDown (ServerNotRunning · Overloaded)
    ├── ProviderRefused (AuthRefused) · UnknownModel · ContextOverflow · ModelRefused
    │                            the provider refused the call
    ├── BudgetSpent              no money left
    ├── PermissionDenied · PermissionBypassed · NotTrusted · VerifyFailed · TurnTimeout · Stalled ·
    │   NothingSaid              the turn failed
    ├── WorkspaceLost            its own folder is gone
    └── WorkerCrashed · ProtocolError · UnsupportedVersion     its program failed

Foreign errors are translated once, in the driver or the gateway. Cancellation is not an error.
"""

from typing import ClassVar


class GoentError(Exception):
    """The root: everything go-ent raises on purpose."""

    exit_code: ClassVar[int] = 3


class ConfigError(GoentError):
    """A file contains a mistake; the message names file, line and key."""

    exit_code = 2


class RulesMistaken(ConfigError):
    """Only the routing rules contain a mistake: the earlier rules may stay in force."""


class RequestError(GoentError):
    """The call cannot be served as asked; the message names the value and the remedy."""

    exit_code = 2


class UnknownWorker(RequestError):
    """No worker of this project has that id."""


class UnknownSwarm(RequestError):
    """No swarm of this project has that id."""


class WorkerBusy(RequestError):
    """A turn is in progress, and the caller did not ask to queue."""


class WorkerIsClosed(RequestError):
    """The worker accepts no further prompt."""


class GoesOnElsewhere(RequestError):
    """Another process has continued the session."""


class NoRoute(RequestError):
    """No provider, model and method fit what was asked."""


class BudgetExceeded(RequestError):
    """The task is likely to cost more than a hard budget has left."""


class StartedByWorker(RequestError):
    """A process that a worker started asked for more than that worker's status."""


class EnvironmentTrouble(GoentError):
    """Something in the environment is missing or broken; the message names the remedy."""


class OpenCodeMissing(EnvironmentTrouble):
    """No `opencode` is installed."""


class Ending(EnvironmentTrouble):
    """Nothing was done, because this go-ent is ending: the request can be sent to the next one."""


class WorkerError(GoentError):
    """One worker failed. `kind` goes into the result's failure."""

    exit_code = 1
    kind: ClassVar[str] = "worker_error"
    retryable: ClassVar[bool] = False


class ProviderUnavailable(WorkerError):
    """The provider is at fault, not the work: another one may succeed."""

    kind = "provider_unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s  # as the provider asked


class RateLimited(ProviderUnavailable):
    """The provider asks to retry later."""

    kind = "rate_limited"


class AtLimit(RateLimited):
    """go-ent's own limit for the provider is reached; the provider itself has not failed."""


class ProviderTimeout(ProviderUnavailable):
    """The provider did not answer in time."""

    kind = "provider_timeout"


class ProviderDown(ProviderUnavailable):
    """The provider failed or could not be reached."""

    kind = "provider_down"


class ServerNotRunning(ProviderDown):
    """Nothing listens at the address of a local model server."""


class Overloaded(ProviderDown):
    """The provider reports that it is overloaded."""

    kind = "provider_overloaded"


class OutOfCredit(ProviderUnavailable):
    """The account with the provider is empty: retrying there does not help."""

    kind = "out_of_credit"
    retryable = False


class ProviderRefused(WorkerError):
    """The provider refused the call: a bad key, an unknown model, a bad request."""

    kind = "provider_refused"


class AuthRefused(ProviderRefused):
    """The provider does not accept the key, or does not allow it the call."""

    kind = "auth_refused"


class BudgetSpent(WorkerError):
    """The next model call would cost more than a hard budget has left."""

    kind = "budget_exceeded"


class ContextOverflow(WorkerError):
    """The conversation no longer fits the model's window."""

    kind = "context_overflow"


class UnknownModel(WorkerError):
    """The provider, or the worker's program, does not know the requested model."""

    kind = "unknown_model"


class WorkerCrashed(WorkerError):
    """The worker's process ended by itself; with `session_lives`, its session can be resumed."""

    kind = "worker_crashed"
    retryable = True

    def __init__(
        self,
        message: str,
        *,
        returncode: int | None = None,
        stderr: str = "",
        session_lives: bool = False,
    ) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr
        self.session_lives = session_lives


class ProtocolError(WorkerError):
    """The worker's program sent something that its protocol does not allow."""

    kind = "protocol_error"


class UnsupportedVersion(WorkerError):
    """The worker's program has a version that go-ent does not support."""

    kind = "unsupported_version"


class PermissionDenied(WorkerError):
    """A permission was refused, and that ended the turn."""

    kind = "permission_denied"


class PermissionBypassed(WorkerError):
    """The worker did something without permission; its effects are in place."""

    kind = "permission_bypassed"


class NotTrusted(WorkerError):
    """Files in its folder would have run something that is not trusted: see `go-ent trust`."""

    kind = "not_trusted"


class VerifyFailed(WorkerError):
    """The worker claimed success; a verify command says otherwise."""

    kind = "verify_failed"


class WorkspaceLost(WorkerError):
    """The worker's own folder was removed with its content."""

    kind = "workspace_lost"
    retryable = True


class TurnTimeout(WorkerError):
    """The turn took longer than its `timeout_s`."""

    kind = "timeout"
    retryable = True


class Stalled(WorkerError):
    """The turn fell silent, and no sign of work was seen."""

    kind = "stalled"
    retryable = True


class ModelRefused(WorkerError):
    """The model declined to answer."""

    kind = "refused"


class NothingSaid(WorkerError):
    """The turn ended without text, edits or commands, so nothing can be claimed."""

    kind = "empty_turn"
    retryable = True
