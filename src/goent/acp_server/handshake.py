"""Answers a client's `initialize` before the agent is loaded, so that an editor need not wait.

All of this is known before anything is opened, so that whoever asks gets an answer at once, and
without a key: an editor's list of agents asks no more.

Whoever starts an agent waits for its first reply, and to load what the agent needs takes longer
than to say who it is. So the first line is read and answered here, and the client is busy with the
answer meanwhile. What is not the plain beginning of a v1 connection is passed on as it came.
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

LOGIN = "--login"  # after `go-ent acp` or `go-ent`: both ways are in use to start it

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
    description="Looks for keys, and says in a terminal what is missing",
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
    """The first words of a client; whatever it takes for a version is one."""

    protocol_version: Raw = Raw()
    client_capabilities: ClientCapabilities | None = None


def is_auth_method(method_id: str) -> bool:
    return method_id in (_KEYS_METHOD.id, _SETUP_METHOD.id)


def agent_info(version: str) -> Implementation:
    return Implementation(name="go-ent", title="go-ent", version=version)


def initialize_result(client: ClientCapabilities, version: str) -> AcpInitializeResult:
    """A method that needs a terminal is offered only to those who have one."""
    terminal = client.auth is not None and client.auth.terminal
    return AcpInitializeResult(
        protocol_version=PROTOCOL_VERSION,
        agent_capabilities=CAPABILITIES,
        agent_info=agent_info(version),
        auth_methods=(_KEYS_METHOD, _SETUP_METHOD) if terminal else (_KEYS_METHOD,),
    )


MAX_LINE_BYTES = 64 * 1024


class Greeting(NamedTuple):
    """`client` is None if nobody was greeted; `unread` is what is still to be acted upon."""

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
    """Wait for the first line, and answer it if it is one that can be answered so."""
    read = b""
    try:
        while (
            b"\n" not in read
            and len(read) < MAX_LINE_BYTES
            and (piece := os.read(receive, MAX_LINE_BYTES))
        ):
            read += piece
    except OSError:  # such as one that does not block: the agent waits in another way
        return Greeting(None, read)
    line, newline, rest = read.partition(b"\n")
    first = _parse_first(line) if newline else None
    if first is None:
        return Greeting(None, read)
    client = first.params.client_capabilities or ClientCapabilities()
    reply = (
        msgspec.json.encode(
            _InitializeReply(id=first.id, result=initialize_result(client, version))
        )
        + b"\n"
    )
    with suppress(OSError):  # whoever went away is missed soon enough
        while reply:
            reply = reply[os.write(send, reply) :]
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
