"""Connects to the project's daemon, starts it if none is running, and checks who answers.

Standard library only: `go-ent mcp` must start in well under 100 ms.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from goent import __version__
from goent.daemon.socket_peer import PEER_GONE, confinement_reason, peer_of
from goent.system.daemon_environment import (
    WORKER_PASS,
    WORKER_SOCKET,
    is_sendable,
    send_environment,
    start_environment,
)
from goent.system.project_folders import (
    UnsafeFolder,
    find_project,
    is_private_folder,
    log_path,
    project_key,
    project_state_dir,
    runtime_folders,
    unusable_folder_error,
)
from goent.system.project_lock import ProjectHolder, find_holder, lock_holder, take_lock

PROTOCOL = 1
CONNECT_TIMEOUT_S = 5.0
START_TIMEOUT_S = 60.0
UNLOCKED_WAIT_S = 1.0
CONNECT_ATTEMPTS = 5
HELLO_LIMIT = 64 * 1024
LOG_LIMIT = 5_000_000  # bytes; two such files are kept


class NoDaemon(Exception):
    """The daemon neither answers nor starts; `code` is the exit code."""

    def __init__(self, message: str, code: int = 3) -> None:
        super().__init__(message)
        self.code = code


class DaemonConnection:
    """A socket to the daemon, after both hellos."""

    def __init__(self, sock: socket.socket, hello: Mapping[str, object], rest: bytes) -> None:
        self.socket = sock
        self.hello = hello
        self.rest = rest


def connect(cwd: Path, kind: str, *, start: bool = True, replace: bool = True) -> DaemonConnection:
    """A connection to the daemon of the project around `cwd`.

    `replace` replaces an idle daemon of another version by one of this version.
    """
    _check_path_encoding(cwd)
    start = start and not os.environ.get(WORKER_PASS)  # a worker's commands start no daemon
    held = None
    try:
        project = find_project(cwd)
        key = project_key(project)
        for _ in range(CONNECT_ATTEMPTS):  # a daemon may be ending
            held = _current_holder(key)
            connection = _try_connect(held, kind, cwd)
            if connection and start and replace and not _is_current_version(connection, held):
                connection = _replace_other_version(connection, held, cwd)
            if connection is None and held:
                _check_holder(project, held)
            if connection is None and start:
                connection = _start_and_connect(project, kind, cwd)
            if connection:
                return connection
            if not start:
                raise NoDaemon(_no_daemon_message(project), 1)
    except OSError as error:
        raise NoDaemon(str(error)) from error
    where = f" at {str(held.socket)!r}" if held and held.socket else ""
    raise NoDaemon(
        f"the daemon of {str(project)!r} started but does not answer{where}; "
        f"its log: {log_path(key, os.environ)}"
    )


def _current_holder(key: str) -> ProjectHolder | None:
    """Who serves the project. A worker's command cannot see the lock; a variable names the socket."""
    if not os.environ.get(WORKER_PASS):
        return find_holder(key, os.environ)
    named = os.environ.get(WORKER_SOCKET)
    places = [folder / "sock" for folder in runtime_folders(key, os.environ)]
    found = (path for path in (Path(named), *places) if path.exists()) if named else iter(places)
    return ProjectHolder(kind="daemon", socket=next(found, None))


def _no_daemon_message(project: Path) -> str:
    none = f"no daemon is running for {str(project)!r}"
    if worker := os.environ.get(WORKER_PASS, "").rpartition(".")[0]:
        return f"{none}, and this process was started by worker {worker}, which may not start one"
    return none


def _check_path_encoding(cwd: Path) -> None:
    try:
        str(cwd).encode()
    except UnicodeEncodeError:
        raise NoDaemon(f"the path {str(cwd)!r} is not UTF-8: rename the folder", 2) from None


def _check_holder(project: Path, held: ProjectHolder) -> None:
    """Raise `NoDaemon` if the holder cannot be reached: it has no socket, or is on another machine."""
    if held.kind == "embedded":
        raise NoDaemon(already_held_message(project, held))
    if held.is_elsewhere:
        raise NoDaemon(
            f"{held} holds {str(project)!r}, and its socket {str(held.socket)!r} cannot be reached "
            "from here: run `go-ent daemon stop` where it was started, or give this machine or "
            "container a state folder of its own with XDG_STATE_HOME"
        )


def already_held_message(project: Path, held: ProjectHolder) -> str:
    """The explanation that an embedded go-ent holds the project, with the remedy."""
    return (
        f"{held} holds {str(project)!r}, and its workers can be reached through its MCP client "
        f"alone: close that client (or `kill {held.pid}`), or start `go-ent mcp` there without "
        "--embedded, which shares the project"
    )


def _start_and_connect(project: Path, kind: str, cwd: Path) -> DaemonConnection | None:
    key = project_key(project)
    with _start_lock(project_state_dir(key, os.environ)):
        connection = _try_connect(
            _current_holder(key), kind, cwd
        )  # another process may have been faster
        if connection is None:
            start_daemon(project)
            connection = _try_connect(_current_holder(key), kind, cwd)
    return connection


@contextmanager
def _start_lock(folder: Path) -> Generator[None]:
    """Of several commands in parallel, one starts the daemon; the others wait for it."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (fd := take_lock(folder, "starting")) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _try_connect(held: ProjectHolder | None, kind: str, cwd: Path) -> DaemonConnection | None:
    """None if nobody listens: there is no socket, or it is stale or being closed."""
    path = held.socket if held else None
    if path is None or not _is_safe_socket(path):
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(CONNECT_TIMEOUT_S)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    try:
        _dial(sock, path, deadline)
        _check_daemon(sock, path, cwd)
        hello, rest = _read_daemon_hello(sock, deadline)
        sock.sendall(_client_hello(kind, cwd, hello))
    except TimeoutError:
        sock.close()
        raise _stuck_error(path, "say hello", CONNECT_TIMEOUT_S) from None
    except OSError:
        sock.close()
        return None
    except NoDaemon:
        sock.close()
        raise
    sock.settimeout(None)
    return DaemonConnection(sock, hello, rest)


def _is_safe_socket(path: Path) -> bool:
    """Whether there is a folder for the socket in which no other user can put one."""
    if os.environ.get(WORKER_PASS):  # it has no keys to send
        return True
    if os.path.lexists(path.parent) and not is_private_folder(path.parent):
        raise UnsafeFolder(
            f"the daemon's socket is in {str(path.parent)!r}, where other users can write: "
            "nothing was sent to it; end the daemon with `go-ent daemon stop --force`"
        )
    return path.is_absolute()


def _dial(sock: socket.socket, path: Path, deadline: float) -> None:
    while True:
        try:
            return sock.connect(str(path))
        except BlockingIOError:  # the listen queue is full
            if time.monotonic() > deadline:
                raise TimeoutError from None
            time.sleep(0.02)


def _stuck_error(path: Path, what: str, seconds: float) -> NoDaemon:
    return NoDaemon(
        f"the daemon at {str(path)!r} is stuck: it does not {what} within {seconds:g} s; "
        "`go-ent daemon stop --force` ends it"
    )


def _read_daemon_hello(sock: socket.socket, deadline: float) -> tuple[dict[str, object], bytes]:
    received = b""
    while b"\n" not in received:
        chunk = sock.recv(4096)
        if not chunk or len(received) > HELLO_LIMIT:
            raise ConnectionResetError
        if time.monotonic() > deadline:
            raise TimeoutError
        received += chunk
    line, _, rest = received.partition(b"\n")
    hello = parse_object(line)
    if hello.get("goent") != PROTOCOL:
        raise NoDaemon(
            f"the daemon speaks protocol {hello.get('goent')!r}, this go-ent {PROTOCOL}: "
            "wait for its workers and stop it with the go-ent that started it "
            "(`go-ent daemon stop`), or end it and them with `go-ent daemon stop --force`"
        )
    return hello, rest


def _check_daemon(sock: socket.socket, path: Path, cwd: Path) -> None:
    """Raise `NoDaemon` if the other end is not the user's own daemon: only that one may get keys.

    Raises `ConnectionResetError` for a daemon that has just ended. A worker's own command has no keys to
    send, and sees the daemon from inside its namespaces: it makes no such check.
    """
    if os.environ.get(WORKER_PASS):
        return
    peer = peer_of(sock)
    why = f"it belongs to user {peer.uid}" if peer.uid != os.geteuid() else confinement_reason(sock)
    key = project_key(find_project(cwd))
    held = find_holder(key, os.environ)
    deadline = time.monotonic() + UNLOCKED_WAIT_S
    while why is None and held is None and time.monotonic() < deadline:
        time.sleep(0.02)  # a daemon that ends releases its lock a moment before it is gone
        why, held = confinement_reason(sock), find_holder(key, os.environ)
    is_holder = held is not None and held.pid in (0, peer.pid)
    if why == PEER_GONE and not is_holder:
        raise ConnectionResetError
    if why is None and peer.pid and not is_holder:
        why = f"{held} holds the project" if held else "it does not hold the project's lock"
    if why:
        raise NoDaemon(
            f"process {peer.pid} answers at {str(path)!r} but is not your daemon: {why}. Nothing was "
            f"sent to it. `go-ent daemon stop --force` ends the daemon, `kill {peer.pid}` that process; "
            "in a container or sandbox of its own, use `go-ent mcp --embedded`"
        )


def _client_hello(kind: str, cwd: Path, theirs: Mapping[str, object]) -> bytes:
    """Only key variables are sent, and none by a worker's process."""
    worker_pass = os.environ.get(WORKER_PASS, "")
    wanted = [] if worker_pass else str(theirs.get("keys") or "").split()
    names = [name for name in wanted if os.environ.get(name) and is_sendable(name, cwd)]
    hello = {
        "goent": PROTOCOL,
        "version": __version__,
        "kind": kind,
        "cwd": str(cwd),
        "env": {name: os.environ[name] for name in names},
        **({"worker_pass": worker_pass} if worker_pass else {}),
    }
    return json.dumps(hello).encode() + b"\n"


def parse_object(line: bytes) -> dict[str, object]:
    """A JSON object; empty for everything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] (JSON has string keys)


def _is_current_version(found: DaemonConnection, held: ProjectHolder | None) -> bool:
    earlier = held is not None and held.is_earlier
    return found.hello.get("version") == __version__ and not earlier


def _replace_other_version(
    found: DaemonConnection, held: ProjectHolder | None, cwd: Path
) -> DaemonConnection | None:
    """Replace a daemon of another version if it is idle; otherwise use it."""
    if held and _stop_if_idle(held, cwd):
        found.socket.close()
        if held.is_earlier and held.socket:
            _await_release(held.socket.parent)
        return None
    sys.stderr.write(
        f"go-ent {__version__}: the running daemon is {found.hello.get('version')}"
        f"{', of an earlier build,' if held and held.is_earlier else ''} and has "
        "workers; it is used until they are done\n"
    )
    return found


def _await_release(folder: Path) -> None:
    """Wait until an earlier daemon releases its only lock, which its successor does not take."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while lock_holder(folder) and time.monotonic() < deadline:
        time.sleep(0.02)


def _stop_if_idle(held: ProjectHolder, cwd: Path) -> bool:
    asking = _try_connect(held, "control", cwd)
    if asking is None or held.socket is None:  # it is ending already
        return True
    asking.socket.settimeout(CONNECT_TIMEOUT_S)
    with asking.socket, asking.socket.makefile("rb") as replies:
        try:
            for params in ({"if_idle": True, "handover": True}, {"if_idle": True}):
                call = {"jsonrpc": "2.0", "id": 1, "method": "daemon_stop", "params": params}
                asking.socket.sendall(json.dumps(call).encode() + b"\n")
                reply = replies.readline()
                if "error" not in parse_object(reply):  # an older daemon may not know `handover`
                    break
        except TimeoutError:
            raise _stuck_error(held.socket, "answer", CONNECT_TIMEOUT_S) from None
        except OSError:
            return True
    return not reply or parse_object(reply).get("result") == {"stopping": True}


def start_daemon(project: Path) -> None:
    """Start the daemon and return when it listens. If two start one in parallel, both return."""
    if not project.is_dir():
        raise NoDaemon(f"{str(project)!r} no longer exists: change to a folder that does", 2)
    log = log_path(project_key(project), os.environ)
    output = open_log(log)
    ours, its = socket.socketpair()
    with ours:
        verdict = _spawn_daemon(project, output, ours, its)
    if verdict == b"":
        raise NoDaemon(f"the daemon of {str(project)!r} did not start; its log: {log}")
    if not verdict.startswith(b"ok"):
        code, _, message = verdict.decode(errors="replace").partition(" ")
        raise NoDaemon(message.strip(), int(code) if code.isdigit() else 3)


def _spawn_daemon(project: Path, log: int, ours: socket.socket, its: socket.socket) -> bytes:
    """The new daemon's verdict on its start; empty if there is none in time."""
    # -P: otherwise a project could replace modules by its own.
    command = [sys.executable, "-P", "-m", "goent", "serve-daemon", str(project)]
    try:
        daemon = subprocess.Popen(
            [*command, str(its.fileno())],
            cwd=project,
            env=start_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(its.fileno(),),
        )
    finally:
        os.close(log)
        its.close()
    try:
        ours.settimeout(START_TIMEOUT_S)
        send_environment(ours)
        daemon.wait(
            START_TIMEOUT_S
        )  # it forks immediately: the daemon is not a child of this process
    except (subprocess.TimeoutExpired, TimeoutError):
        daemon.kill()
        daemon.wait(START_TIMEOUT_S)
        return b""
    return _read_until_eof(ours.fileno(), START_TIMEOUT_S)


def open_log(path: Path) -> int:
    """A descriptor that appends to the log; a long log is first renamed to `.1`."""
    try:
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_name(f"{path.name}.1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable_folder_error(path, error, "XDG_STATE_HOME") from error


def _read_until_eof(fd: int, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    received = b""
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(fd, 4096)
        if not chunk:
            break
        received += chunk
    return received
