"""Serves one ACP client: picks the protocol version and turns failures into JSON-RPC errors."""

from typing import Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup
from msgspec import Raw

from goent.acp.client_messages import PROTOCOL_VERSION, AcpInitializeResult, ClientCapabilities
from goent.acp.message_parts import AcpMessage
from goent.acp_server import legacy_protocol
from goent.acp_server.client_connection import RESOURCE_NOT_FOUND
from goent.acp_server.client_sessions import AgentHost, OpenAgent
from goent.acp_server.handshake import OpeningParams, initialize_result
from goent.acp_server.legacy_protocol import LegacyConnection, LegacyWelcome, RefusedConnection
from goent.acp_server.v1_protocol import V1Connection
from goent.agent.agent_ports import AuthRequired, UnknownSession
from goent.domain.errors import GoentError, RequestError, WorkerError
from goent.rpc.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    InvalidParams,
    RpcError,
    decode_params,
)
from goent.rpc.rpc_peer import Peer

AUTH_REQUIRED = -32000


class AcpErrorData(AcpMessage, frozen=True, kw_only=True, omit_defaults=False):
    """The `data` of an error that is nobody's fault at the client."""

    kind: str
    retryable: bool
    message: str


def rpc_error_for(error: GoentError) -> RpcError:
    """Sorted by what the client can do: log in, name another session, ask differently, or wait."""
    words = str(error)
    match error:
        case RpcError():
            return error
        case AuthRequired():
            return RpcError(AUTH_REQUIRED, f"authentication required: {words}")
        case UnknownSession():
            return RpcError(RESOURCE_NOT_FOUND, words)
        case RequestError():
            return RpcError(INVALID_PARAMS, words)
        case WorkerError():
            trouble = AcpErrorData(kind=error.kind, retryable=error.retryable, message=words)
        case _:
            trouble = AcpErrorData(kind=type(error).__name__, retryable=False, message=words)
    return RpcError(INTERNAL_ERROR, words, trouble)


FAREWELL_S = 15.0  # seconds for sessions to end, once the client has hung up


async def serve_acp(
    receive: ByteReceiveStream,
    send: ByteSendStream,
    open_agent: OpenAgent,
    *,
    version: str,
    greeted: ClientCapabilities | None = None,
) -> None:
    """Serve one client until it hangs up. `open_agent` is entered when it first wants a session.

    `greeted` is what a client can do whose `initialize` was answered already.
    """
    async with anyio.create_task_group() as tasks:
        host = AgentHost(open_agent, tasks)
        reception = ProtocolNegotiation(host, tasks, version)
        peer = reception.peer = Peer(receive, send, reception)
        if greeted is not None:
            reception.use_v1(greeted)
        await peer.run()
        host.close()
        tasks.cancel_scope.deadline = anyio.current_time() + FAREWELL_S


class SpokenProtocol(Protocol):
    """A version of the protocol, as one connection speaks it."""

    async def request(self, method: str, params: Raw) -> object: ...

    async def notification(self, method: str, params: Raw) -> None: ...


class ProtocolNegotiation:
    """The first request says which version is spoken; from then on that one answers."""

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
        """Whatever version the client asks for, it gets ours: it hangs up if that will not do."""
        self._check_first("initialize")
        hello = decode_params(params, OpeningParams)
        if not bytes(hello.protocol_version):
            raise InvalidParams("protocolVersion is missing: send the latest that you speak")
        client = hello.client_capabilities or ClientCapabilities()
        self.use_v1(client)
        return initialize_result(client, self._version)

    def use_v1(self, client: ClientCapabilities) -> None:
        """The client was greeted: from now on, v1 is spoken."""
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
            raise RpcError(
                INVALID_REQUEST, f"{method!r} came twice: a connection is initialized once"
            )

    def _protocol_for(self, method: str) -> SpokenProtocol:
        if self._protocol is None:
            raise RpcError(INVALID_REQUEST, f"{method!r} came too early: 'initialize' comes first")
        return self._protocol
