"""What can the agent ask of the client at the other end, and how does it tell it things?"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from anyio.abc import TaskGroup

from goent.acp.messages import ClientCapabilities
from goent.agent.events import AnyAgentEvent
from goent.agent.ports import ClientFiles, ClientTerminals, Question, Rejection
from goent.domain.types import Answer
from goent.frontends.acp.remote import RemoteFiles, RemoteTerminals
from goent.frontends.acp.stream import Encoder, Notice, Stream
from goent.rpc import Peer


class Asking(Protocol):
    """How one version of the protocol puts a question, and words events."""

    def encoder(self, session_id: str) -> Encoder: ...

    async def ask(self, session_id: str, question: Question) -> Answer | Rejection | None: ...


class ClientSide:
    """The client, as the agent's port wants it: one connection, all its sessions."""

    def __init__(
        self, peer: Peer, asking: Asking, offers: ClientCapabilities, tasks: TaskGroup
    ) -> None:
        self._peer = peer
        self._asking = asking
        self._offers = offers
        self._tasks = tasks
        self._streams: dict[str, Stream] = {}
        self._expected = 0
        self._nameless: set[str] = set()

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

    async def tell(self, session: str, event: AnyAgentEvent) -> None:
        stream = self._streams.get(session)
        if stream is None:
            if not self._expected:  # it was closed: the client has forgotten it
                return
            stream = self.stream(session)
            self._nameless.add(session)
        await stream.tell(event)

    async def ask(self, session: str, question: Question) -> Answer | Rejection | None:
        stream = self._streams.get(session)
        if stream is None:
            return None
        await stream.flushed()
        return await self._asking.ask(session, question)

    def post(self, notice: Notice) -> None:
        self._peer.post(*notice)

    def stream(self, session: str) -> Stream:
        """The session's, held if it is new."""
        self._nameless.discard(session)
        if session not in self._streams:
            encoder = self._asking.encoder(session)
            self._streams[session] = Stream(self._peer, encoder, self._tasks)
        return self._streams[session]

    def forget(self, session: str) -> None:
        self._streams.pop(session, None)

    @contextmanager
    def expecting(self) -> Generator[None]:
        """A session comes about, and may have something to tell before we know its name."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            if not self._expected:
                for session in self._nameless:  # one that came to nothing
                    self.forget(session)
                self._nameless.clear()

    def _files(self, session: str) -> ClientFiles:
        return RemoteFiles(self._peer, session)

    def _terminals(self, session: str) -> ClientTerminals:
        return RemoteTerminals(self._peer, session)
