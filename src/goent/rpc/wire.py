"""What does one line say, and how do we say it?

A line is a request (method and id), a notification (method alone) or a response. Only the
envelope is decoded; `params`, `result` and `id` stay as the bytes that came in.
"""

import json
import re

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.rpc.errors import INVALID_REQUEST, PARSE_ERROR, RpcError

ABSENT = Raw()
NULL = Raw(b"null")
CANCEL_REQUEST = "$/cancel_request"

# JavaScript writes half an emoji, cut by a stream, as a lone surrogate; no UTF-8 can hold it.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


class Envelope(Struct, frozen=True, gc=False):
    """One message as it came in."""

    jsonrpc: str = ""
    method: str | None = None
    id: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class ErrorBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `error` of a response."""

    code: int
    message: str = ""
    data: Raw | UnsetType = UNSET


class CancelRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The parameters of `$/cancel_request`."""

    request_id: Raw


class Refused(RpcError):
    """The line is no message; `id` is what the refusal is to carry."""

    def __init__(self, code: int, message: str, *, id: Raw = NULL) -> None:  # noqa: A002 (its name)
        super().__init__(code, message)
        self.id = id


class _Call(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    id: int
    method: str
    params: object | UnsetType = UNSET


class _Notification(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    method: str
    params: object | UnsetType = UNSET


class _Result(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    id: Raw
    result: object


class _Error(Struct, frozen=True, kw_only=True, gc=False):
    jsonrpc: str = "2.0"
    id: Raw
    error: ErrorBody


_decode = msgspec.json.Decoder(Envelope).decode
_encode = msgspec.json.Encoder().encode


def read(line: bytes) -> Envelope:
    """The message on this line, or `Refused` with the code and id to answer with."""
    try:
        message = _decode(line)
        if not line.isascii():  # the decoder does not look into what stays raw
            line.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = _look_closer(line)
    if message.method is None:
        if message.result is ABSENT and message.error is ABSENT:
            raise Refused(INVALID_REQUEST, "neither a method nor a response", id=usable(message.id))
    elif message.jsonrpc != "2.0" or (message.id is not ABSENT and not _is_id(message.id)):
        raise Refused(INVALID_REQUEST, "not a JSON-RPC 2.0 request", id=usable(message.id))
    return message


def usable(raw: Raw) -> Raw:
    """The id to answer under: null if there is none, or if it is no id."""
    return raw if raw is not ABSENT and _is_id(raw) else NULL


def call(number: int, method: str, params: object) -> bytes:
    return _line(_Call(id=number, method=method, params=UNSET if params is None else params))


def notification(method: str, params: object) -> bytes:
    return _line(_Notification(method=method, params=UNSET if params is None else params))


def result(number: Raw, value: object) -> bytes:
    return _line(_Result(id=number, result=value))


def failure(number: Raw, error: RpcError) -> bytes:
    data = UNSET if error.data is None else error.data
    body = ErrorBody(code=error.code, message=error.message, data=data)
    return _line(_Error(id=number, error=body))


def mended(text: bytes) -> bytes:
    """JSON without half characters: not every reader takes them."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], text)


def _look_closer(line: bytes) -> Envelope:
    try:
        line.decode()
        line = mended(line)
        msgspec.json.decode(line, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(PARSE_ERROR, f"parse error: {error}") from error
    except RecursionError as error:
        raise Refused(PARSE_ERROR, "parse error: nested too deeply") from error
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise Refused(INVALID_REQUEST, f"invalid request: {error}", id=_id_of(line)) from error


class _Identified(Struct):
    id: Raw = ABSENT


def _id_of(line: bytes) -> Raw:
    try:
        return usable(msgspec.json.decode(line, type=_Identified).id)
    except msgspec.ValidationError:
        return NULL


def _is_id(raw: Raw) -> bool:
    """Valid JSON shows its type in its first byte; an id is a string, a number or null."""
    return bytes(raw)[:1] in b'"-0123456789n'


def _line(message: Struct) -> bytes:
    try:
        line = _encode(message)
    except UnicodeEncodeError:  # half a character, such as in a file name that is not UTF-8
        plain: object = msgspec.to_builtins(message, enc_hook=_opened)
        line = mended(json.dumps(plain).encode())
    if b"\n" in line:  # only a raw part can bring one along
        line = msgspec.json.format(line, indent=-1)
    return line + b"\n"


def _opened(raw: object) -> object:
    return msgspec.json.decode(raw) if isinstance(raw, Raw) else raw
