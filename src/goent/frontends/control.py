"""The daemon's own protocol, for the command line: JSON-RPC, one method per operation.

Besides the operations there are `daemon_status`, `daemon_stop` and `watch`, which sends every
event of some workers as a notification `event`, from a cursor on, until the connection closes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from anyio.abc import ByteStream
from msgspec import Raw

from goent.core.feed import Feed
from goent.core.operation import Caller
from goent.core.operations import Operations
from goent.core.worker_access import WorkerAccess
from goent.domain.errors import GoentError
from goent.domain.replies import DaemonInfo, Stopping
from goent.domain.requests import StopRequest, WatchRequest
from goent.rpc import MethodNotFound, Peer, RpcError, decode_params
from goent.rpc.errors import INVALID_PARAMS
from goent.rpc.reread import Reread

PAGE = 500
REFUSED = -32000


class Stop(Protocol):
    """Ends the daemon; says whether it does."""

    def __call__(self, *, if_idle: bool, handover: bool) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRoom:
    """What a control connection can reach."""

    operations: Operations
    feed: Feed
    info: Callable[[], DaemonInfo]
    stop: Stop


class _Control:
    def __init__(self, room: ControlRoom, caller: Caller, bounds: WorkerAccess | None) -> None:
        self._room = room
        self._caller = caller
        self._bounds = bounds
        self.peer: Peer | None = None

    async def request(self, method: str, params: Raw) -> object:
        if self._bounds:
            with _translated():
                self._bounds.check(method, decode_params(params, object))
        if method == "daemon_status":
            return self._room.info()
        if method == "daemon_stop":
            asked = decode_params(params, StopRequest)
            stops = self._room.stop(if_idle=asked.if_idle, handover=asked.handover)
            return Stopping(stopping=stops)
        if method == "watch":
            return await self._watch(decode_params(params, WatchRequest))
        operations = self._room.operations
        operation = operations.table.get(method) or operations.for_people.get(method)
        if operation is None:
            raise MethodNotFound(method)
        with _translated(), operations.answering():
            return await operation.call(decode_params(params, object), self._caller)

    async def notification(self, method: str, params: Raw) -> None:
        pass

    async def _watch(self, asked: WatchRequest) -> object:
        assert self.peer, "the handler is given its peer before it runs"
        after = asked.after
        only = asked.worker_ids[0] if len(asked.worker_ids) == 1 else None
        while True:
            seen = self._room.feed.seq
            page = await self._room.feed.events(worker=only, after=after, limit=PAGE)
            for envelope in page:
                if not asked.worker_ids or envelope.worker in asked.worker_ids:
                    await self.peer.notify("event", envelope)
            after = page[-1].seq if page else after
            if len(page) < PAGE:
                await self._room.feed.news(seen)


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except GoentError as error:
        data = {"kind": type(error).__name__, "exit_code": error.exit_code}
        raise RpcError(INVALID_PARAMS, str(error), data) from error


async def serve_control(
    stream: ByteStream,
    already_read: bytes,
    room: ControlRoom,
    caller: Caller,
    *,
    bounds: WorkerAccess | None = None,
) -> None:
    """Until the connection closes. `bounds`: the client was started by a worker."""
    handler = _Control(room, caller, bounds)
    handler.peer = Peer(Reread(already_read, stream), stream, handler)
    await handler.peer.run()


class _Refusing:
    def __init__(self, why: str) -> None:
        self._why = why

    async def request(self, method: str, params: Raw) -> object:
        raise RpcError(REFUSED, self._why)

    async def notification(self, method: str, params: Raw) -> None:
        pass


async def refuse_all(stream: ByteStream, already_read: bytes, why: str) -> None:
    """Answer every request with the same refusal: MCP's messages are JSON-RPC, too."""
    await Peer(Reread(already_read, stream), stream, _Refusing(why)).run()
