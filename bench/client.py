"""How does the bench talk to go-ent? As the command line does: JSON-RPC on the daemon's socket."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from bench.cost import Failed, whole_run
from bench.place import GO_ENT, KEY, KEY_NAME, Place
from msgspec import Raw

from goent.daemon.daemon_connection import HELLO_LIMIT, PROTOCOL
from goent.domain.events import EventEnvelope
from goent.domain.replies import DaemonInfo, SpawnReply, Status, WaitReply
from goent.domain.requests import CancelRequest, SpawnRequest, WaitRequest, WatchRequest
from goent.proc import process_table
from goent.proc.process_table import marked_processes
from goent.rpc.json_rpc import ConnectionLost, MethodNotFound
from goent.rpc.rpc_peer import Peer
from goent.store.journal_store import SqliteJournal
from goent.system.process_protection import MARK_VARIABLE
from goent.system.project_folders import project_key, runtime_dir, state_dir

WAIT_S = 120.0


class Client:
    """A client that watches everything, and remembers what it was told."""

    def __init__(
        self, place: Place, info: DaemonInfo, peer: Peer, seen: list[EventEnvelope]
    ) -> None:
        self.pid = info.pid
        self.gateway = info.http
        self.seen = seen
        self._peer = peer
        # The name under which this daemon marks its processes.
        self._owner = (
            f"{project_key(place.project)}.{info.pid}.{process_table.start_time(info.pid)}"
        )

    async def spawn(self, task: str, **more: object) -> str:
        request = msgspec.convert({"task": task, "permissions": "auto", **more}, SpawnRequest)
        return (await self._peer.request("worker_spawn", request, result=SpawnReply)).worker_id

    async def ended(self, workers: list[str]) -> tuple[Status, ...]:
        """How they stand, once none of them has a turn under way."""
        request = WaitRequest(worker_ids=tuple(workers), timeout_s=WAIT_S)
        waited = await self._peer.request("worker_wait", request, result=WaitReply)
        if waited.timed_out:
            states = ", ".join(status.state for status in waited.workers)
            raise Failed(f"the workers were not done within {WAIT_S:g} s: {states}")
        return waited.workers

    async def close(self, workers: list[str]) -> None:
        for worker in workers:
            request = CancelRequest(worker_id=worker, close=True)
            await self._peer.request_raw("worker_cancel", request)

    def processes(self) -> set[int]:
        """Everything that this daemon has started and that still lives."""
        return set(marked_processes(self._owner))

    def opencodes(self) -> set[int]:
        return {pid for pid in self.processes() if b"\0acp\0" in _of(pid, "cmdline")}


class _Ears:
    """What a client does for the daemon: it listens."""

    def __init__(self) -> None:
        self.seen: list[EventEnvelope] = []

    async def request(self, method: str, params: Raw) -> object:
        raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        if method == "event":
            self.seen.append(msgspec.json.decode(params, type=EventEnvelope))


@asynccontextmanager
async def a_client(place: Place, *, after: int = 0) -> AsyncGenerator[Client]:
    """Connected to the daemon, which is started if need be; it is told all behind the cursor."""
    command = [*GO_ENT, "ps"]
    await anyio.to_thread.run_sync(lambda: whole_run(command, cwd=place.project, env=place.env))
    ears = _Ears()
    path = runtime_dir(project_key(place.project), place.env) / "sock"
    async with await anyio.connect_unix(path) as stream, anyio.create_task_group() as tasks:
        receive = BufferedByteReceiveStream(stream)
        await receive.receive_until(b"\n", HELLO_LIMIT)
        hello = {"goent": PROTOCOL, "kind": "control", "cwd": str(place.project)}
        await stream.send(msgspec.json.encode({**hello, "env": {KEY_NAME: KEY}}) + b"\n")
        peer = Peer(receive, stream, ears)
        tasks.start_soon(peer.run)
        tasks.start_soon(_watch, peer, after)
        info = await peer.request("daemon_status", None, result=DaemonInfo)
        yield Client(place, info, peer, ears.seen)
        await peer.aclose()
        tasks.cancel_scope.cancel()


async def _watch(peer: Peer, after: int) -> None:
    with suppress(ConnectionLost):
        await peer.request_raw("watch", WatchRequest(after=after))


async def journal(place: Place, *, after: int = 0) -> list[EventEnvelope]:
    """What is written there behind the cursor."""
    path = state_dir(place.env) / "projects" / project_key(place.project) / "journal.db"
    async with SqliteJournal.open(path) as opened:
        return await opened.read(after=after, limit=1_000_000)


def mark_of(pid: int) -> str:
    """The mark that the process carries, and whatever it has started."""
    entries = os.fsdecode(_of(pid, "environ")).split("\0")
    return next((e.partition("=")[2] for e in entries if e.startswith(f"{MARK_VARIABLE}=")), "")


def _of(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
