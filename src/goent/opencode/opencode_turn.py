"""One turn of OpenCode: how it ended, and what OpenCode's errors mean.

ACP gives the provider's message and OpenCode's name for the error. The status code comes from the
event stream, if the last error there is the one that ended the turn. The gateway's own failures have
their kind in the message, because nothing else of them gets through (`goent.providers.gateway_errors`
words them so that OpenCode does not retry).
"""

import re
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw

from goent.agents.acp_turn import AcpTurn
from goent.agents.agent_connection import AUTH_REQUIRED, INTERNAL_ERROR_PREFIX, error_type_for
from goent.domain.errors import (
    AuthRefused,
    ContextOverflow,
    ModelRefused,
    OutOfCredit,
    ProviderDown,
    ProviderRefused,
    ProviderTimeout,
    RateLimited,
    UnknownModel,
    UnsupportedVersion,
    WorkerError,
)
from goent.opencode.opencode_translator import OpenCodeTranslator
from goent.opencode.server_api import MessageInfo, ServerData, SessionFault
from goent.providers import gateway_errors
from goent.providers.gateway_errors import gateway_failure, is_gateway_message
from goent.rpc.json_rpc import RpcError

REFUSED_FINISH = "content-filter"
_UNUSABLE_DATABASE = re.compile(
    r"Failed to run the query|table \S+ already exists|Database is not empty"
)

_BY_NAME: dict[str, type[WorkerError]] = {
    "ContextOverflowError": ContextOverflow,
    "ContentFilterError": ModelRefused,
    "ProviderAuthError": AuthRefused,
    "ProviderModelNotFoundError": UnknownModel,
}
_BY_STATUS: dict[int, type[WorkerError]] = {
    401: AuthRefused,
    402: OutOfCredit,
    403: AuthRefused,
    404: UnknownModel,
    408: ProviderTimeout,
    424: ProviderTimeout,  # the gateway's status when a provider does not answer
    429: RateLimited,
    504: ProviderTimeout,
}
_SERVER_ERROR = 500
_CLIENT_ERROR = 400
_PAYMENT = 402


class _ErrorDetails(ServerData, frozen=True, kw_only=True, rename={"name": "errorName"}):
    name: str = ""


class _WrappedError(ServerData, frozen=True, kw_only=True):
    message: str


def classify_error(error: RpcError, fault: SessionFault | None) -> WorkerError:
    """The refusal of a session or a prompt, as the kind of failure it is."""
    if error.code == AUTH_REQUIRED:
        return ProviderRefused(
            f"OpenCode requires a login: run `opencode auth login` ({error.message})"
        )
    message = _plain_message(error.message.removeprefix(INTERNAL_ERROR_PREFIX))
    status = fault.data.status if fault and _plain_message(fault.data.message) in message else None
    return _worker_error(_error_name(error.data), status, message)


def classify_fault(fault: SessionFault) -> WorkerError:
    """An error from OpenCode's own events."""
    return _worker_error(
        fault.name, fault.data.status, _plain_message(fault.data.message or fault.name)
    )


def message_failure(info: MessageInfo, model: str) -> WorkerError | None:
    """Why the last message of a turn is a failure; None if it is none."""
    if info.error:
        return classify_fault(info.error)
    return ModelRefused(f"{model} refused to answer") if info.finish == REFUSED_FINISH else None


def explained_fault(known: SessionFault | None, fault: SessionFault) -> SessionFault:
    """The first one with a message: the next may be the same with its stack."""
    return known if known and known.data.message else fault


def database_error(errors: str, database: Path) -> UnsupportedVersion | None:
    """The error of a process that ended because another version made its database."""
    if not _UNUSABLE_DATABASE.search(errors):
        return None
    return UnsupportedVersion(
        f"OpenCode cannot use its database {str(database)!r}, which another version created, "
        "most likely a newer one: update OpenCode with `npm install -g opencode-ai@1`"
    )


def _worker_error(name: str, status: int | None, message: str) -> WorkerError:
    if failure := gateway_failure(message):
        return failure
    # An unknown refusal of the gateway does not mean an empty account.
    ours = is_gateway_message(message) and status == _PAYMENT
    by_status = ProviderRefused if ours else _by_status(status)
    kind = _BY_NAME.get(name) or by_status or error_type_for(message)
    return kind(message if status is None else f"{message} (HTTP {status})")


def _plain_message(message: str) -> str:
    """The message; an error inside a stream arrives as JSON."""
    with suppress(msgspec.DecodeError):
        message = msgspec.json.decode(message, type=_WrappedError).message
    return gateway_errors.unmask_retry_words(message)


def _error_name(data: Raw | None) -> str:
    try:
        return msgspec.json.decode(data or b"{}", type=_ErrorDetails).name
    except msgspec.DecodeError:
        return ""


def _by_status(status: int | None) -> type[WorkerError] | None:
    if status is None:
        return None
    if status >= _SERVER_ERROR:
        return _BY_STATUS.get(status, ProviderDown)
    return _BY_STATUS.get(status, ProviderRefused) if status >= _CLIENT_ERROR else None


class OpenCodeTurn(AcpTurn):
    """A turn with the error that the event stream reported."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(OpenCodeTranslator(cwd))
        self.fault: SessionFault | None = None
        self._fault_noted = anyio.Event()

    def note_fault(self, fault: SessionFault) -> None:
        self.fault = fault
        self._fault_noted.set()

    async def last_fault(self, patience: float) -> SessionFault | None:
        """The error by the event stream, which may arrive after the refusal itself."""
        with anyio.move_on_after(patience):
            await self._fault_noted.wait()
        return self.fault
