"""Identifies the process at the other end of a socket, and tells whether a worker started it.

Whatever go-ent starts for a worker has NoNewPrivs set, and usually namespaces of its own. The kernel
passes both on to every process started from there, and no process can undo them: not by `setsid`, not
by a double fork, not by a cleared environment. Standard library only: the launcher imports this.
"""

import errno
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

_LOCAL_PEERCRED = 0x001  # macOS; not in Python's socket module


_SO_PEERPIDFD = 77  # Linux 6.5


_NAMESPACES = ("user", "mnt", "pid")


PEER_ATTEMPTS = 20


PEER_PAUSE_S = 0.01  # seconds


PEER_GONE = "it has already ended"


PEER_HIDDEN = (
    "/proc does not show it, being mounted with hidepid (an administrator can exempt your group "
    "with the mount option gid=)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPeer:
    """The process at the other end. `pid` is 0 where the system does not provide it."""

    pid: int
    uid: int


def peer_of(sock: socket.socket) -> SocketPeer:
    """The process that connected, or that began to listen; the kernel recorded it at that moment."""
    if hasattr(socket, "SO_PEERCRED"):
        packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", packed)
        return SocketPeer(pid=pid, uid=uid)
    packed = sock.getsockopt(0, _LOCAL_PEERCRED, 76)
    _, uid = struct.unpack_from("II", packed)
    return SocketPeer(pid=0, uid=uid)


def confinement_reason(sock: socket.socket) -> str | None:
    """Why the process at the other end counts as started by a worker; None if it does not.

    A process of which that is unknown counts as a worker's; outside Linux no process does. If this
    process has NoNewPrivs itself, only namespaces are compared.
    """
    if sys.platform != "linux":
        return None
    pid = peer_of(sock).pid
    if pid <= 0:
        return "it is in a PID namespace that is not visible from here"
    why: str | None = PEER_HIDDEN
    for _ in range(PEER_ATTEMPTS):
        try:
            why = _namespace_difference(pid)
            break
        except OSError:  # a process that is ending has no namespaces, but exists for a moment
            if not _is_peer_alive(sock, pid):
                return PEER_GONE
            time.sleep(PEER_PAUSE_S)
    # Only now is it certain that what was read is of the process that connected, not of a successor.
    return why if _is_peer_alive(sock, pid) else PEER_GONE


def _namespace_difference(pid: int) -> str | None:
    ours, theirs = _process_status("self"), _process_status(str(pid))
    if theirs.get("NoNewPrivs") == "1" != ours.get("NoNewPrivs"):
        return "it has NoNewPrivs, as everything that a worker starts"
    if len(theirs.get("NSpid", "").split()) != len(ours.get("NSpid", "").split()):
        return "it is in another PID namespace"
    if _read_proc(f"/proc/{pid}/uid_map") != _read_proc("/proc/self/uid_map"):
        return "it is in another user namespace"
    for kind in _NAMESPACES:
        try:
            there = os.stat(f"/proc/{pid}/ns/{kind}")  # noqa: PTH116 (pathlib costs the launcher time)
        except PermissionError:  # go-ent's own processes are closed; the rest has been compared
            continue
        if not os.path.samestat(there, os.stat(f"/proc/self/ns/{kind}")):  # noqa: PTH116 (the same)
            return f"it is in another {kind} namespace"
    return None


def _process_status(process: str) -> dict[str, str]:
    lines = _read_proc(f"/proc/{process}/status").decode(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _read_proc(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 (the same)
        return file.read()


def _is_peer_alive(sock: socket.socket, pid: int) -> bool:
    try:
        with suppress(PermissionError):  # a sandbox may forbid signals
            os.kill(pid, 0)
        handle = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        return error.errno == errno.ENOPROTOOPT  # an older kernel: there is only the pid
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(handle)
