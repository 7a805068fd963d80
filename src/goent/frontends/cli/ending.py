"""How is a daemon ended, and when is it really gone?"""

import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from goent.domain.replies import DaemonInfo, Stopping
from goent.domain.requests import StopRequest
from goent.frontends.cli.client import Gone, Trouble, daemon
from goent.launch import NoDaemon
from goent.lock import find_holder
from goent.project import find_project, project_key

PARTING_S = 30.0  # the daemon gives its workers half of it
LOCAL_PEERPID = 0x002  # macOS; not in Python's socket module


def stop_daemon(cwd: Path, *, force: bool) -> bool:
    """End the project's daemon and wait until it is gone; False if there was none."""
    try:
        pid, stopping = _ask_to_stop(cwd, if_idle=not force)
    except (NoDaemon, Trouble) as trouble:
        pid, stopping = _holding(cwd), True
        none = isinstance(trouble, NoDaemon) and trouble.code == 1
        if pid is None and none:
            return False
        if pid is None or not (force or none):
            raise
        for number in (signal.SIGTERM, signal.SIGCONT) if force else ():
            with suppress(ProcessLookupError):  # one that was stopped must go on to end
                os.kill(pid, number)
    if not stopping:
        raise Trouble("workers are busy: wait for them, or pass --force to end them too", 1)
    _await_end(pid, force=force)
    return True


def _ask_to_stop(cwd: Path, *, if_idle: bool) -> tuple[int, bool]:
    """Its process, and whether it ends. One that closes the line instead of answering does."""
    with daemon(cwd, start=False) as through:
        pid = through.call("daemon_status", None, DaemonInfo).pid
        try:
            stopped = through.call("daemon_stop", StopRequest(if_idle=if_idle), Stopping)
        except Gone:
            return pid, True
        return pid, stopped.stopping


def _await_end(pid: int, *, force: bool) -> None:
    from goent.proc.table import started  # noqa: PLC0415 (its room loads asyncio)

    deadline = time.monotonic() + PARTING_S
    born = started(pid)
    while born and started(pid) == born:  # the number may be somebody else's by now
        if time.monotonic() > deadline:
            if not force:
                raise Trouble(f"process {pid} is still ending; --force does not wait for it")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def _holding(cwd: Path) -> int | None:
    """The daemon that is there but says nothing: it is stuck, or ends and has no socket any more."""
    held = find_holder(project_key(find_project(cwd)), os.environ)
    if held and held.kind == "daemon":
        return held.pid
    return _listener(held.socket) if held and held.socket else None


def _listener(path: Path) -> int | None:
    """Who listens on the project's socket, as the kernel tells it."""
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
