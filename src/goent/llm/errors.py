"""How do the two dialects say that something went wrong?"""

from contextlib import suppress

import msgspec
from msgspec import Struct

from goent.domain.types import Dialect, Value

LONGEST = 500  # characters of a provider's message that are worth keeping

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    504: "timeout_error",
}


class _Detail(Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class _Told(Struct):
    error: _Detail | str | None = None
    message: str | None = None
    detail: str | None = None
    code: str | int | None = None


class ErrorWords(Value, frozen=True, kw_only=True):
    """What an error says for people, and the words by which programs know it."""

    message: str
    kind: str = ""
    code: str = ""


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(_Told).decode
_decode_list = msgspec.json.Decoder(tuple[_Told]).decode  # Google's way


def error_words(body: bytes) -> ErrorWords:
    """The provider's own words, or the beginning of whatever it sent instead."""
    told = _told(body)
    detail = told.error if isinstance(told.error, _Detail) else _Detail()
    said = told.error if isinstance(told.error, str) else detail.message
    # Cut before it is decoded: a page of megabytes is not worth it.
    text = said or told.message or told.detail or body[: 4 * LONGEST].decode(errors="replace")
    code = told.code if detail.code is None else detail.code
    return ErrorWords(
        message=text.strip()[:LONGEST],
        kind=detail.type or "",
        code="" if code is None else str(code),
    )


def _told(body: bytes) -> _Told:
    with suppress(*_UNREADABLE):
        return _decode(body)
    with suppress(*_UNREADABLE):
        return _decode_list(body)[0]
    return _Told()


def error_body(dialect: Dialect, status: int, message: str, code: str | None = None) -> bytes:
    """An answer's body that says so in the vendor's shape."""
    kind = _TYPES.get(status, "api_error")
    if dialect == "anthropic":
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
    error = {"message": message, "type": kind, "param": None, "code": code}
    return msgspec.json.encode({"error": error})


def error_event(dialect: Dialect, message: str) -> bytes:
    """The same in the middle of a stream."""
    name = b"event: error\n" if dialect == "anthropic" else b""
    return name + b"data: " + error_body(dialect, 500, message) + b"\n\n"
