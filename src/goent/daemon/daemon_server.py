"""Runs one project's daemon: its socket, its clients and its end.

Besides the operations there are `daemon_status`, `daemon_stop` and `watch`, which sends every
event of some workers as a notification `event`, from a cursor on, until the connection closes.
"""

import logging
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec
from anyio.abc import ByteStream
from msgspec import Raw

from goent import __version__
from goent.composition.app import App, open_app
from goent.composition.live_project import WorkerAccess
from goent.daemon.daemon_connection import PROTOCOL, START_TIMEOUT_S, already_held_message
from goent.daemon.daemon_log import RedactingFormatter, log_to_stderr, rotate_log
from goent.daemon.socket_peer import confinement_reason, peer_of
from goent.domain.errors import EnvironmentTrouble, GoentError
from goent.domain.replies import DaemonInfo, StopReply
from goent.domain.requests import StopRequest, WatchRequest
from goent.operations.operation_table import Caller, Operations
from goent.rpc.byte_streams import LocalListener, LocalStream, PrefixedStream
from goent.rpc.json_rpc import INVALID_PARAMS, MethodNotFound, RpcError, decode_params
from goent.rpc.rpc_peer import Peer
from goent.system.project_folders import log_path, project_key
from goent.system.project_lock import ProjectLock, find_holder, lock_project
from goent.workers.feed import Feed

if TYPE_CHECKING:
    from goent.mcp.server import McpFrontend


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


MAX_DESCRIPTORS = 65_536  # more than any go-ent needs; "unlimited" is refused by some kernels


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit: clients could exhaust the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # then the present limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


CLIENT_HELLO_LIMIT = 256 * 1024


class ClientHello(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of every client."""

    goent: int
    version: str = ""
    kind: str = "control"
    cwd: str = "/"
    env: dict[str, str] = {}
    worker_pass: str = ""


async def read_hello(stream: ByteStream) -> tuple[ClientHello, bytes]:
    received = b""
    while b"\n" not in received:
        if len(received) > CLIENT_HELLO_LIMIT:
            raise anyio.EndOfStream
        received += await stream.receive()
    line, _, rest = received.partition(b"\n")
    try:
        hello = msgspec.json.decode(line, type=ClientHello)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        await stream.send(msgspec.json.encode({"error": f"not a hello: {error}"}) + b"\n")
        raise anyio.EndOfStream from None
    if hello.goent != PROTOCOL:
        refusal = {"error": f"protocol {hello.goent} is not spoken here, only {PROTOCOL}"}
        await stream.send(msgspec.json.encode(refusal) + b"\n")
        raise anyio.EndOfStream
    return hello, rest


def is_same_user(raw: socket.socket) -> bool:
    """A second check: the socket's folder is already closed to other users."""
    return peer_of(raw).uid == os.geteuid()


HELLO_TIMEOUT_S = 10.0
MAX_CLIENTS = 512
MAX_UNGREETED = 64  # clients without a hello; then the oldest is closed
IDLE_CHECK_S = 5.0  # between two checks whether to end
LOCK_TIMEOUT_S = START_TIMEOUT_S - 15.0  # so that the starting process still gets the reason
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FLUSH_S = 0.1  # for written data to arrive
PENDING_CALLS_S = (
    2.0  # for calls whose workers have ended, and for commands that show their results
)

DISCONNECT_ERRORS = (
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    anyio.ClosedResourceError,
    TimeoutError,
)

log = logging.getLogger("goent.daemon.daemon_server")


class DaemonServer:
    """Accepts clients until it is stopped or has been idle for long."""

    def __init__(self, app: App, sock_path: Path, lock: ProjectLock | None = None) -> None:
        self._app = app
        self._path = sock_path
        self._lock = lock
        app.project.passes.socket = sock_path
        self._mcp: McpFrontend | None = None
        self._loading = anyio.Lock()
        self._clients = 0
        self._ungreeted: dict[LocalStream, None] = {}
        self._commands = 0
        self._handover = False
        self._logged_refusals: set[str] = set()
        self._idle_since = time.monotonic()
        self._inode = 0
        self.stopping = anyio.Event()

    async def serve(self, listener: LocalListener, signals: AsyncIterator[signal.Signals]) -> None:
        self._inode = self._path.stat().st_ino
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, self._serve_connection)
            group.start_soon(self._watch_idleness)
            group.start_soon(self._watch_signals, signals)
            await self.stopping.wait()
            await self._shut_down()
            group.cancel_scope.cancel()

    async def _shut_down(self) -> None:
        """End workers first, so that clients waiting for one learn how it ended."""
        self._app.orchestrator.refuse_new_work()
        with suppress(OSError):
            if self._is_reachable():
                self._path.unlink()
        await self._app.orchestrator.shut_down(handover=self._handover)
        with anyio.move_on_after(PENDING_CALLS_S):
            while self._commands or self._app.operations.calls_in_progress:  # noqa: ASYNC110 (at the very end)
                await anyio.sleep(FLUSH_S / 5)
        await anyio.sleep(FLUSH_S)

    async def _serve_connection(self, stream: LocalStream) -> None:
        self._clients += 1
        try:
            async with stream:
                await self._serve_client(stream)
        except DISCONNECT_ERRORS:
            pass
        except Exception:
            log.exception("internal error: a client's connection ended")
        finally:
            self._clients -= 1
            self._idle_since = time.monotonic()

    async def _serve_client(self, stream: LocalStream) -> None:
        if not is_same_user(stream.socket):
            log.warning("refused a connection of another user")
            return
        if self.stopping.is_set():
            return  # a client without a greeting starts another daemon
        why = confinement_reason(stream.socket)
        hello, rest = await self._greet(stream, with_keys=why is None)
        if self._clients > MAX_CLIENTS:
            refusal = {"error": f"{MAX_CLIENTS} clients are connected, the limit: close some"}
            await stream.send(msgspec.json.encode(refusal) + b"\n")
            return
        if why:
            worker = self._app.project.passes.worker_with_pass(hello.worker_pass)
            await self._serve_worker_process(
                stream, rest, hello, WorkerAccess(why=why, worker=worker)
            )
            return
        caller = Caller(
            name="mcp" if hello.kind in ("mcp", "http") else "cli",
            cwd=Path(hello.cwd),
            warnings=self._app.project.take_keys(hello.env),
        )
        if hello.kind == "mcp":
            self._app.head_start.on_client()
            await (await self._mcp_frontend()).serve(stream, rest, caller)
        elif hello.kind == "http":
            self._app.head_start.on_client()
            await self._serve_http(stream, rest, caller)
        else:
            await self._serve_control(stream, rest, caller)

    async def _greet(self, stream: LocalStream, *, with_keys: bool) -> tuple[ClientHello, bytes]:
        if len(self._ungreeted) >= MAX_UNGREETED:
            oldest = next(iter(self._ungreeted))
            del self._ungreeted[oldest]
            await oldest.aclose()
        self._ungreeted[stream] = None
        try:
            with anyio.fail_after(HELLO_TIMEOUT_S):
                await stream.send(self._hello(with_keys=with_keys))
                return await read_hello(stream)
        finally:
            self._ungreeted.pop(stream, None)

    async def _serve_worker_process(
        self, stream: LocalStream, rest: bytes, hello: ClientHello, bounds: WorkerAccess
    ) -> None:
        """Serve a process that a worker started: it sends no keys, and may only look at its worker."""
        if bounds.refusal not in self._logged_refusals:  # a worker may connect often
            self._logged_refusals.add(bounds.refusal)
            log.warning("a client is kept within bounds: %s", bounds.refusal)
        if hello.kind == "control":
            caller = Caller(name="worker", cwd=Path(hello.cwd))
            await self._serve_control(stream, rest, caller, bounds=bounds)
        elif hello.kind == "http":
            with anyio.fail_after(HELLO_TIMEOUT_S):
                # With something unread, closing would discard the refusal.
                rest = rest or await stream.receive()
            await stream.send(msgspec.json.encode({"refusal": bounds.refusal}) + b"\n")
        else:
            await refuse_all(stream, rest, bounds.refusal)

    async def _mcp_frontend(self) -> "McpFrontend":
        """Imported by the first client that needs it: its library takes longer than all the rest."""
        async with self._loading:
            if self._mcp is None:
                server = await anyio.to_thread.run_sync(import_module, "goent.mcp.server")
                self._mcp = server.McpFrontend(self._app.operations, self._app.queries)
        assert self._mcp, "just made"
        return self._mcp

    async def _serve_http(self, stream: LocalStream, rest: bytes, caller: Caller) -> None:
        frontend = await self._mcp_frontend()
        from goent.mcp.streamable_http import serve_http  # noqa: PLC0415 (see _mcp_frontend)

        await serve_http(stream, rest, frontend, caller)

    async def _serve_control(
        self,
        stream: LocalStream,
        rest: bytes,
        caller: Caller,
        *,
        bounds: WorkerAccess | None = None,
    ) -> None:
        room = ControlServices(
            operations=self._app.operations, feed=self._app.feed, info=self.info, stop=self._stop
        )
        self._commands += 1
        try:
            await serve_control(stream, rest, room, caller, bounds=bounds)
        finally:
            self._commands -= 1

    def _hello(self, *, with_keys: bool) -> bytes:
        keys = self._app.project.key_names() if with_keys else ()
        fingerprints = self._app.project.fingerprints() if with_keys else dict[str, str]()
        hello = {
            "goent": PROTOCOL,
            "version": __version__,
            "kind": "daemon",
            "cwd": str(self._app.project.folder),
            "keys": " ".join(keys),
            "fingerprints": fingerprints,
            "pid": os.getpid(),
        }
        return msgspec.json.encode(hello) + b"\n"

    def info(self) -> DaemonInfo:
        return DaemonInfo(
            pid=os.getpid(),
            version=__version__,
            socket=str(self._path),
            project=str(self._app.project.folder),
            workers=len(self._app.orchestrator.living_workers),
            http=self._app.gateway_url,
        )

    def _busy(self) -> bool:
        busy = any(living.busy for living in self._app.orchestrator.living_workers.values())
        return busy or self._app.evaluations.under_way

    def _stop(self, *, if_idle: bool, handover: bool) -> bool:
        if if_idle and self._busy():
            return False
        self._handover = handover
        self._app.orchestrator.refuse_new_work()
        self.stopping.set()
        return True

    async def _watch_idleness(self) -> None:
        while True:
            limit = self._idle_limit()
            at_work = self._app.orchestrator.living_workers or self._app.evaluations.under_way
            if self._clients or at_work:
                self._idle_since = time.monotonic()
            if time.monotonic() - self._idle_since > limit:
                log.info("idle for %.0f s: ending", limit)
                self.stopping.set()
            with suppress(OSError):
                rotate_log(log_path(project_key(self._app.project.folder), os.environ))
            await anyio.sleep(min(limit / 4 + 0.05, IDLE_CHECK_S))

    def _idle_limit(self) -> float:
        if not self._is_reachable():
            return 0.0
        try:
            return self._app.project.settings().daemon.idle_exit_s
        except GoentError:
            return 1800.0

    def _is_reachable(self) -> bool:
        """Whether the project's folder, the socket and the lock are still in place."""
        try:
            found = self._app.project.folder.is_dir() and self._path.stat().st_ino == self._inode
        except OSError:
            return False
        return found and (self._lock is None or self._lock.is_visible())

    async def _watch_signals(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            log.info("%s: ending", signal.Signals(number).name)
            self.stopping.set()


async def _run_server(
    project: Path, lock: ProjectLock, verdict_fd: int, formatter: RedactingFormatter
) -> None:
    path = lock.socket
    _remove_stale_socket(path)
    # Received to the very end: a second signal must not cut short what the first one began.
    with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async with open_app(project, dict(os.environ)) as app:
            formatter.secrets = app.project.secrets
            daemon = DaemonServer(app, path, lock)
            with LocalListener(path) as listener:
                _report_start(verdict_fd, "ok")
                log.info("go-ent %s serves %r", __version__, str(project))
                try:
                    await daemon.serve(listener, signals)
                finally:
                    path.unlink(missing_ok=True)


def _remove_stale_socket(path: Path) -> None:
    """With the lock taken, an existing socket is stale."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentTrouble(
            f"{str(path)!r} is in the way of the socket ({error.strerror}): remove it"
        ) from error


def _report_start(verdict_fd: int, verdict: str) -> None:
    with suppress(OSError):
        os.write(verdict_fd, verdict.encode())
        os.close(verdict_fd)


def _take_lock(project: Path) -> ProjectLock | None:
    """The project's lock; None if another daemon serves it. A daemon that is ending is waited for."""
    key = project_key(project)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    held = None
    while time.monotonic() < deadline:
        if (lock := lock_project(key, os.environ, "daemon")) is not None:
            return lock
        held = find_holder(key, os.environ)
        if held and held.socket and _is_answering(held.socket):
            return None
        if held and held.kind == "embedded":
            raise EnvironmentTrouble(already_held_message(project, held))
        time.sleep(0.05)
    at = f" at {str(held.socket)!r}" if held and held.socket else ""
    raise EnvironmentTrouble(
        f"{held} holds {str(project)!r} but does not answer{at}: end it with `go-ent daemon stop "
        "--force`; if it runs in a container or has a /tmp of its own, end it there"
    )


def _is_answering(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
        probe.settimeout(1)
        probe.connect(str(path))
        return probe.recv(1) != b""
    return False


def run_daemon(project_folder: str, verdict_fd: int) -> int:
    """Serve a project; the process that starts the daemon waits for a verdict on the descriptor."""
    project = Path(project_folder)
    if os.fork():
        os._exit(0)
    os.set_inheritable(verdict_fd, False)  # noqa: FBT003 (the standard library's own signature)
    raise_descriptor_limit()
    formatter = log_to_stderr(os.environ.get("GOENT_LOG", "INFO"))
    try:
        lock = _take_lock(project)
        if lock is None:
            _report_start(verdict_fd, "ok")
            return 0
        anyio.run(_run_server, project, lock, verdict_fd, formatter)
    except BaseException as raised:
        error = _innermost_error(raised)
        if not isinstance(error, GoentError | OSError):
            log.exception("internal error: the daemon ended")
            _report_start(verdict_fd, f"3 internal error: {error!r}; see the daemon's log")
            raise
        log.error("%s", error)  # noqa: TRY400 (the message says it all)
        _report_start(
            verdict_fd, f"{error.exit_code if isinstance(error, GoentError) else 3} {error}"
        )
        return 3
    return 0


def _innermost_error(error: BaseException) -> BaseException:
    """The single error that a task group wrapped."""
    match error:
        case BaseExceptionGroup(exceptions=(BaseException() as only,)):
            return _innermost_error(only)
        case _:
            return error
