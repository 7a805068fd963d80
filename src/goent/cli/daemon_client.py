"""The blocking client that commands use to call the daemon.

Requests and a watch share one connection: events that arrive before an answer are kept for whoever
reads events next.
"""

import re
import select
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from goent import __version__
from goent.cli.terminal import print_notice
from goent.daemon.daemon_connection import DaemonConnection, connect
from goent.domain.events import EventEnvelope
from goent.domain.input_mistakes import OPTIONS, explain_mistake
from goent.domain.replies import OutputReply, Status, WorkerList
from goent.domain.requests import (
    MAX_WAIT_S,
    ListRequest,
    OutputRequest,
    WatchRequest,
    WorkerRequest,
)
from goent.domain.types import Value

ANSWER_TIMEOUT_S = 300.0  # longer than the longest wait that the daemon itself allows
MAX_DAEMONS = 3  # tried in a row, while each is about to end
MAX_WORKERS = 200
LAST = "last"
FULL_ID_LENGTH = 7  # characters of `w-k3f9x`

R = TypeVar("R")

# The daemon's messages name MCP tools and their arguments.
TOOL_COMMANDS = {
    "worker_spawn": "run",
    "worker_list": "ps",
    "provider_list": "providers",
    "provider_recommend": "recommend",
    "cost_report": "costs",
    "swarm_spawn": "swarm run",
    **{
        f"worker_{name}": name
        for name in ("prompt", "wait", "status", "output", "result", "answer", "cancel")
    },
    **{
        f"swarm_{name}": f"swarm {name}"
        for name in ("status", "wait", "result", "list", "retry", "cancel", "merge")
    },
}
TOOL_PHRASES = {
    "pass queue: true": "pass --queue",
    "spawn another one": "start another one with `go-ent run`",
    "spawn another worker": "start another worker with `go-ent run`",
}
_TOOL_NAME = re.compile(rf"`?\b({'|'.join(TOOL_COMMANDS)})\b`?(?: \(`go-ent [\w ]+`\))?")


def terminal_words(message: str) -> str:
    """The message with commands for tools, and options for arguments."""
    for phrase, words in TOOL_PHRASES.items():
        message = message.replace(phrase, words)
    return _TOOL_NAME.sub(lambda found: f"`go-ent {TOOL_COMMANDS[found[1]]}`", message)


class CommandError(Exception):
    """A command failed with this message; `code` is its exit code."""

    def __init__(self, message: str, code: int = 3) -> None:
        super().__init__(message)
        self.code = code


class DaemonDisconnected(CommandError):
    """The daemon closed the connection."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.reason = why or message


class _DaemonErrorData(Struct, frozen=True):
    exit_code: int = 3
    kind: str = ""


class _DaemonError(Struct, frozen=True):
    message: str = "the daemon reported an error without a message"
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
    """A connection to the project's daemon; `connect` opens another when the daemon has ended."""

    def __init__(self, connect: Callable[[], DaemonConnection]) -> None:
        self._connect = connect
        self._calls = 0
        self._watch = 0
        self._answers: dict[int, _DaemonMessage] = {}
        self._events: deque[EventEnvelope] = deque()
        self._decoder = msgspec.json.Decoder(_DaemonMessage)
        self._envelopes = msgspec.json.Decoder(EventEnvelope)
        self._use_connection(connect())

    def _use_connection(self, connection: DaemonConnection) -> None:
        self._socket = connection.socket
        self._unread = connection.rest
        self._version = str(connection.hello.get("version"))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def reconnect(self) -> None:
        """Continue with the current daemon; answers that the last one did not send are forgotten."""
        self.close()
        self._answers.clear()
        self._use_connection(self._connect())

    def call(self, method: str, params: Value | None, reply: type[R]) -> R:
        """Send a request and wait for the answer. A daemon that is ending refuses: try the next one."""
        if params is not None:
            _check_options(params)
        answer = self._answer(method, params)
        for _ in range(MAX_DAEMONS):
            if answer.error is None or answer.error.kind != "Ending":
                break
            self.reconnect()
            answer = self._answer(method, params)
        if answer.error:
            message = terminal_words(answer.error.message.removeprefix(f"{method}: "))
            raise CommandError(self._error_text(answer.error, message), answer.error.exit_code)
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

    def _error_text(self, error: _DaemonError, message: str) -> str:
        if error.kind or self._version == __version__:
            return message
        return (
            f"{message}: the running daemon is go-ent {self._version}, this is {__version__}; "
            "`go-ent daemon stop` ends it when its workers are done"
        )

    def send(self, method: str, params: Value | None) -> int:
        """Send a request without waiting for its answer."""
        self._calls += 1
        line = msgspec.json.encode(_DaemonCall(self._calls, method, params or {}))
        try:
            self._socket.sendall(line + b"\n")
        except OSError as error:
            raise _disconnected(error) from error
        return self._calls

    def watch(self, *workers: str, after: int) -> None:
        """Subscribe to the workers' events after the cursor."""
        self._watch = self.send("watch", WatchRequest(worker_ids=workers, after=after))

    def events(self, seconds: float) -> Iterator[EventEnvelope]:
        """The events that have arrived, or that arrive within that time."""
        if not self._events:
            self._receive(seconds)
        if ended := self._answers.get(self._watch):
            why = ended.error.message if ended.error else "it ended"
            raise CommandError(f"the daemon no longer sends events: {why}", 3)
        while self._events:
            yield self._events.popleft()

    def _receive(self, seconds: float) -> bool:
        """Handle the lines that have arrived; False if none does in time."""
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
    ended = f"the daemon ended unexpectedly ({why})"
    remedy = "`go-ent ps` starts a new one and shows the state of the workers"
    return DaemonDisconnected(f"{ended}; {remedy}", ended)


def recovery_hint(worker: str) -> str:
    """What to do when a worker's daemon died: its work is journaled, and its session can resume."""
    return (
        f"the next command starts a new one: `go-ent output {worker}` shows its work, "
        f"`go-ent prompt {worker} …` resumes it"
    )


@contextmanager
def open_daemon_client(cwd: Path | None = None, *, start: bool = True) -> Generator[DaemonClient]:
    """A client of the daemon that serves a directory's project (default: the current directory's)."""
    where = cwd or _current_folder()
    conversation = DaemonClient(lambda: connect(where, "control", start=start))
    try:
        yield conversation
    finally:
        conversation.close()


def ask(method: str, request: Value | None, reply: type[R]) -> R:
    """One answer of the daemon that serves the current directory."""
    with open_daemon_client() as through:
        return through.call(method, request, reply)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise CommandError(
            "the current directory no longer exists: change to one that does", 2
        ) from None


def find_worker(given: str, through: DaemonClient) -> str:
    """The id behind a full id, an unambiguous prefix of one, or the word `last`."""
    if given != LAST and given.startswith("w-") and len(given) >= FULL_ID_LENGTH:
        return given
    limit = 1 if given == LAST else MAX_WORKERS
    workers = through.call("worker_list", ListRequest(limit=limit), WorkerList).workers
    if given == LAST and not workers:
        raise CommandError("this project has no workers yet: `go-ent run TASK` starts one", 2)
    return match_id(given, [worker.worker_id for worker in workers], "w-")


def match_id(given: str, newest_first: Sequence[str], prefix: str) -> str:
    """The id that is meant, or what was given if none matches: the daemon then says so."""
    if given == LAST:
        return newest_first[0]
    starts = (given, prefix + given)
    found = [one for one in newest_first if given and one.startswith(starts)]
    if len(found) > 1:
        raise CommandError(f"{given!r} may be any of {', '.join(found)}: type more of it", 2)
    return found[0] if found else given


def wait_until(
    ask_for: Callable[[float], R], done: Callable[[R], bool], seconds: float | None
) -> R:
    """Wait in calls as long as the daemon allows, until it is done or the time is up."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = MAX_WAIT_S if deadline is None else deadline - time.monotonic()
        found = ask_for(min(MAX_WAIT_S, max(0.0, left)))
        if done(found):
            return found
        if deadline is not None and time.monotonic() >= deadline:
            print_notice(f"not done after {seconds:g} s")
            return found


def status_of(worker: str, through: DaemonClient) -> Status:
    return through.call("worker_status", WorkerRequest(worker_id=worker), Status)


def cursor_before(worker: str, through: DaemonClient) -> int:
    """Where the worker begins in the journal, so that a watch skips what came before."""
    request = OutputRequest(worker_id=worker, limit=1)
    return max(0, through.call("worker_output", request, OutputReply).cursor - 1)
