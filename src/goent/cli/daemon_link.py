"""Connects evaluations to the daemon: many requests in parallel over one socket."""

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.to_thread import run_sync
from msgspec import Raw, Struct

from goent.daemon.daemon_connection import DaemonConnection, NoDaemon, connect
from goent.domain.events import EventEnvelope
from goent.domain.requests import WatchRequest
from goent.domain.types import Value
from goent.evals.eval_ports import DaemonGone, DaemonRefused
from goent.rpc.byte_streams import LocalStream, PrefixedStream
from goent.rpc.json_rpc import BadReply, ConnectionLost, MethodNotFound, RpcError
from goent.rpc.rpc_peer import Peer

R = TypeVar("R", bound=Value)


class _RefusalData(Struct, frozen=True):
    kind: str = ""


class DaemonLink:
    """The port `Daemon`, over one connection."""

    def __init__(self, group: TaskGroup) -> None:
        self.peer: Peer | None = None
        self._group = group
        self._readers: dict[str, MemoryObjectSendStream[EventEnvelope]] = {}

    async def run(self) -> None:
        """Run until the peer is closed, shielded: cancelled work still sends its own cancel requests."""
        assert self.peer, "a link is given its peer before it begins"
        with anyio.CancelScope(shield=True):
            await self.peer.run()

    async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
        assert self.peer, "a link is given its peer before it begins"
        try:
            return await self.peer.request(operation, request, result=reply)
        except RpcError as refusal:
            kind = _refusal_kind(refusal)
            if kind == "Ending":
                raise DaemonGone(refusal.message) from refusal
            raise DaemonRefused(refusal.message, kind) from refusal
        except BadReply as error:
            raise DaemonRefused(
                f"{error}: the daemon may be of another version; `go-ent daemon stop` ends it"
            ) from error
        except ConnectionLost as lost:
            raise _daemon_gone(lost) from lost

    @asynccontextmanager
    async def events(self, worker: str) -> AsyncGenerator[AsyncIterator[EventEnvelope]]:
        # Unbounded: an awaited answer may be queued behind events that nobody reads meanwhile.
        send, receive = anyio.create_memory_object_stream[EventEnvelope](math.inf)
        self._readers[worker] = send
        # Shielded: cancelled work still receives events, such as its cost.
        watching = anyio.CancelScope(shield=True)
        self._group.start_soon(self._watch, worker, send, watching)
        try:
            yield _EventStream(receive)
        finally:
            watching.cancel()
            self._readers.pop(worker, None)
            send.close()
            receive.close()

    async def _watch(
        self, worker: str, send: MemoryObjectSendStream[EventEnvelope], watching: anyio.CancelScope
    ) -> None:
        assert self.peer, "a link is given its peer before it begins"
        try:
            with watching:
                await self.peer.request("watch", WatchRequest(worker_ids=(worker,)), result=object)
        except (RpcError, BadReply, ConnectionLost):
            pass
        finally:
            send.close()

    async def request(self, method: str, params: Raw) -> object:
        raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        if method == "event":
            told = msgspec.json.decode(params, type=EventEnvelope)
            if reader := self._readers.get(told.worker):
                reader.send_nowait(told)


class _EventStream:
    """A worker's events, until the daemon ends."""

    def __init__(self, receive: MemoryObjectReceiveStream[EventEnvelope]) -> None:
        self._receive = receive

    def __aiter__(self) -> AsyncIterator[EventEnvelope]:
        return self

    async def __anext__(self) -> EventEnvelope:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            raise _daemon_gone("it no longer sends events") from None


@asynccontextmanager
async def open_daemon_link(where: Path) -> AsyncGenerator[DaemonLink]:
    """A link to the daemon of a directory's project, started if necessary."""
    trouble: Exception | None = None
    connection = await _connect(where)
    stream = LocalStream(connection.socket)
    async with anyio.create_task_group() as group:
        link = DaemonLink(group)
        peer = Peer(PrefixedStream(connection.rest, stream), stream, link)
        link.peer = peer
        group.start_soon(link.run)
        try:
            yield link
        except Exception as error:  # noqa: BLE001 (raised again below, out of the group)
            trouble = error
        finally:
            with anyio.CancelScope(shield=True):
                await peer.aclose()
            group.cancel_scope.cancel()
    if trouble:
        raise trouble


async def _connect(where: Path) -> DaemonConnection:
    try:
        return await run_sync(connect, where, "control")
    except NoDaemon as error:
        raise DaemonGone(str(error)) from error


def _refusal_kind(refusal: RpcError) -> str:
    try:
        return msgspec.json.decode(refusal.data or b"{}", type=_RefusalData).kind
    except msgspec.DecodeError:
        return ""


def _daemon_gone(why: Exception | str) -> DaemonGone:
    return DaemonGone(
        f"the daemon ended unexpectedly ({why}); `go-ent ps` starts a new one and shows the state "
        "of the workers"
    )
