"""Who is at the door, which version of the protocol do they speak, and when is it over?"""

from typing import Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup
from msgspec import Raw

from goent.acp.messages import PROTOCOL_VERSION, ClientCapabilities, InitializeResult
from goent.domain.errors import GoentError
from goent.frontends.acp import dialect_methods
from goent.frontends.acp.dialect_methods import Dialect, DialectWelcome, Refusing
from goent.frontends.acp.hello import Hello, welcome
from goent.frontends.acp.host import AgentHost, OpenAgent
from goent.frontends.acp.refusals import refusal
from goent.frontends.acp.v1_methods import V1
from goent.rpc import InvalidParams, Peer, RpcError, decode_params
from goent.rpc.errors import INVALID_REQUEST

FAREWELL = 15.0  # seconds for sessions to end, once the client has hung up


async def serve(
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
        reception = Reception(host, tasks, version)
        peer = reception.peer = Peer(receive, send, reception)
        if greeted is not None:
            reception.go_on(greeted)
        await peer.run()
        host.close()
        tasks.cancel_scope.deadline = anyio.current_time() + FAREWELL


class Tongue(Protocol):
    """A version of the protocol, as one connection speaks it."""

    async def request(self, method: str, params: Raw) -> object: ...

    async def notification(self, method: str, params: Raw) -> None: ...


class Reception:
    """The first request says which version is spoken; from then on that one answers."""

    peer: Peer

    def __init__(self, host: AgentHost, tasks: TaskGroup, version: str) -> None:
        self._host = host
        self._tasks = tasks
        self._version = version
        self._tongue: Tongue | None = None

    async def request(self, method: str, params: Raw) -> object:
        try:
            match method:
                case "initialize":
                    return self._initialize(params)
                case "acp/initialize":
                    return self._initialize_dialect(params)
                case _:
                    return await self._spoken(method).request(method, params)
        except GoentError as error:
            raise refusal(error) from error

    async def notification(self, method: str, params: Raw) -> None:
        try:
            await self._spoken(method).notification(method, params)
        except GoentError as error:
            raise refusal(error) from error

    def _initialize(self, params: Raw) -> InitializeResult:
        """Whatever version the client asks for, it gets ours: it hangs up if that will not do."""
        self._first_time("initialize")
        hello = decode_params(params, Hello)
        if not bytes(hello.protocol_version):
            raise InvalidParams("protocolVersion is missing: send the latest that you speak")
        client = hello.client_capabilities or ClientCapabilities()
        self.go_on(client)
        return welcome(client, self._version)

    def go_on(self, client: ClientCapabilities) -> None:
        """The client was greeted: from now on, v1 is spoken."""
        self._tongue = V1(self.peer, self._host, client, self._tasks)

    def _initialize_dialect(self, params: Raw) -> DialectWelcome:
        self._first_time("acp/initialize")
        asked = decode_params(params, Hello).protocol_version
        if bytes(asked) != b"%d" % PROTOCOL_VERSION:
            self._tongue = Refusing()
            raise dialect_methods.mismatch(asked)
        self._tongue = Dialect(self.peer, self._host, self._tasks)
        return dialect_methods.welcome(self._version)

    def _first_time(self, method: str) -> None:
        if self._tongue is not None:
            raise RpcError(
                INVALID_REQUEST, f"{method!r} came twice: a connection is initialized once"
            )

    def _spoken(self, method: str) -> Tongue:
        if self._tongue is None:
            raise RpcError(INVALID_REQUEST, f"{method!r} came too early: 'initialize' comes first")
        return self._tongue
