"""The daemon's own protocol for the command line: JSON-RPC, one method per operation.

Besides the operations there are `daemon_status`, `daemon_stop` and `watch`, which sends every
event of some workers as a notification `event`, from a cursor on, until the connection closes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from anyio.abc import ByteStream
from msgspec import Raw

from goent.composition.live_project import WorkerAccess
from goent.domain.errors import GoentError
from goent.domain.replies import DaemonInfo, StopReply
from goent.domain.requests import StopRequest, WatchRequest
from goent.operations.operation_table import Caller, Operations
from goent.rpc.byte_streams import PrefixedStream
from goent.rpc.json_rpc import INVALID_PARAMS, MethodNotFound, RpcError, decode_params
from goent.rpc.rpc_peer import Peer
from goent.workers.feed import Feed

PAGE_SIZE = 500
REFUSED_CODE = -32000


class StopDaemon(Protocol):
    """Ends the daemon; returns whether it ends."""

    def __call__(self, *, if_idle: bool, handover: bool) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlServices:
    """The parts of the daemon that a control connection uses."""

    operations: Operations
    feed: Feed
    info: Callable[[], DaemonInfo]
    stop: StopDaemon


class _ControlHandler:
    def __init__(self, room: ControlServices, caller: Caller, bounds: WorkerAccess | None) -> None:
        self._services = room
        self._caller = caller
        self._access = bounds
        self.peer: Peer | None = None

    async def request(self, method: str, params: Raw) -> object:
        if self._access:
            with _as_rpc_errors():
                self._access.check(method, decode_params(params, object))
        if method == "daemon_status":
            return self._services.info()
        if method == "daemon_stop":
            asked = decode_params(params, StopRequest)
            stops = self._services.stop(if_idle=asked.if_idle, handover=asked.handover)
            return StopReply(stopping=stops)
        if method == "watch":
            return await self._watch(decode_params(params, WatchRequest))
        operations = self._services.operations
        operation = operations.table.get(method) or operations.cli_table.get(method)
        if operation is None:
            raise MethodNotFound(method)
        with _as_rpc_errors(), operations.answering():
            return await operation.call(decode_params(params, object), self._caller)

    async def notification(self, method: str, params: Raw) -> None:
        pass

    async def _watch(self, asked: WatchRequest) -> object:
        assert self.peer, "the handler is given its peer before it runs"
        after = asked.after
        only = asked.worker_ids[0] if len(asked.worker_ids) == 1 else None
        while True:
            seen = self._services.feed.seq
            page = await self._services.feed.events(worker=only, after=after, limit=PAGE_SIZE)
            for envelope in page:
                if not asked.worker_ids or envelope.worker in asked.worker_ids:
                    await self.peer.notify("event", envelope)
            after = page[-1].seq if page else after
            if len(page) < PAGE_SIZE:
                await self._services.feed.wait_for_news(seen)


@contextmanager
def _as_rpc_errors() -> Generator[None]:
    try:
        yield
    except GoentError as error:
        data = {"kind": type(error).__name__, "exit_code": error.exit_code}
        raise RpcError(INVALID_PARAMS, str(error), data) from error


async def serve_control(
    stream: ByteStream,
    already_read: bytes,
    room: ControlServices,
    caller: Caller,
    *,
    bounds: WorkerAccess | None = None,
) -> None:
    """Serve a client until its connection closes. `bounds` is set if a worker started it."""
    handler = _ControlHandler(room, caller, bounds)
    handler.peer = Peer(PrefixedStream(already_read, stream), stream, handler)
    await handler.peer.run()


class _RefusalHandler:
    def __init__(self, why: str) -> None:
        self._why = why

    async def request(self, method: str, params: Raw) -> object:
        raise RpcError(REFUSED_CODE, self._why)

    async def notification(self, method: str, params: Raw) -> None:
        pass


async def refuse_all(stream: ByteStream, already_read: bytes, why: str) -> None:
    """Answer every request with the same refusal, also MCP's: its messages are JSON-RPC as well."""
    await Peer(PrefixedStream(already_read, stream), stream, _RefusalHandler(why)).run()
