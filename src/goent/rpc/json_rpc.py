"""JSON-RPC 2.0 messages, one per line, and the errors that they carry.

A line is a request (method and id), a notification (method alone) or a response. Only the
envelope is decoded; `params`, `result` and `id` stay as the received bytes.
"""

import json
import re
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.domain.errors import GoentError
from goent.domain.input_mistakes import ARGUMENTS, explain_undecodable

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
TOO_MANY_REQUESTS = -32001

T = TypeVar("T")


class RpcError(GoentError):
    """A refused request: by the peer, or by a handler of ours that raises it."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = None if data is None else Raw(msgspec.json.encode(data))


class MethodNotFound(RpcError):
    """The peer called an unknown method."""

    def __init__(self, method: str) -> None:
        super().__init__(METHOD_NOT_FOUND, f"method not found: {method!r}")


class InvalidParams(RpcError):
    """The parameters do not fit the method."""

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(INVALID_PARAMS, f"invalid params: {message}", data)


class BadReply(GoentError):
    """The peer's reply is not what the method promises."""


class ConnectionLost(GoentError):
    """The connection is closed, by the peer or by us."""


def decode_params(raw: Raw, kind: type[T]) -> T:
    """The parameters as a typed value; absent and `null` stand for an empty object."""
    given = Raw(b"{}") if bytes(raw) in (b"", b"null") else raw
    try:
        return msgspec.json.decode(given, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(explain_undecodable(error, given, kind, ARGUMENTS)) from error


ABSENT = Raw()
NULL = Raw(b"null")
CANCEL_REQUEST = "$/cancel_request"

# JavaScript writes half an emoji, cut by a stream, as a lone surrogate, which UTF-8 cannot encode.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


class RpcMessage(Struct, frozen=True, gc=False):
    """One received message."""

    jsonrpc: str = ""
    method: str | None = None
    id: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class RpcErrorBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `error` of a response."""

    code: int
    message: str = ""
    data: Raw | UnsetType = UNSET


class CancelParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The parameters of `$/cancel_request`."""

    request_id: Raw


class InvalidMessage(RpcError):
    """A line that is not a message; `id` is the one to refuse it under."""

    def __init__(self, code: int, message: str, *, id: Raw = NULL) -> None:  # noqa: A002 (its name)
        super().__init__(code, message)
        self.id = id


class _RequestLine(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    id: int
    method: str
    params: object | UnsetType = UNSET


class _NotificationLine(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    method: str
    params: object | UnsetType = UNSET


class _ResultLine(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    id: Raw
    result: object


class _ErrorLine(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    id: Raw
    error: RpcErrorBody


_decode = msgspec.json.Decoder(RpcMessage).decode
_encode = msgspec.json.Encoder().encode


def read_message(line: bytes) -> RpcMessage:
    """The message on this line. Raises `InvalidMessage` with the code and id to answer with."""
    try:
        message = _decode(line)
        if not line.isascii():  # the decoder does not look into what stays raw
            line.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = _read_repaired(line)
    if message.method is None:
        if message.result is ABSENT and message.error is ABSENT:
            raise InvalidMessage(
                INVALID_REQUEST, "neither a method nor a response", id=usable_id(message.id)
            )
    elif message.jsonrpc != "2.0" or (message.id is not ABSENT and not _is_id(message.id)):
        raise InvalidMessage(
            INVALID_REQUEST, "not a JSON-RPC 2.0 request", id=usable_id(message.id)
        )
    return message


def usable_id(raw: Raw) -> Raw:
    """The id to answer under: null if it is missing or invalid."""
    return raw if raw is not ABSENT and _is_id(raw) else NULL


def request_line(number: int, method: str, params: object) -> bytes:
    given = UNSET if params is None else params
    return _encode_line(_RequestLine(id=number, method=method, params=given))


def notification_line(method: str, params: object) -> bytes:
    given = UNSET if params is None else params
    return _encode_line(_NotificationLine(method=method, params=given))


def result_line(number: Raw, value: object) -> bytes:
    return _encode_line(_ResultLine(id=number, result=value))


def error_line(number: Raw, error: RpcError) -> bytes:
    data = UNSET if error.data is None else error.data
    body = RpcErrorBody(code=error.code, message=error.message, data=data)
    return _encode_line(_ErrorLine(id=number, error=body))


def reply_error(error: Raw) -> RpcError | BadReply:
    """The error of a response, as an exception."""
    try:
        body = msgspec.json.decode(error, type=RpcErrorBody)
    except msgspec.DecodeError as cause:
        return BadReply(f"the peer sent an invalid error: {bytes(error)[:200]!r} ({cause})")
    return RpcError(body.code, body.message, None if body.data is UNSET else body.data)


def replace_lone_surrogates(text: bytes) -> bytes:
    """JSON without lone surrogates, which not every reader accepts."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], text)


def _read_repaired(line: bytes) -> RpcMessage:
    try:
        line.decode()
        line = replace_lone_surrogates(line)
        msgspec.json.decode(line, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMessage(PARSE_ERROR, f"parse error: {error}") from error
    except RecursionError as error:
        raise InvalidMessage(PARSE_ERROR, "parse error: nested too deeply") from error
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise InvalidMessage(
            INVALID_REQUEST, f"invalid request: {error}", id=_find_id(line)
        ) from error


class _IdOnly(Struct):
    id: Raw = ABSENT


def _find_id(line: bytes) -> Raw:
    try:
        return usable_id(msgspec.json.decode(line, type=_IdOnly).id)
    except msgspec.ValidationError:
        return NULL


def _is_id(raw: Raw) -> bool:
    """An id is a string, a number or null; the first byte of valid JSON shows its type."""
    return bytes(raw)[:1] in b'"-0123456789n'


def _encode_line(message: Struct) -> bytes:
    try:
        line = _encode(message)
    except UnicodeEncodeError:  # a lone surrogate, such as in a file name that is not UTF-8
        plain: object = msgspec.to_builtins(message, enc_hook=_decode_raw)
        line = replace_lone_surrogates(json.dumps(plain).encode())
    if b"\n" in line:  # only raw parts can contain one
        line = msgspec.json.format(line, indent=-1)
    return line + b"\n"


def _decode_raw(raw: object) -> object:
    return msgspec.json.decode(raw) if isinstance(raw, Raw) else raw
