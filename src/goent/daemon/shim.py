"""Runs `go-ent mcp`: joins standard input and output to the daemon's socket.

It copies bytes, and parses a line only to know what to send again: if the daemon dies, a new one is
started, the client's handshake is replayed, and every request in flight is answered with an error that
says so. A line that was not sent as a whole is not in flight, nor is one that an ending daemon refused:
the new daemon gets it. Standard library only.
"""

import json
import os
import select
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from goent.daemon.daemon_connection import DaemonConnection, NoDaemon, connect, parse_object
from goent.system.line_splitter import LineSplitter, OversizedLine

CHUNK = 256 * 1024
SEND_TIMEOUT_S = 60.0
CLOSE_S = 2.0
REFUSAL_S = 2.0
MAX_RESTARTS = 5  # in quick succession
RESTART_WINDOW_S = 60.0
INVALID_REQUEST = -32600
RETRYABLE_METHODS = frozenset(
    {"ping", "server/discover", "tools/list", "prompts/list", "resources/list"}
    | {"resources/templates/list"}
)

REPLAYED_METHODS = frozenset({"initialize", "notifications/initialized", "resources/subscribe"})

CALL_LOST_MESSAGE = (
    "go-ent's daemon ended while this call was in flight and has been restarted. "
    "Nothing journaled is lost: worker_list shows every worker's state."
)


class DaemonClosed(Exception):
    """The daemon closed its side."""


class Shim:
    """One client, one daemon at a time."""

    def __init__(self, cwd: Path, stdin: int, stdout: int) -> None:
        self._cwd = cwd
        self._stdin = stdin
        self._stdout = stdout
        self._client_lines = LineSplitter()
        self._daemon_lines = LineSplitter(sys.maxsize)
        self._unsent: deque[bytes] = deque()
        self._in_flight: dict[str, bytes] = {}  # by id
        self._handshake: dict[bytes, str | None] = {}  # its lines, and the id of each that has one
        self._ignored_replies: set[str] = set()
        self._is_paused = False  # until there is another daemon
        self._restarts: list[float] = []

    def run(self) -> None:
        connection = connect(self._cwd, "mcp")
        while True:
            try:
                with connection.socket:
                    self._serve(connection)
            except DaemonClosed:
                connection = self._reconnect()
            else:
                return

    def refuse(self, why: str) -> None:
        """Without a daemon: answer the client's first requests with an error."""
        deadline = time.monotonic() + REFUSAL_S
        answered = self._answer_with_error(why, list(self._in_flight))
        while not answered and select.select([self._stdin], [], [], deadline - time.monotonic())[0]:
            if not self._read_lines() or time.monotonic() > deadline:
                return
            for line in self._unsent:
                self._remember(line)
            self._unsent.clear()
            answered = self._answer_with_error(why, list(self._in_flight))

    def _reconnect(self) -> DaemonConnection:
        now = time.monotonic()
        self._restarts = [at for at in self._restarts if now - at < RESTART_WINDOW_S] + [now]
        if len(self._restarts) > MAX_RESTARTS:
            raise NoDaemon(
                f"the daemon ended {len(self._restarts)} times within {RESTART_WINDOW_S:g} s; "
                "see `go-ent doctor`"
            )
        self._daemon_lines = LineSplitter(sys.maxsize)
        # Whatever its version: otherwise clients of two versions would replace it in turns.
        connection = connect(self._cwd, "mcp", replace=False)
        self._settle_in_flight()
        return connection

    def _settle_in_flight(self) -> None:
        """Send again what changes nothing; the rest may have been executed, and gets an error."""
        again: list[bytes] = []
        lost: list[str] = []
        for key, line in list(self._in_flight.items()):
            if key in self._handshake.values():
                continue
            if str(parse_object(line).get("method")) in RETRYABLE_METHODS:
                again.append(self._in_flight.pop(key))
            else:
                lost.append(key)
        self._unsent.extendleft(reversed(again))
        self._answer_with_error(CALL_LOST_MESSAGE, lost)

    def _answer_with_error(self, error: str, keys: list[str]) -> bool:
        for key in keys:
            del self._in_flight[key]
            message = {
                "jsonrpc": "2.0",
                "id": json.loads(key),
                "error": {"code": -32000, "message": error},
            }
            _write_all(self._stdout, json.dumps(message).encode() + b"\n")
        return bool(keys)

    def _serve(self, connection: DaemonConnection) -> None:
        """Copy both ways until the client is done; raises `DaemonClosed` if the daemon ends first."""
        sock = connection.socket
        sock.settimeout(SEND_TIMEOUT_S)  # to send; receiving waits for the selector
        self._replay(sock)
        if connection.rest:
            self._to_client(connection.rest)
        with selectors.SelectSelector() as ready:  # epoll refuses a file or /dev/null as stdin
            ready.register(sock, selectors.EVENT_READ)
            ready.register(self._stdin, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is sock:
                        self._to_client(_receive(sock))
                    elif self._read_lines():
                        self._to_daemon(sock)
                    else:
                        self._to_daemon(sock)
                        self._finish(sock)
                        return

    def _replay(self, sock: socket.socket) -> None:
        """Send a new daemon the handshake, whose answer the client may have already, and unsent lines."""
        self._ignored_replies.clear()
        self._is_paused = False
        for line, key in self._handshake.items():
            _send(sock, line)
            if key is not None and key not in self._in_flight:
                self._ignored_replies.add(key)
        self._to_daemon(sock)

    def _read_lines(self) -> bool:
        """Read the client's lines; False if it is done."""
        chunk = os.read(self._stdin, CHUNK)
        for line in self._client_lines.feed(chunk) if chunk else [self._client_lines.finish()]:
            if isinstance(line, OversizedLine):
                self._refuse_long(line)
            elif line:
                self._unsent.append(line)
        return bool(chunk)

    def _refuse_long(self, line: OversizedLine) -> None:
        """The daemon would not accept the line either, and so it need not be kept."""
        error = json.dumps({"code": INVALID_REQUEST, "message": line.message}).encode()
        reply = b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (line.request_id, error)
        _write_all(self._stdout, reply)

    def _to_daemon(self, sock: socket.socket) -> None:
        while self._unsent and not self._is_paused:
            _send(sock, self._unsent[0])
            self._remember(self._unsent.popleft())

    def _remember(self, line: bytes) -> None:
        message = parse_object(line)
        method, request = message.get("method"), message.get("id")
        key = None if request is None else json.dumps(request)
        if method in ("resources/subscribe", "resources/unsubscribe"):
            self._forget_subscription(_uri(message))
        if isinstance(method, str) and method in REPLAYED_METHODS:
            self._handshake[line] = key
        if method and key is not None:
            self._in_flight[key] = line

    def _forget_subscription(self, uri: str | None) -> None:
        for line in list(self._handshake):
            said = parse_object(line)
            if said.get("method") == "resources/subscribe" and _uri(said) == uri:
                del self._handshake[line]

    def _to_client(self, chunk: bytes) -> None:
        lines = [line for line in self._daemon_lines.feed(chunk) if isinstance(line, bytes)]
        passed = [line for line in lines if self._is_for_client(line)]
        _write_all(self._stdout, b"".join(line + b"\n" for line in passed))

    def _is_for_client(self, line: bytes) -> bool:
        """Forget requests that are answered; suppress the answer to a replayed handshake."""
        if not self._in_flight and not self._ignored_replies:
            return True
        message = parse_object(line)
        if not message or "method" in message:
            return True
        request = json.dumps(message.get("id"))
        asked = self._in_flight.pop(request, None)
        if asked in self._handshake and "error" in message:  # refused: the client tries another one
            del self._handshake[asked]
        if request in self._ignored_replies:
            self._ignored_replies.discard(request)
            return False
        if asked and _is_daemon_ending(message.get("error")):
            self._unsent.append(asked)
            self._is_paused = True
            return False
        return True

    def _finish(self, sock: socket.socket) -> None:
        """The client is done; requests in flight may still be answered for a moment."""
        deadline = time.monotonic() + CLOSE_S
        try:
            sock.shutdown(socket.SHUT_WR)
            while (left := deadline - time.monotonic()) > 0:
                sock.settimeout(left)
                self._to_client(_receive(sock))
        except (OSError, DaemonClosed):
            pass


def _uri(message: Mapping[str, object]) -> str | None:
    match message.get("params"):
        case {"uri": str(uri)}:
            return uri
        case _:
            return None


def _is_daemon_ending(error: object) -> bool:
    """Whether a daemon refused a request because it is ending, without having done anything."""
    match error:
        case {"data": {"goent": "ending"}}:
            return True
        case _:
            return False


def _send(sock: socket.socket, line: bytes) -> None:
    """Send a line; raises `DaemonClosed` if not all of it was sent: then nobody has read it."""
    try:
        sock.sendall(line + b"\n")
    except TimeoutError:
        raise NoDaemon(
            f"the daemon is stuck: it reads nothing for {SEND_TIMEOUT_S:g} s; "
            "`go-ent daemon stop --force` ends it"
        ) from None
    except OSError:
        raise DaemonClosed from None


def _receive(sock: socket.socket) -> bytes:
    try:
        chunk = sock.recv(CHUNK)
    except ConnectionError:
        raise DaemonClosed from None
    if not chunk:
        raise DaemonClosed
    return chunk


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # the client may have made the pipe non-blocking
            select.select([], [fd], [])


def _exit_on_signal(_: int, __: FrameType | None) -> None:
    sys.exit(0)


def run_shim(cwd: Path) -> int:
    """Serve the client on standard input and output; the exit code."""
    # The end of Claude Code's session is a SIGINT: the shim goes, the workers stay.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_on_signal)
    shim = Shim(cwd, 0, 1)
    try:
        shim.run()
    except NoDaemon as error:
        sys.stderr.write(f"go-ent: {error}\n")
        with suppress(BrokenPipeError):
            shim.refuse(str(error))
        return error.code
    except BrokenPipeError:
        return 0
    return 0
