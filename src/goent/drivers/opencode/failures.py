"""What does OpenCode's error mean to the caller?

ACP gives the provider's message and OpenCode's name for the error. The status code comes from the
event stream, if the last error there is the one that ended the turn. The gateway's own failures
say their kind in the message, because nothing else of them gets through, and in calm words.
"""

import re
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw

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
from goent.drivers.acp_failures import AUTH_REQUIRED, by_words
from goent.drivers.opencode.shapes import Reading, SessionFault
from goent.llm import calm
from goent.rpc import RpcError
from goent.upstream.told import is_gateways, told_by_gateway

PREFIX = "Internal error: "
_STRANGE_DATABASE = re.compile(
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
    424: ProviderTimeout,  # the gateway's word for a provider that fell silent
    429: RateLimited,
    504: ProviderTimeout,
}
_SERVER_ERROR = 500
_CLIENT_ERROR = 400
_PAYMENT = 402


class _Details(Reading, frozen=True, kw_only=True, rename={"name": "errorName"}):
    name: str = ""


class _Wrapped(Reading, frozen=True, kw_only=True):
    message: str


def classify(error: RpcError, fault: SessionFault | None) -> WorkerError:
    """The refusal of a session or a prompt, as the kind of failure it is."""
    if error.code == AUTH_REQUIRED:
        return ProviderRefused(
            f"OpenCode wants a login: run `opencode auth login` ({error.message})"
        )
    message = _plain(error.message.removeprefix(PREFIX))
    status = fault.data.status if fault and _plain(fault.data.message) in message else None
    return _error(_name(error.data), status, message)


def classify_fault(fault: SessionFault) -> WorkerError:
    """An error as OpenCode's own events tell it."""
    return _error(fault.name, fault.data.status, _plain(fault.data.message or fault.name))


def database_trouble(errors: str, database: Path) -> UnsupportedVersion | None:
    """Of a process that ended as soon as it had looked at what another version has made."""
    if not _STRANGE_DATABASE.search(errors):
        return None
    return UnsupportedVersion(
        f"OpenCode cannot use its database {str(database)!r}, which another version created, "
        "most likely a newer one: update OpenCode with `npm install -g opencode-ai@1`"
    )


def _error(name: str, status: int | None, message: str) -> WorkerError:
    if told := told_by_gateway(message):
        return told
    # A refusal of the gateway's in words that are not known here is no empty account.
    ours = is_gateways(message) and status == _PAYMENT
    by_status = ProviderRefused if ours else _by_status(status)
    kind = _BY_NAME.get(name) or by_status or by_words(message)
    return kind(message if status is None else f"{message} (HTTP {status})")


def _plain(message: str) -> str:
    """An error inside a stream arrives as the JSON that it was."""
    with suppress(msgspec.DecodeError):
        message = msgspec.json.decode(message, type=_Wrapped).message
    return calm.plain(message)


def _name(data: Raw | None) -> str:
    try:
        return msgspec.json.decode(data or b"{}", type=_Details).name
    except msgspec.DecodeError:
        return ""


def _by_status(status: int | None) -> type[WorkerError] | None:
    if status is None:
        return None
    if status >= _SERVER_ERROR:
        return _BY_STATUS.get(status, ProviderDown)
    return _BY_STATUS.get(status, ProviderRefused) if status >= _CLIENT_ERROR else None
