"""Talks to the daemon from a command: one line out, lines in, blocking.

Requests and a watch share the connection: whatever event arrives while an answer is awaited is
kept for whoever reads events next.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from goent import __version__
from goent.daemon.daemon_connection import DaemonConnection, connect
from goent.domain.events import EventEnvelope
from goent.domain.input_mistakes import OPTIONS, explain_mistake
from goent.domain.replies import OutputReply, Status, WorkerList
from goent.domain.requests import ListRequest, OutputRequest, WatchRequest, WorkerRequest
from goent.domain.types import Value

ANSWER_TIMEOUT_S = 300.0  # longer than the longest wait that the daemon itself allows
MAX_DAEMONS = 3  # that may end one after the other while we ask
MAX_WORKERS = 200
LAST = "last"
FULL_ID_LENGTH = 7  # characters of `w-k3f9x`

R = TypeVar("R")


class CommandError(Exception):
    """What the person is told instead of an answer; `code` is the exit code that fits."""

    def __init__(self, message: str, code: int = 3) -> None:
        super().__init__(message)
        self.code = code


class DaemonDisconnected(CommandError):
    """The daemon closed the connection, or its end of it is gone."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.reason = why or message


class _DaemonErrorData(Struct, frozen=True):
    exit_code: int = 3
    kind: str = ""


class _DaemonError(Struct, frozen=True):
    message: str = "an error without words"
    data: _DaemonErrorData | None = None

    @property
    def kind(self) -> str:
        return self.data.kind if self.data else ""

    @property
    def exit_code(self) -> int:
        return self.data.exit_code if self.data else 3


class _DaemonMessage(Struct, frozen=True):
    """A response (it has an id) or a notification (it has a method)."""

    id: int | None = None
    method: str | None = None
    params: Raw = Raw(b"null")
    result: Raw = Raw(b"null")
    error: _DaemonError | None = None


class _DaemonCall(Struct, frozen=True):
    id: int
    method: str
    params: object
    jsonrpc: str = "2.0"


def _check_options(request: Value) -> None:
    """Refuse what the daemon would, but in the words of the command line."""
    given = msgspec.to_builtins(request)
    try:
        msgspec.convert(given, type(request))
    except msgspec.ValidationError as error:
        mistake = explain_mistake(error, given, type(request), OPTIONS)
        raise CommandError(str(mistake), 2) from None


class DaemonClient:
    """One conversation with the project's daemon; `meet` makes a connection to one."""

    def __init__(self, meet: Callable[[], DaemonConnection]) -> None:
        self._connect = meet
        self._calls = 0
        self._watch = 0
        self._answers: dict[int, _DaemonMessage] = {}
        self._events: deque[EventEnvelope] = deque()
        self._decoder = msgspec.json.Decoder(_DaemonMessage)
        self._envelopes = msgspec.json.Decoder(EventEnvelope)
        self._use_connection(meet())

    def _use_connection(self, connection: DaemonConnection) -> None:
        self._socket = connection.socket
        self._unread = connection.rest
        self._version = str(connection.hello.get("version"))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def reconnect(self) -> None:
        """Go on with the daemon that there is now; what the last one still owed is forgotten."""
        self.close()
        self._answers.clear()
        self._use_connection(self._connect())

    def call(self, method: str, params: Value | None, reply: type[R]) -> R:
        """Ask and wait for the answer. A daemon that ends does nothing: the next one is asked."""
        if params is not None:
            _check_options(params)
        answer = self._answer(method, params)
        for _ in range(MAX_DAEMONS):
            if answer.error is None or answer.error.kind != "Ending":
                break
            self.reconnect()
            answer = self._answer(method, params)
        if answer.error:
            raise CommandError(self._error_text(answer.error), answer.error.exit_code)
        return msgspec.json.decode(answer.result, type=reply)

    def _answer(self, method: str, params: Value | None) -> _DaemonMessage:
        number = self.send(method, params)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while (answer := self._answers.pop(number, None)) is None:
            if not self._receive(deadline - time.monotonic()):
                raise CommandError(
                    f"the daemon did not answer {method!r} within {ANSWER_TIMEOUT_S:g} s; "
                    "`go-ent daemon stop --force` ends it"
                )
        return answer

    def _error_text(self, error: _DaemonError) -> str:
        if error.kind or self._version == __version__:
            return error.message
        return (
            f"{error.message}: the running daemon is go-ent {self._version}, this is {__version__}; "
            "`go-ent daemon stop` ends it when its workers are done"
        )

    def send(self, method: str, params: Value | None) -> int:
        """Ask without waiting; the answer is dropped unless somebody waits for it."""
        self._calls += 1
        line = msgspec.json.encode(_DaemonCall(self._calls, method, params or {}))
        try:
            self._socket.sendall(line + b"\n")
        except OSError as error:
            raise _disconnected(error) from error
        return self._calls

    def watch(self, *workers: str, after: int) -> None:
        """From now on the workers' events arrive, beginning behind the cursor."""
        self._watch = self.send("watch", WatchRequest(worker_ids=workers, after=after))

    def events(self, seconds: float) -> Iterator[EventEnvelope]:
        """The events that are there, or that come within that time."""
        if not self._events:
            self._receive(seconds)
        if ended := self._answers.get(self._watch):
            why = ended.error.message if ended.error else "it ended"
            raise CommandError(f"the daemon no longer tells what happens: {why}", 3)
        while self._events:
            yield self._events.popleft()

    def _receive(self, seconds: float) -> bool:
        """Take in what has come; False if nothing does in time."""
        if b"\n" not in self._unread:
            if not select.select([self._socket], [], [], max(0.0, seconds))[0]:
                return False
            self._unread += self._receive_chunk()
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._handle_line(line)
        return True

    def _receive_chunk(self) -> bytes:
        try:
            chunk = self._socket.recv(1 << 16)
        except OSError as error:
            raise _disconnected(error) from error
        if not chunk:
            raise _disconnected("it closed the connection")
        return chunk

    def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        message = self._decoder.decode(line)
        if message.id is not None:
            self._answers[message.id] = message
        elif message.method == "event":
            self._events.append(self._envelopes.decode(message.params))


def _disconnected(why: OSError | str) -> DaemonDisconnected:
    ended = f"the daemon ended in the middle of it ({why})"
    remedy = "`go-ent ps` starts a new one and shows what became of the workers"
    return DaemonDisconnected(f"{ended}; {remedy}", ended)


def recovery_hint(worker: str) -> str:
    """When a worker's daemon died: what it did is journaled, and its session goes on."""
    return (
        f"a new one starts with the next command: `go-ent output {worker}` shows all it did, "
        f"`go-ent prompt {worker} …` goes on where it was"
    )


@contextmanager
def open_daemon_client(cwd: Path | None = None, *, start: bool = True) -> Generator[DaemonClient]:
    """The daemon of the project around a directory, the current one if none is given."""
    where = cwd or _current_folder()
    conversation = DaemonClient(lambda: connect(where, "control", start=start))
    try:
        yield conversation
    finally:
        conversation.close()


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise CommandError(
            "the current directory no longer exists: change to one that does", 2
        ) from None


def find_worker(asked: str, through: DaemonClient) -> str:
    """The id behind a full id, an unambiguous beginning of one, or the word `last`."""
    if asked != LAST and asked.startswith("w-") and len(asked) >= FULL_ID_LENGTH:
        return asked
    limit = 1 if asked == LAST else MAX_WORKERS
    workers = through.call("worker_list", ListRequest(limit=limit), WorkerList).workers
    if asked == LAST:
        if not workers:
            raise CommandError("this project has no workers yet: `go-ent run TASK` makes one", 2)
        return workers[0].worker_id
    beginning = asked if asked.startswith("w-") else f"w-{asked}"
    found = [w.worker_id for w in workers if asked and w.worker_id.startswith(beginning)]
    if len(found) > 1:
        raise CommandError(f"{asked!r} may be any of {', '.join(found)}: write more of it", 2)
    return found[0] if found else asked


def status_of(worker: str, through: DaemonClient) -> Status:
    return through.call("worker_status", WorkerRequest(worker_id=worker), Status)


def cursor_before(worker: str, through: DaemonClient) -> int:
    """Where the worker begins in the journal: a watch need not read what came before."""
    request = OutputRequest(worker_id=worker, limit=1)
    return max(0, through.call("worker_output", request, OutputReply).cursor - 1)
