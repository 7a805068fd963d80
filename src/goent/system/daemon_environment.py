"""Passes the user's environment to the daemon: at its start, and with each client's hello.

Every process of the user can read the environment that a process was started with. So the daemon starts
with next to nothing, and receives the rest on a socket once it has closed itself to others. Standard
library only.
"""

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from goent.system.process_protection import MARK_VARIABLE
from goent.system.project_folders import config_dir, find_project, home_dir

# In the environment of what a worker runs: which worker it is.
WORKER_PASS = "GOENT_WORKER_PASS"  # noqa: S105 (the variable's name)
# Beside it: where that worker's daemon listens.
WORKER_SOCKET = "GOENT_WORKER_SOCKET"
READY_BYTE = b"+"
# What the daemon's interpreter needs to start. The rest is sent when nobody can read it any more.
_START_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TERM|TMPDIR|(LC_|XDG_|LD_|DYLD_|PYTHON|COV).*"
)
_KEY_NAME = re.compile(
    r"(^|.*_)(API_?)?(KEYS?|TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|AUTH)(_ID)?",
    re.IGNORECASE,
)


def start_environment() -> dict[str, str]:
    """The environment that the daemon's interpreter is started with."""
    return {
        name: value
        for name, value in os.environ.items()
        if _START_VARIABLES.fullmatch(name) and not is_key_name(name)
    }


def send_environment(daemon: socket.socket) -> None:
    """Send the daemon this process's environment, once it is closed to other processes."""
    try:
        if daemon.recv(1) == READY_BYTE:
            daemon.sendall(b"\0".join(b"%b=%b" % pair for pair in _inherited_variables()))
            daemon.shutdown(socket.SHUT_WR)
    except ConnectionError:  # it has ended; the caller notices that it reports no verdict
        return


def _inherited_variables() -> Iterator[tuple[bytes, bytes]]:
    """The environment without the marks of this process: the daemon outlives it."""
    for name, value in os.environb.items():
        if os.fsdecode(name) not in (MARK_VARIABLE, WORKER_PASS, WORKER_SOCKET):
            yield name, value


def receive_environment(starter: int) -> None:
    """The daemon's side of `send_environment`; the descriptor stays open for the verdict."""
    with socket.socket(fileno=os.dup(starter)) as sock:
        sock.sendall(READY_BYTE)
        received = bytearray()
        while chunk := sock.recv(1 << 16):
            received += chunk
    os.environ.clear()
    for entry in filter(None, bytes(received).split(b"\0")):
        name, _, value = entry.partition(b"=")
        os.environb[name] = value


def is_sendable(name: str, cwd: Path) -> bool:
    """Whether the variable is named like a key, or by a settings file of the project or the user."""
    if is_key_name(name):
        return True
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)".encode())
    return any(word.search(text) for text in _settings_files(cwd))


def is_key_name(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return _KEY_NAME.fullmatch(name) is not None


def _settings_files(cwd: Path) -> Iterator[bytes]:
    project = find_project(cwd)
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home_dir(os.environ) / ".config")
    folders = (project / ".goent", config_dir(os.environ), project, xdg / "opencode")
    for folder in folders:
        for path in (*folder.glob("*.yaml"), *folder.glob("opencode.json*")):
            try:
                yield path.read_bytes()
            except OSError:
                continue


def fingerprint(key: str) -> str:
    """Distinguishes two keys without revealing either."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()[:8]
