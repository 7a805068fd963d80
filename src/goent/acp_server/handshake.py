"""Answers a client's `initialize` before the agent is loaded, so that an editor need not wait.

Loading the agent takes longer than saying who it is. The first line is read and answered here,
without any file or key, and the rest loads while the client is busy with the reply. Anything
but the plain beginning of a v1 connection is passed on unchanged.
"""

import os
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from goent.acp.client_messages import (
    INITIALIZE,
    PROTOCOL_VERSION,
    AcpInitializeResult,
    AgentCapabilities,
    AuthMethod,
    ClientCapabilities,
    EmptyCapability,
    Implementation,
    PromptCapabilities,
    SessionCapabilities,
)
from goent.acp.message_parts import AcpMessage

LOGIN = "--login"  # clients append it to `go-ent acp`, or to `go-ent`

_KEYS_METHOD = AuthMethod(
    id="go-ent-keys",
    name="Keys of go-ent",
    type="agent",
    description=(
        "go-ent uses the providers' keys in your environment and in ~/.config/go-ent: "
        "run `go-ent init` in a terminal to set one up, `go-ent doctor` to see what is missing"
    ),
)
_SETUP_METHOD = AuthMethod(
    id="go-ent-setup",
    name="Set up go-ent",
    type="terminal",
    description="Looks for keys, and shows in a terminal what is missing",
    args=(LOGIN,),
)

CAPABILITIES = AgentCapabilities(
    load_session=True,
    prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
    mcp_capabilities=Raw(b'{"http":true,"sse":false}'),
    session_capabilities=SessionCapabilities(
        close=EmptyCapability(),
        delete=EmptyCapability(),
        list=EmptyCapability(),
        resume=EmptyCapability(),
        additional_directories=EmptyCapability(),
    ),
)


class OpeningParams(AcpMessage, frozen=True, kw_only=True):
    """A client's `initialize`; the version may be anything."""

    protocol_version: Raw = Raw()
    client_capabilities: ClientCapabilities | None = None


def is_auth_method(method_id: str) -> bool:
    return method_id in (_KEYS_METHOD.id, _SETUP_METHOD.id)


def agent_info(version: str) -> Implementation:
    return Implementation(name="go-ent", title="go-ent", version=version)


def initialize_result(client: ClientCapabilities, version: str) -> AcpInitializeResult:
    """The login that needs a terminal is offered only to clients that have one."""
    terminal = client.auth is not None and client.auth.terminal
    return AcpInitializeResult(
        protocol_version=PROTOCOL_VERSION,
        agent_capabilities=CAPABILITIES,
        agent_info=agent_info(version),
        auth_methods=(_KEYS_METHOD, _SETUP_METHOD) if terminal else (_KEYS_METHOD,),
    )


MAX_LINE_BYTES = 64 * 1024


class Greeting(NamedTuple):
    """`client` is None if no reply was sent; `unread` is what the agent still has to read."""

    client: ClientCapabilities | None
    unread: bytes


class _FirstRequest(Struct, frozen=True):
    id: Raw
    method: str
    params: OpeningParams
    jsonrpc: str


class _InitializeReply(Struct, frozen=True, kw_only=True):
    jsonrpc: str = "2.0"
    id: Raw
    result: AcpInitializeResult


def greet(version: str, *, receive: int = 0, send: int = 1) -> Greeting:
    """Waits for the first line, and answers it if it is a plain `initialize`."""
    read = b""
    try:
        while b"\n" not in read and len(read) < MAX_LINE_BYTES:
            if not (piece := os.read(receive, MAX_LINE_BYTES)):
                break
            read += piece
    except OSError:  # such as a descriptor that does not block: the agent waits differently
        return Greeting(None, read)
    line, newline, rest = read.partition(b"\n")
    first = _parse_first(line) if newline else None
    if first is None:
        return Greeting(None, read)
    client = first.params.client_capabilities or ClientCapabilities()
    reply = _InitializeReply(id=first.id, result=initialize_result(client, version))
    unsent = msgspec.json.encode(reply) + b"\n"
    with suppress(OSError):  # a client that is gone is noticed by the next read
        while unsent:
            unsent = unsent[os.write(send, unsent) :]
    return Greeting(client, rest)


def _parse_first(line: bytes) -> _FirstRequest | None:
    try:
        line.decode()
        first = msgspec.json.decode(line, type=_FirstRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    plain = first.jsonrpc == "2.0" and first.method == INITIALIZE
    is_id = bytes(first.id)[:1] in b'"-0123456789n'
    return first if plain and is_id and bytes(first.params.protocol_version) else None
