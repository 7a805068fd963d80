"""`go-ent mcp`: standard input and output, joined to the daemon's socket.

It copies bytes. It looks at a line only to remember what it would have to say again: should the
daemon die, a new one is started, the client's handshake is replayed, and every request that was
under way is answered with an error that says so. Standard library only.
"""

import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

from goent.launch import Connection, NoDaemon, connect, parsed

CHUNK = 256 * 1024
PARTING_S = 2.0
MOST_RESTARTS = 5

LOST = (
    "go-ent's daemon ended while this call was under way and has been started again. "
    "Nothing journaled is lost: worker_list shows every worker's state."
)


class Gone(Exception):
    """The daemon closed its side."""


class Shim:
    """One client, one daemon at a time."""

    def __init__(self, cwd: Path, stdin: int, stdout: int) -> None:
        self._cwd = cwd
        self._stdin = stdin
        self._stdout = stdout
        self._partial = b""
        self._reply_partial = b""
        self._in_flight: dict[str, object] = {}
        self._handshake: list[bytes] = []
        self._swallow: str | None = None
        self._restarts = 0

    def run(self) -> None:
        connection = connect(self._cwd, "mcp")
        while True:
            try:
                self._serve(connection)
            except Gone:
                connection.socket.close()
                connection = self._again()
            else:
                return

    def _again(self) -> Connection:
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            raise NoDaemon(f"the daemon ended {MOST_RESTARTS} times; see `go-ent doctor`")
        self._reply_partial = b""
        for request in self._in_flight.values():
            error = {"code": -32000, "message": LOST}
            self._write_line({"jsonrpc": "2.0", "id": request, "error": error})
        self._in_flight.clear()
        connection = connect(self._cwd, "mcp")
        for line in self._handshake:
            connection.socket.sendall(line)
            message = parsed(line)
            if "id" in message:
                self._swallow = json.dumps(message["id"])
        return connection

    def _serve(self, connection: Connection) -> None:
        """Copy both ways until the client is done; `Gone` if the daemon is first."""
        sock = connection.socket
        if connection.rest:
            self._to_client(connection.rest)
        with selectors.DefaultSelector() as ready:
            ready.register(sock, selectors.EVENT_READ)
            ready.register(self._stdin, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is sock:
                        self._to_client(_received(sock))
                    elif not self._to_daemon(sock):
                        self._part(sock)
                        return

    def _to_daemon(self, sock: socket.socket) -> bool:
        chunk = os.read(self._stdin, CHUNK)
        if not chunk:
            return False
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            self._remember(line)
        try:
            sock.sendall(b"".join(line + b"\n" for line in lines))
        except OSError:
            raise Gone from None
        return True

    def _remember(self, line: bytes) -> None:
        message = parsed(line)
        method, request = message.get("method"), message.get("id")
        if method in ("initialize", "notifications/initialized"):
            self._handshake.append(line + b"\n")
        if method and request is not None:
            self._in_flight[json.dumps(request)] = request

    def _to_client(self, chunk: bytes) -> None:
        *lines, self._reply_partial = (self._reply_partial + chunk).split(b"\n")
        passed = [line for line in lines if self._is_for_client(line)]
        _write_all(self._stdout, b"".join(line + b"\n" for line in passed))

    def _is_for_client(self, line: bytes) -> bool:
        """Forget what is answered; hold back the answer to a replayed handshake."""
        if not self._in_flight and self._swallow is None:
            return True
        message = parsed(line)
        if not message or "method" in message:
            return True
        request = json.dumps(message.get("id"))
        self._in_flight.pop(request, None)
        if request == self._swallow:
            self._swallow = None
            return False
        return True

    def _write_line(self, message: dict[str, object]) -> None:
        _write_all(self._stdout, json.dumps(message).encode() + b"\n")

    def _part(self, sock: socket.socket) -> None:
        """The client is done: what is under way may still be answered, for a moment."""
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(PARTING_S)
        try:
            while True:
                self._to_client(_received(sock))
        except (OSError, Gone):
            sock.close()


def _received(sock: socket.socket) -> bytes:
    try:
        chunk = sock.recv(CHUNK)
    except ConnectionError:
        raise Gone from None
    if not chunk:
        raise Gone
    return chunk


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _leave(_: int, __: FrameType | None) -> None:
    sys.exit(0)


def run_shim(cwd: Path) -> int:
    """Serve the client on standard input and output; the exit code."""
    # The end of Claude Code's session is a SIGINT: the shim goes, the workers stay.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        Shim(cwd, 0, 1).run()
    except NoDaemon as error:
        sys.stderr.write(f"go-ent: {error}\n")
        return error.code
    except BrokenPipeError:
        return 0
    return 0
