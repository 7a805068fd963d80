"""What can go wrong, sorted by what the caller should do about it.

GoentError
├── ConfigError             fix a file, start again                 exit 2
├── RequestError            cannot be served as asked               MCP tool error, JSON-RPC -32602
│   └── UnknownWorker · UnknownSwarm · WorkerBusy · WorkerIsClosed · GoesOnElsewhere · NoRoute ·
│       BudgetExceeded · StartedByWorker
├── EnvironmentTrouble      go-ent or the machine                   exit 3
│   └── OpenCodeMissing · Ending
└── WorkerError             one worker failed, its siblings go on   a Failure in its result
    ├── ProviderUnavailable    → a fallback may do:  RateLimited (AtLimit) · ProviderTimeout · OutOfCredit ·
    │                            ProviderDown (Overloaded)
    ├── ProviderRefused (AuthRefused) · UnknownModel · ContextOverflow · ModelRefused
    │                            the provider's own no
    ├── BudgetSpent              the money is used up
    ├── PermissionDenied · PermissionBypassed · VerifyFailed · TurnTimeout · Stalled · NothingSaid   how the turn went
    ├── WorkspaceLost            its own folder is gone
    └── WorkerCrashed · ProtocolError · UnsupportedVersion                 the program under it

Foreign errors are translated once, in the driver or the gateway. Cancellation is no error.
"""

from typing import ClassVar


class GoentError(Exception):
    """The root: everything go-ent raises on purpose."""

    exit_code: ClassVar[int] = 3


class ConfigError(GoentError):
    """A file says something we cannot use; the message names file, line and key."""

    exit_code = 2


class RulesMistaken(ConfigError):
    """Nothing but the routing rules is at fault: older ones may stay in force."""


class RequestError(GoentError):
    """The call cannot be served as asked; the message names the value and the remedy."""

    exit_code = 2


class UnknownWorker(RequestError):
    """No worker of this project has that id."""


class UnknownSwarm(RequestError):
    """No swarm of this project has that id."""


class WorkerBusy(RequestError):
    """A turn is under way, and the caller did not ask to queue."""


class WorkerIsClosed(RequestError):
    """The worker takes no further prompt."""


class GoesOnElsewhere(RequestError):
    """Another process has gone on with a session of the agent's."""


class NoRoute(RequestError):
    """No provider, model and method fit what was asked."""


class BudgetExceeded(RequestError):
    """The task is likely to cost more than a hard budget has left."""


class StartedByWorker(RequestError):
    """A process that a worker started asked for more than a look at that worker."""


class EnvironmentTrouble(GoentError):
    """Something around us is missing or broken; the message says how to mend it."""


class OpenCodeMissing(EnvironmentTrouble):
    """There is no `opencode` to run."""


class Ending(EnvironmentTrouble):
    """Nothing was done, because this go-ent ends: the next one can be asked."""


class WorkerError(GoentError):
    """One worker failed. `kind` goes into the result's failure."""

    exit_code = 1
    kind: ClassVar[str] = "worker_error"
    retryable: ClassVar[bool] = False


class ProviderUnavailable(WorkerError):
    """The provider, not the work, is at fault: another one may do."""

    kind = "provider_unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s  # what the provider asked for, if it did


class RateLimited(ProviderUnavailable):
    """The provider asks us to come back later."""

    kind = "rate_limited"


class AtLimit(RateLimited):
    """Our own limit for the provider is reached: it has failed nobody."""


class ProviderTimeout(ProviderUnavailable):
    """The provider did not answer in time."""

    kind = "provider_timeout"


class ProviderDown(ProviderUnavailable):
    """The provider failed or could not be reached."""

    kind = "provider_down"


class ServerNotRunning(ProviderDown):
    """Nothing listens where a model server of the user's own should be."""


class Overloaded(ProviderDown):
    """The provider has more to do than it can."""

    kind = "provider_overloaded"


class OutOfCredit(ProviderUnavailable):
    """The provider's account is empty: trying again there does not help."""

    kind = "out_of_credit"
    retryable = False


class ProviderRefused(WorkerError):
    """The provider turned the call down: a bad key, an unknown model, a bad request."""

    kind = "provider_refused"


class AuthRefused(ProviderRefused):
    """The provider does not take the key, or does not let it do this."""

    kind = "auth_refused"


class BudgetSpent(WorkerError):
    """The next model call would cost more than a hard budget has left."""

    kind = "budget_exceeded"


class ContextOverflow(WorkerError):
    """The conversation no longer fits the model's window."""

    kind = "context_overflow"


class UnknownModel(WorkerError):
    """The provider, or the worker's program, does not know the model that was asked for."""

    kind = "unknown_model"


class WorkerCrashed(WorkerError):
    """The worker's process ended by itself; `session_lives`: another one can go on with its session."""

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
    """The worker's program said something that its protocol does not allow."""

    kind = "protocol_error"


class UnsupportedVersion(WorkerError):
    """The worker's program has a version that go-ent does not support."""

    kind = "unsupported_version"


class PermissionDenied(WorkerError):
    """A permission was refused, and that ended the turn."""

    kind = "permission_denied"


class PermissionBypassed(WorkerError):
    """The worker did what nobody had allowed; what it did is in place."""

    kind = "permission_bypassed"


class NotTrusted(WorkerError):
    """Files where it was to work would have run something that nobody has trusted: see `go-ent trust`."""

    kind = "not_trusted"


class VerifyFailed(WorkerError):
    """The worker claimed success; a verify command says otherwise."""

    kind = "verify_failed"


class WorkspaceLost(WorkerError):
    """The worker's own folder was removed, and what was in it."""

    kind = "workspace_lost"
    retryable = True


class TurnTimeout(WorkerError):
    """The turn took longer than its `timeout_s`."""

    kind = "timeout"
    retryable = True


class Stalled(WorkerError):
    """The turn fell silent, and nothing of it was seen to work any more."""

    kind = "stalled"
    retryable = True


class ModelRefused(WorkerError):
    """The model declined to answer."""

    kind = "refused"


class NothingSaid(WorkerError):
    """The turn ended without a word, an edit or a command: no claim can rest on it."""

    kind = "empty_turn"
    retryable = True
