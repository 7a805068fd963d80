"""What can go wrong between two peers, and the number it has on the wire."""

from typing import TypeVar

import msgspec
from msgspec import Raw

from goent.domain.errors import GoentError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
TOO_MANY_REQUESTS = -32001

T = TypeVar("T")


class RpcError(GoentError):
    """A request was refused: by the other peer, or by us when a handler raises it."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = None if data is None else Raw(msgspec.json.encode(data))


class MethodNotFound(RpcError):
    """The peer asks for something that we do not do."""

    def __init__(self, method: str) -> None:
        super().__init__(METHOD_NOT_FOUND, f"method not found: {method!r}")


class InvalidParams(RpcError):
    """The parameters are not those of the method."""

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(INVALID_PARAMS, f"invalid params: {message}", data)


class BadReply(GoentError):
    """The peer answered, but not with what the method promises."""


class ConnectionLost(GoentError):
    """The peer is gone, or we have hung up: nothing more can be asked or said."""


def decode_params(raw: Raw, kind: type[T]) -> T:
    """The parameters as a typed value; absent and `null` stand for an empty object."""
    try:
        return msgspec.json.decode(b"{}" if bytes(raw) in (b"", b"null") else raw, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(str(error)) from error
