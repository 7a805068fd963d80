"""The client of one ACP connection: its files, terminals and answers, and the events it is sent.

No event is sent before the reply that names its session, and all are sent before the reply that
ends a turn. A slow reader slows the session down; a client that stops reading for a while gets
the pieces of a message merged, so that a model need not wait for a window to be redrawn.
"""

import logging
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from errno import EIO
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from goent.acp.agent_messages import (
    FS_READ_TEXT_FILE,
    FS_WRITE_TEXT_FILE,
    TERMINAL_CREATE,
    TERMINAL_KILL,
    TERMINAL_OUTPUT,
    TERMINAL_RELEASE,
    TERMINAL_WAIT_FOR_EXIT,
    CreatedTerminal,
    CreateTerminalParams,
    ExitStatus,
    ReadTextFileParams,
    ReadTextFileResult,
    TerminalOutput,
    TerminalParams,
    WriteTextFileParams,
)
from goent.acp.client_messages import ClientCapabilities, NameValue
from goent.agent.agent_events import AnyAgentEvent, Said, ToolCalled
from goent.agent.agent_ports import ClientFiles, ClientTerminals, Rejection, ToolQuestion
from goent.agent.agent_session import AgentSession
from goent.domain.types import PermissionAnswer
from goent.rpc.json_rpc import BadReply, ConnectionLost, RpcError
from goent.rpc.rpc_peer import Peer

RESOURCE_NOT_FOUND = -32002

SLOW_CLIENT_S = 0.05  # without reading, after which a client counts as slow
MAX_KEPT_CHARS = 256 * 1024  # of text kept for a slow client; then the session waits
MAX_EVENTS = 256  # the same for events that cannot be merged

_log = logging.getLogger(__name__)

AcpNotification = tuple[str, object]  # a method and its parameters


class EventEncoder(Protocol):
    """Encodes the events of one session in one version of the protocol."""

    def begin(self, session: AgentSession) -> None:
        """Called when a reply is about to show the client the session as it is now."""
        ...

    def encode_text(self, event: Said) -> AcpNotification | None:
        """A fast path of `encode` for the most frequent event."""
        ...

    def encode(self, event: AnyAgentEvent, session: AgentSession) -> Iterable[AcpNotification]: ...


class _MergedText(Struct):
    """Pieces of one message, sent as one."""

    first: Said
    parts: list[str]

    def takes(self, event: Said) -> bool:
        return self.first.message == event.message and self.first.role == event.role

    def whole(self) -> Said:
        return Said(message=self.first.message, role=self.first.role, text="".join(self.parts))


class EventStream:
    """The events of one session to its client, held back until the client knows the session."""

    def __init__(self, peer: Peer, encoder: EventEncoder, tasks: TaskGroup) -> None:
        self._peer = peer
        self._encoder = encoder
        self._tasks = tasks
        self._session: AgentSession | None = None
        self._kept: deque[AnyAgentEvent | _MergedText] = deque()
        self._size = 0
        self._draining = False
        self._progressed = anyio.Event()

    async def send(self, event: AnyAgentEvent) -> None:
        if self._peer.is_crowded and not self._kept:
            with anyio.move_on_after(SLOW_CLIENT_S):
                await self._peer.wait_for_room()
        if self._session is None or self._kept or self._peer.is_crowded:
            await self._keep(event)
        else:
            self._post(event, self._session)

    async def replay(self, event: AnyAgentEvent, session: AgentSession) -> None:
        """Sends a past event, ahead of everything that is held back."""
        self._post(event, session)
        if self._peer.is_crowded:
            await self._peer.wait_for_room()

    def release(self, session: AgentSession) -> None:
        """Allows events from now on: the reply that names the session is sent next."""
        self._session = session
        self._encoder.begin(session)
        if self._kept:
            self._start_draining(session)

    async def flushed(self) -> None:
        """Waits until all events are on their way, unless they are still held back."""
        while self._kept and self._session is not None:
            await self._progressed.wait()

    async def _keep(self, event: AnyAgentEvent) -> None:
        self._merge(event, self._kept[-1] if self._kept else None)
        if self._session is not None:
            self._start_draining(self._session)
            while self._size > MAX_KEPT_CHARS or len(self._kept) > MAX_EVENTS:
                await self._progressed.wait()

    def _merge(self, event: AnyAgentEvent, last: AnyAgentEvent | _MergedText | None) -> None:
        """Merges pieces of a message, and keeps only the latest state of a tool call."""
        match event, last:
            case Said(text=text), _MergedText() if last.takes(event):
                self._size += len(text)
                last.parts.append(text)
            case Said(text=text), _:
                self._size += len(text)
                self._kept.append(_MergedText(first=event, parts=[text]))
            case ToolCalled(), ToolCalled() if last.id == event.id:
                self._kept[-1] = event
            case _:
                self._kept.append(event)

    def _start_draining(self, session: AgentSession) -> None:
        if not self._draining:
            self._draining = True
            self._tasks.start_soon(self._drain, session)

    async def _drain(self, session: AgentSession) -> None:
        try:
            while self._kept:
                await self._peer.wait_for_room()
                event = self._kept.popleft()
                if isinstance(event, _MergedText):
                    event = event.whole()
                    self._size -= len(event.text)
                try:
                    self._post(event, session)
                except Exception:  # noqa: BLE001 (its sender has moved on; the next event may pass)
                    _log.exception("cannot send %s of %r", type(event).__name__, session.id)
                self._signal_progress()
        finally:
            self._draining = False
            self._signal_progress()

    def _post(self, event: AnyAgentEvent, session: AgentSession) -> None:
        if type(event) is Said:
            notice = self._encoder.encode_text(event)
            if notice is not None:
                self._peer.notify_now(*notice)
            return
        for method, params in self._encoder.encode(event, session):
            self._peer.notify_now(method, params)

    def _signal_progress(self) -> None:
        self._progressed.set()
        self._progressed = anyio.Event()


CLIENT_REPLY_S = 60.0  # for an editor to hand over a file, or to start a command

T = TypeVar("T")


class _SessionRequests:
    """Requests to the client about one session. They raise `OSError`, as local files would."""

    def __init__(self, peer: Peer, session_id: str) -> None:
        self._peer = peer
        self._session_id = session_id

    async def _request(
        self,
        method: str,
        params: object,
        result: type[T],
        what: str,
        patience: float | None = CLIENT_REPLY_S,
    ) -> T:
        try:
            return await self._peer.request(method, params, result=result, timeout=patience)
        except RpcError as error:
            if error.code == RESOURCE_NOT_FOUND:
                raise FileNotFoundError(f"the client has no {what!r}: {error.message}") from error
            raise OSError(EIO, f"the client refused {method!r}: {error.message}", what) from error
        except BadReply as error:
            raise OSError(EIO, f"the client sent an unusable reply: {error}", what) from error
        except ConnectionLost as error:
            raise BrokenPipeError(f"the client is gone: {error}") from error


class RemoteFiles(_SessionRequests):
    """Files as the client's editor has them."""

    async def read(self, path: Path) -> str:
        params = ReadTextFileParams(session_id=self._session_id, path=str(path))
        reply = await self._request(FS_READ_TEXT_FILE, params, ReadTextFileResult, str(path))
        return reply.content

    async def write(self, path: Path, text: str) -> None:
        params = WriteTextFileParams(session_id=self._session_id, path=str(path), content=text)
        await self._request(FS_WRITE_TEXT_FILE, params, object, str(path))


class RemoteTerminals(_SessionRequests):
    """Starts commands in terminals of the client."""

    async def create(
        self,
        command: str,
        arguments: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        limit: int,
    ) -> "RemoteTerminal":
        params = CreateTerminalParams(
            session_id=self._session_id,
            command=command,
            args=arguments,
            env=tuple(NameValue(name=name, value=value) for name, value in env.items()),
            cwd=str(cwd),
            output_byte_limit=limit,
        )
        created = await self._request(TERMINAL_CREATE, params, CreatedTerminal, command)
        return RemoteTerminal(self._peer, self._session_id, created.terminal_id)


class RemoteTerminal(_SessionRequests):
    """A command that the client runs in a terminal."""

    def __init__(self, peer: Peer, session_id: str, terminal_id: str) -> None:
        super().__init__(peer, session_id)
        self._params = TerminalParams(session_id=session_id, terminal_id=terminal_id)

    @property
    def id(self) -> str:
        return self._params.terminal_id

    async def output(self) -> tuple[str, int | None]:
        shown = await self._request(TERMINAL_OUTPUT, self._params, TerminalOutput, self.id)
        return shown.output, None if shown.exit_status is None else _exit_code(shown.exit_status)

    async def wait(self) -> int | None:
        ended = await self._request(
            TERMINAL_WAIT_FOR_EXIT, self._params, ExitStatus, self.id, patience=None
        )
        return _exit_code(ended)

    async def kill(self) -> None:
        await self._request(TERMINAL_KILL, self._params, object, self.id)

    async def release(self) -> None:
        await self._request(TERMINAL_RELEASE, self._params, object, self.id)


def _exit_code(status: ExitStatus) -> int:
    """As a shell reports it: 128 plus the signal's number for a killed command."""
    if status.exit_code is not None:
        return status.exit_code
    try:
        return 128 + signal.Signals[(status.signal or "").upper()]
    except KeyError:
        return 128


class ProtocolAdapter(Protocol):
    """Asks questions and encodes events in one version of the protocol."""

    def encoder(self, session_id: str) -> EventEncoder: ...

    async def ask(
        self, session_id: str, question: ToolQuestion
    ) -> PermissionAnswer | Rejection | None: ...


class ClientConnection:
    """The port `AgentClient` over one connection, for all its sessions."""

    def __init__(
        self, peer: Peer, asking: ProtocolAdapter, offers: ClientCapabilities, tasks: TaskGroup
    ) -> None:
        self._peer = peer
        self._adapter = asking
        self._offers = offers
        self._tasks = tasks
        self._streams: dict[str, EventStream] = {}
        self._expected = 0
        self._unconfirmed: set[str] = set()

    @property
    def files_read(self) -> Callable[[str], ClientFiles] | None:
        offered = self._offers.fs is not None and self._offers.fs.read_text_file
        return self._files if offered else None

    @property
    def files_write(self) -> Callable[[str], ClientFiles] | None:
        offered = self._offers.fs is not None and self._offers.fs.write_text_file
        return self._files if offered else None

    @property
    def terminals(self) -> Callable[[str], ClientTerminals] | None:
        return self._terminals if self._offers.terminal else None

    async def send(self, session: str, event: AnyAgentEvent) -> None:
        stream = self._streams.get(session)
        if stream is None:
            if not self._expected:  # closed: the client has forgotten the session
                return
            stream = self.stream(session)
            self._unconfirmed.add(session)
        await stream.send(event)

    async def ask(
        self, session: str, question: ToolQuestion
    ) -> PermissionAnswer | Rejection | None:
        stream = self._streams.get(session)
        if stream is None:
            return None
        await stream.flushed()
        return await self._adapter.ask(session, question)

    def post(self, notice: AcpNotification) -> None:
        self._peer.notify_now(*notice)

    def stream(self, session: str) -> EventStream:
        """The session's stream; a new one holds its events back."""
        self._unconfirmed.discard(session)
        if session not in self._streams:
            encoder = self._adapter.encoder(session)
            self._streams[session] = EventStream(self._peer, encoder, self._tasks)
        return self._streams[session]

    def forget(self, session: str) -> None:
        self._streams.pop(session, None)

    @contextmanager
    def expecting_session(self) -> Generator[None]:
        """While a session is created it may send events before its id is known here."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            if not self._expected:
                for session in self._unconfirmed:  # its creation failed
                    self.forget(session)
                self._unconfirmed.clear()

    def _files(self, session: str) -> ClientFiles:
        return RemoteFiles(self._peer, session)

    def _terminals(self, session: str) -> ClientTerminals:
        return RemoteTerminals(self._peer, session)
