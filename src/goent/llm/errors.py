"""How do the two dialects say that something went wrong?"""

import msgspec
from msgspec import Struct

from goent.domain.types import Dialect

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
    message: str = ""


class _Told(Struct):
    error: _Detail | str | None = None
    message: str = ""


_decode = msgspec.json.Decoder(_Told).decode


def error_text(body: bytes) -> str:
    """The provider's own words, or the beginning of whatever it sent instead."""
    try:
        told = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = _Told()
    detail = told.error.message if isinstance(told.error, _Detail) else told.error
    text = detail or told.message or body.decode(errors="replace").strip()
    return text[:LONGEST]


def error_body(dialect: Dialect, status: int, message: str) -> bytes:
    """An answer's body that says so in the vendor's shape."""
    kind = _TYPES.get(status, "api_error")
    if dialect == "anthropic":
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
    error = {"message": message, "type": kind, "param": None, "code": None}
    return msgspec.json.encode({"error": error})


def error_event(dialect: Dialect, message: str) -> bytes:
    """The same in the middle of a stream."""
    name = b"event: error\n" if dialect == "anthropic" else b""
    return name + b"data: " + error_body(dialect, 500, message) + b"\n\n"
