"""Which JSON-RPC error does a client get for what went wrong?"""

from goent.acp.base import Message
from goent.agent.refusing import AuthRequired, UnknownSession
from goent.domain.errors import GoentError, RequestError, WorkerError
from goent.rpc import RpcError
from goent.rpc.errors import INTERNAL_ERROR, INVALID_PARAMS

AUTH_REQUIRED = -32000
NOT_FOUND = -32002


class Trouble(Message, frozen=True, kw_only=True, omit_defaults=False):
    """The `data` of an error that is nobody's fault at the client."""

    kind: str
    retryable: bool
    message: str


def refusal(error: GoentError) -> RpcError:
    """Sorted by what the client can do: log in, name another session, ask differently, or wait."""
    words = str(error)
    match error:
        case RpcError():
            return error
        case AuthRequired():
            return RpcError(AUTH_REQUIRED, f"authentication required: {words}")
        case UnknownSession():
            return RpcError(NOT_FOUND, words)
        case RequestError():
            return RpcError(INVALID_PARAMS, words)
        case WorkerError():
            trouble = Trouble(kind=error.kind, retryable=error.retryable, message=words)
        case _:
            trouble = Trouble(kind=type(error).__name__, retryable=False, message=words)
    return RpcError(INTERNAL_ERROR, words, trouble)
