"""How does a command find its project's daemon, and start one if there is none?

Standard library only: `go-ent mcp` must be there in well under 100 ms.
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
from goent.project import find_project, log_path, project_key, runtime_dir

PROTOCOL = 1
CONNECT_S = 5.0
START_S = 60.0
HELLO_LIMIT = 64 * 1024
MARK = "GOENT_PROC"


class NoDaemon(Exception):
    """The daemon neither answers nor starts; `code` is the exit code that fits."""

    def __init__(self, message: str, code: int = 3) -> None:
        super().__init__(message)
        self.code = code


class Connection:
    """A socket to the daemon, after both hellos."""

    def __init__(self, sock: socket.socket, hello: Mapping[str, object], rest: bytes) -> None:
        self.socket = sock
        self.hello = hello
        self.rest = rest


def connect(cwd: Path, kind: str, *, start: bool = True) -> Connection:
    """A connection to the daemon of the project around `cwd`."""
    project = find_project(cwd)
    path = runtime_dir(project_key(project), os.environ) / "sock"
    connection = _try_connect(path, kind, cwd)
    if connection and connection.hello.get("version") != __version__:
        connection = _replace_other_version(connection, path, kind, cwd)
    if connection:
        return connection
    if not start:
        raise NoDaemon(f"no daemon runs for {str(project)!r}", 1)
    with _alone_in_starting(path.parent):
        connection = _try_connect(path, kind, cwd)  # somebody may have been faster
        if connection is None:
            start_daemon(project)
            connection = _try_connect(path, kind, cwd)
    if connection is None:
        raise NoDaemon(
            f"the daemon of {str(project)!r} started but does not answer at {str(path)!r}; "
            f"its log: {log_path(project_key(project), os.environ)}"
        )
    return connection


@contextmanager
def _alone_in_starting(folder: Path) -> Generator[None]:
    """Of many commands at once, one starts the daemon; the others wait, and find it there."""
    import fcntl  # noqa: PLC0415 (Windows has none, and is to get a message, not a traceback)

    fd = os.open(folder / "starting", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + START_S
    try:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _try_connect(path: Path, kind: str, cwd: Path) -> Connection | None:
    """None if nobody listens: no socket, a stale one, or one that just closes."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(CONNECT_S)
    try:
        sock.connect(str(path))
        hello, rest = _read_hello(sock)
        sock.sendall(_own_hello(kind, cwd, hello))
    except TimeoutError:
        sock.close()
        raise NoDaemon(
            f"the daemon at {str(path)!r} is stuck: it does not say hello within {CONNECT_S:g} s; "
            "`go-ent daemon stop --force` ends it"
        ) from None
    except OSError:
        sock.close()
        return None
    sock.settimeout(None)
    return Connection(sock, hello, rest)


def _read_hello(sock: socket.socket) -> tuple[dict[str, object], bytes]:
    received = b""
    while b"\n" not in received:
        chunk = sock.recv(4096)
        if not chunk or len(received) > HELLO_LIMIT:
            raise ConnectionResetError
        received += chunk
    line, _, rest = received.partition(b"\n")
    hello = parsed(line)
    if hello.get("goent") != PROTOCOL:
        raise NoDaemon(
            f"the daemon speaks protocol {hello.get('goent')!r}, this go-ent {PROTOCOL}: "
            "stop it with the go-ent that started it (`go-ent daemon stop`)"
        )
    return hello, rest


def _own_hello(kind: str, cwd: Path, theirs: Mapping[str, object]) -> bytes:
    """Only the key variables that the project's configuration names leave this process."""
    wanted = str(theirs.get("keys") or "").split()
    hello = {
        "goent": PROTOCOL,
        "version": __version__,
        "kind": kind,
        "cwd": str(cwd),
        "env": {name: os.environ[name] for name in wanted if os.environ.get(name)},
    }
    return json.dumps(hello).encode() + b"\n"


def parsed(line: bytes) -> dict[str, object]:
    """A JSON object; empty for everything else."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] (JSON has string keys)


def _replace_other_version(
    found: Connection, path: Path, kind: str, cwd: Path
) -> Connection | None:
    """A daemon of another version is replaced when it has nothing to do, else it is used."""
    asking = found if kind == "control" else _try_connect(path, "control", cwd)
    if asking is None:
        return None
    request = {"jsonrpc": "2.0", "id": 1, "method": "daemon_stop", "params": {"if_idle": True}}
    asking.socket.sendall(json.dumps(request).encode() + b"\n")
    asking.socket.settimeout(START_S)
    reply = asking.socket.makefile("rb").readline()
    if b'"stopping":true' in reply.replace(b" ", b""):
        _wait_until_gone(path)
        return None
    sys.stderr.write(
        f"go-ent {__version__}: the running daemon is {found.hello.get('version')} and has "
        "workers; it is used until they are done\n"
    )
    return _try_connect(path, kind, cwd) if kind == "control" else found


def _wait_until_gone(path: Path) -> None:
    deadline = time.monotonic() + START_S
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def start_daemon(project: Path) -> None:
    """Start the daemon and return when it listens. Two at once: one wins, both return."""
    log = log_path(project_key(project), os.environ)
    ready, told = os.pipe()
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    # -P: a project must not be able to put its own modules in the daemon's way.
    command = [sys.executable, "-P", "-m", "goent.daemon", str(project), str(told)]
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        daemon = subprocess.Popen(
            command,
            cwd=project,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(told,),
        )
        os.close(told)
        told = -1
        daemon.wait(START_S)  # it forks at once: what serves the project is nobody's child
        verdict = _read_until_eof(ready, START_S)
    finally:
        for fd in (output, ready, told):
            if fd >= 0:
                os.close(fd)
    if verdict == b"":
        raise NoDaemon(f"the daemon of {str(project)!r} did not start; its log: {log}")
    if not verdict.startswith(b"ok"):
        code, _, message = verdict.decode(errors="replace").partition(" ")
        raise NoDaemon(message.strip(), int(code) if code.isdigit() else 3)


def _read_until_eof(fd: int, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    received = b""
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(fd, 4096)
        if not chunk:
            break
        received += chunk
    return received


def take_lock(folder: Path) -> int | None:
    """The project's one lock, held by its daemon as long as it lives; None if it is taken."""
    import fcntl  # noqa: PLC0415 (Windows has none, and is to get a message, not a traceback)

    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
