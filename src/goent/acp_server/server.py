"""Serves one ACP client: picks the protocol version and turns failures into JSON-RPC errors."""

import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup
from msgspec import Raw

from goent import __version__
from goent.acp.client_messages import PROTOCOL_VERSION, AcpInitializeResult, ClientCapabilities
from goent.acp.message_parts import AcpMessage
from goent.acp_server import legacy_protocol
from goent.acp_server.client_connection import RESOURCE_NOT_FOUND
from goent.acp_server.client_sessions import AgentHost, OpenAgent
from goent.acp_server.handshake import Greeting, OpeningParams, initialize_result
from goent.acp_server.legacy_protocol import LegacyConnection, LegacyWelcome, RefusedConnection
from goent.acp_server.v1_protocol import V1Connection
from goent.agent.agent_ports import AuthRequired, UnknownSession
from goent.domain.errors import GoentError, RequestError, WorkerError
from goent.domain.ports import GATE_VARIABLE
from goent.rpc.byte_streams import PrefixedStream, stdio
from goent.rpc.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    InvalidParams,
    RpcError,
    decode_params,
)
from goent.rpc.rpc_peer import Peer

if TYPE_CHECKING:
    from goent.agent.coding_agent import CodingAgent

AUTH_REQUIRED = -32000
SHUTDOWN_S = 15.0  # for sessions to end, once the client has hung up


def serve_client(
    greeting: Greeting, *, model: str, mode: str, allowed_tools: frozenset[str] | None
) -> None:
    """Serves standard input and output until the client hangs up, or a signal comes."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="go-ent acp: %(message)s")

    # Removed once, at the start: nothing that the agent runs may see it.
    gate = os.environ.pop(GATE_VARIABLE, "")

    def open_agent() -> "AbstractAsyncContextManager[CodingAgent]":
        from goent.composition.agent_app import open_agent  # noqa: PLC0415 (only for a session)

        return open_agent(
            os.environ, gate=gate, model=model, mode=mode, allowed_tools=allowed_tools
        )

    anyio.run(_serve_stdio, greeting, open_agent)


async def _serve_stdio(greeting: Greeting, open_agent: OpenAgent) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signals, tasks.cancel_scope)
        async with stdio() as (receive, send):
            stream = PrefixedStream(greeting.unread, receive)
            await serve_acp(stream, send, open_agent, version=__version__, greeted=greeting.client)
        tasks.cancel_scope.cancel()


async def _cancel_on_signals(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


async def serve_acp(
    receive: ByteReceiveStream,
    send: ByteSendStream,
    open_agent: OpenAgent,
    *,
    version: str,
    greeted: ClientCapabilities | None = None,
) -> None:
    """Serves one client until it hangs up. `open_agent` is entered when it first wants a session.

    `greeted` has the capabilities of a client whose `initialize` is answered already.
    """
    async with anyio.create_task_group() as tasks:
        host = AgentHost(open_agent, tasks)
        negotiation = ProtocolNegotiation(host, tasks, version)
        peer = negotiation.peer = Peer(receive, send, negotiation)
        if greeted is not None:
            negotiation.use_v1(greeted)
        await peer.run()
        host.close()
        tasks.cancel_scope.deadline = anyio.current_time() + SHUTDOWN_S


class SpokenProtocol(Protocol):
    """A connection in one version of the protocol."""

    async def request(self, method: str, params: Raw) -> object: ...

    async def notification(self, method: str, params: Raw) -> None: ...


class ProtocolNegotiation:
    """Picks the version by the first request, and passes all others on to it."""

    peer: Peer

    def __init__(self, host: AgentHost, tasks: TaskGroup, version: str) -> None:
        self._host = host
        self._tasks = tasks
        self._version = version
        self._protocol: SpokenProtocol | None = None

    async def request(self, method: str, params: Raw) -> object:
        try:
            match method:
                case "initialize":
                    return self._initialize(params)
                case "acp/initialize":
                    return self._initialize_dialect(params)
                case _:
                    return await self._protocol_for(method).request(method, params)
        except GoentError as error:
            raise rpc_error_for(error) from error

    async def notification(self, method: str, params: Raw) -> None:
        try:
            await self._protocol_for(method).notification(method, params)
        except GoentError as error:
            raise rpc_error_for(error) from error

    def _initialize(self, params: Raw) -> AcpInitializeResult:
        """Offers our version, whichever the client asks for: it hangs up if it cannot speak it."""
        self._check_first("initialize")
        hello = decode_params(params, OpeningParams)
        if not bytes(hello.protocol_version):
            raise InvalidParams("protocolVersion is missing: send the latest that you support")
        client = hello.client_capabilities or ClientCapabilities()
        self.use_v1(client)
        return initialize_result(client, self._version)

    def use_v1(self, client: ClientCapabilities) -> None:
        self._protocol = V1Connection(self.peer, self._host, client, self._tasks)

    def _initialize_dialect(self, params: Raw) -> LegacyWelcome:
        self._check_first("acp/initialize")
        asked = decode_params(params, OpeningParams).protocol_version
        if bytes(asked) != b"%d" % PROTOCOL_VERSION:
            self._protocol = RefusedConnection()
            raise legacy_protocol.version_mismatch(asked)
        self._protocol = LegacyConnection(self.peer, self._host, self._tasks)
        return legacy_protocol.legacy_welcome(self._version)

    def _check_first(self, method: str) -> None:
        if self._protocol is not None:
            raise RpcError(INVALID_REQUEST, f"{method!r}: the connection is initialized already")

    def _protocol_for(self, method: str) -> SpokenProtocol:
        if self._protocol is None:
            raise RpcError(INVALID_REQUEST, f"{method!r} came too early: send 'initialize' first")
        return self._protocol


class AcpErrorData(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The `data` of an error that the client's request did not cause."""

    kind: str
    retryable: bool
    message: str


def rpc_error_for(error: GoentError) -> RpcError:
    """Sorted by what the client can do: log in, name another session, ask differently, or wait."""
    message = str(error)
    match error:
        case RpcError():
            return error
        case AuthRequired():
            return RpcError(AUTH_REQUIRED, f"authentication required: {message}")
        case UnknownSession():
            return RpcError(RESOURCE_NOT_FOUND, message)
        case RequestError():
            return RpcError(INVALID_PARAMS, message)
        case WorkerError():
            data = AcpErrorData(kind=error.kind, retryable=error.retryable, message=message)
        case _:
            data = AcpErrorData(kind=type(error).__name__, retryable=False, message=message)
    return RpcError(INTERNAL_ERROR, message, data)
