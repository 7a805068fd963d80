"""How is a client greeted before the agent is loaded?

Whoever starts an agent waits for its first reply, and to load what the agent needs takes longer
than to say who it is. So the first line is read and answered here, and the client is busy with the
answer meanwhile. What is not the plain beginning of a v1 connection is passed on as it came.
"""

import os
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from goent.acp.messages import INITIALIZE, ClientCapabilities, InitializeResult
from goent.frontends.acp.hello import Hello, welcome

LIMIT = 64 * 1024


class Greeting(NamedTuple):
    """`client` is None if nobody was greeted; `unread` is what is still to be acted upon."""

    client: ClientCapabilities | None
    unread: bytes


class _First(Struct, frozen=True):
    id: Raw
    method: str
    params: Hello
    jsonrpc: str


class _Reply(Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    id: Raw
    result: InitializeResult


def greet(version: str, *, receive: int = 0, send: int = 1) -> Greeting:
    """Wait for the first line, and answer it if it is one that can be answered so."""
    read = b""
    try:
        while b"\n" not in read and len(read) < LIMIT and (piece := os.read(receive, LIMIT)):
            read += piece
    except OSError:  # such as one that does not block: the agent waits in another way
        return Greeting(None, read)
    line, newline, rest = read.partition(b"\n")
    first = _understood(line) if newline else None
    if first is None:
        return Greeting(None, read)
    client = first.params.client_capabilities or ClientCapabilities()
    reply = msgspec.json.encode(_Reply(id=first.id, result=welcome(client, version))) + b"\n"
    with suppress(OSError):  # whoever went away is missed soon enough
        while reply:
            reply = reply[os.write(send, reply) :]
    return Greeting(client, rest)


def _understood(line: bytes) -> _First | None:
    try:
        line.decode()
        first = msgspec.json.decode(line, type=_First)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    plain = first.jsonrpc == "2.0" and first.method == INITIALIZE
    is_id = bytes(first.id)[:1] in b'"-0123456789n'
    return first if plain and is_id and bytes(first.params.protocol_version) else None
