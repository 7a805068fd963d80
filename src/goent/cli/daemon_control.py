"""Stops the project's daemon, and holds its HTTP listener open for `go-ent mcp --http`."""

import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from goent.cli.daemon_client import CommandError, DaemonDisconnected, open_daemon_client
from goent.cli.display import print_json
from goent.daemon.daemon_connection import NoDaemon, connect
from goent.domain.replies import DaemonInfo, StopReply
from goent.domain.requests import StopRequest
from goent.domain.types import Value
from goent.system.project_folders import find_project, project_key
from goent.system.project_lock import find_holder

STOP_TIMEOUT_S = 30.0  # the daemon gives its workers half of it
LOCAL_PEERPID = 0x002  # macOS; not in Python's socket module


def stop_daemon(cwd: Path, *, force: bool) -> bool:
    """Stop the project's daemon and wait until it has ended; False if none was running."""
    try:
        pid, stopping = _ask_to_stop(cwd, if_idle=not force)
    except (NoDaemon, CommandError) as trouble:
        pid, stopping = _silent_daemon(cwd), True
        none = isinstance(trouble, NoDaemon) and trouble.code == 1
        if pid is None and none:
            return False
        if pid is None or not (force or none):
            raise
        for number in (signal.SIGTERM, signal.SIGCONT) if force else ():
            with suppress(ProcessLookupError):  # a suspended process must continue to end
                os.kill(pid, number)
    if not stopping:
        raise CommandError("workers are busy: wait for them, or pass --force to end them too", 1)
    _await_end(pid, force=force)
    return True


def _ask_to_stop(cwd: Path, *, if_idle: bool) -> tuple[int, bool]:
    """Its process id, and whether it is stopping; closing the connection counts as stopping."""
    with open_daemon_client(cwd, start=False) as through:
        pid = through.call("daemon_status", None, DaemonInfo).pid
        try:
            stopped = through.call("daemon_stop", StopRequest(if_idle=if_idle), StopReply)
        except DaemonDisconnected:
            return pid, True
        return pid, stopped.stopping


def _await_end(pid: int, *, force: bool) -> None:
    from goent.proc.process_table import start_time  # noqa: PLC0415 (its room loads asyncio)

    deadline = time.monotonic() + STOP_TIMEOUT_S
    born = start_time(pid)
    while born and start_time(pid) == born:  # the process id may have been reused
        if time.monotonic() > deadline:
            if not force:
                raise CommandError(f"process {pid} is still ending; --force does not wait for it")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def _silent_daemon(cwd: Path) -> int | None:
    """A daemon that does not answer: it hangs, or is ending and has closed its socket."""
    held = find_holder(project_key(find_project(cwd)), os.environ)
    if held and held.kind == "daemon":
        return held.pid
    return _socket_owner(held.socket) if held and held.socket else None


def _socket_owner(path: Path) -> int | None:
    """The process that listens on the project's socket, according to the kernel."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
            if sys.platform == "linux":
                size = struct.calcsize("3i")
                packed = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
                pid: int = struct.unpack("3i", packed)[0]
                return pid
            return probe.getsockopt(0, LOCAL_PEERPID)
        except OSError:
            return None


LISTENER_TIMEOUT_S = 30.0
OTHER_VERSION_HINT = "`go-ent daemon stop` ends it, and the next command starts one of this version"


class HttpListener(Value, frozen=True, kw_only=True):
    """Where MCP is served, and the token for it."""

    url: str
    token: str


class _ListenerReply(Value, frozen=True, kw_only=True):
    url: str = ""
    token: str = ""
    error: str = ""
    refusal: str = ""


def hold_http_listener(cwd: Path, port: int, *, json: bool) -> int:
    """Keep the listener open until Ctrl-C or the end of the daemon."""
    connection = connect(cwd, "http")
    with connection.socket as sock:
        try:
            sock.sendall(msgspec.json.encode({"port": port}) + b"\n")
            sock.settimeout(LISTENER_TIMEOUT_S)
            line = connection.rest
            while b"\n" not in line:
                line += sock.recv(4096) or _raise_daemon_ended()
            sock.settimeout(None)
            _show_listener(_parse_listener(line.partition(b"\n")[0]), json=json)
            while sock.recv(4096) or _raise_daemon_ended():
                pass
        except KeyboardInterrupt:
            pass
        except OSError as error:
            raise CommandError(f"the daemon does not answer: {error}") from error
    return 0


def _parse_listener(line: bytes) -> HttpListener:
    try:
        answer = msgspec.json.decode(line, type=_ListenerReply)
    except msgspec.DecodeError as error:
        raise CommandError(
            f"the daemon's answer is invalid ({error}); {OTHER_VERSION_HINT}"
        ) from None
    if answer.refusal:
        raise CommandError(answer.refusal, 2)
    if answer.error:
        raise CommandError(f"{answer.error}; choose another with --port, or leave it out", 3)
    if not answer.url:
        raise CommandError(f"the running daemon does not support --http; {OTHER_VERSION_HINT}")
    return HttpListener(url=answer.url, token=answer.token)


def _raise_daemon_ended() -> NoReturn:
    raise CommandError("the daemon ended, and with it the listener; start this command again")


def _show_listener(door: HttpListener, *, json: bool) -> None:
    if json:
        print_json(door)
        return
    header = f"Bearer {door.token}"
    server = {"type": "http", "url": door.url, "headers": {"Authorization": header}}
    print(
        f"MCP is served at {door.url}\n"
        f"Header: Authorization: {header}\n\n"
        f"In Claude Code:\n  claude mcp add-json go-ent '{msgspec.json.encode(server).decode()}'\n\n"
        "The listener and its token end with this command (Ctrl-C). Workers continue.",
        flush=True,
    )
