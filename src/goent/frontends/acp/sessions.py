"""Which sessions has this connection open, and which of them takes a turn?"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from goent.agent.agent import SessionSummary
from goent.agent.content import Given
from goent.agent.ports import ServerSpec
from goent.agent.refusing import SessionBusy, UnknownSession
from goent.agent.session import AgentSession, TurnEnd
from goent.domain.types import Value
from goent.frontends.acp.client import ClientSide
from goent.frontends.acp.host import AgentHost
from goent.frontends.acp.stream import Notice, Stream
from goent.frontends.acp.turn import GRACE, Turn

_log = logging.getLogger(__name__)


class Opened(Struct, kw_only=True):
    """A session that the client knows."""

    session: AgentSession
    stream: Stream
    turn: Turn | None = None
    closing: bool = False


class Wanted(Value, frozen=True, kw_only=True):
    """Where a session works, and which servers it can use."""

    cwd: Path
    extra: Sequence[Path] = ()
    servers: Sequence[ServerSpec] = ()


class Sessions:
    """The same for every version of the protocol."""

    def __init__(self, host: AgentHost, client: ClientSide, tasks: TaskGroup) -> None:
        self._host = host
        self._client = client
        self._tasks = tasks
        self._open: dict[str, Opened] = {}
        self._opening: set[str] = set()

    async def ready(self) -> None:
        await (await self._host.get()).ready()

    async def new(self, place: Wanted, *, model: str | None = None) -> Opened:
        """It is silent until `introduce`."""
        agent = await self._host.get()
        with self._client.expecting():
            session = await agent.new(
                self._client, place.cwd, extra=place.extra, servers=place.servers, model=model
            )
            stream = self._client.stream(session.id)
        opened = self._open[session.id] = Opened(session=session, stream=stream)
        return opened

    async def open(self, session_id: str, place: Wanted, *, replay: bool) -> Opened:
        """One that was kept. What it says comes after `introduce`, its history before."""
        known = self._open.get(session_id)
        if session_id in self._opening or (known is not None and (known.turn or known.closing)):
            raise SessionBusy(
                f"session {session_id!r} is at work, or being opened or closed: wait for it"
            )
        self._opening.add(session_id)
        self._client.forget(session_id)
        try:
            return await self._reopen(session_id, place, replay=replay)
        except BaseException:
            if self._open.pop(session_id, None) is not None:
                await self._end(session_id)
            self._client.forget(session_id)
            raise
        finally:
            self._opening.discard(session_id)

    def introduce(self, opened: Opened, *first: Notice) -> None:
        """To be called in the step that replies with the session: from then on it may speak."""
        opened.stream.release(opened.session)
        self._tasks.start_soon(self._greet, opened, first)

    def get(self, session_id: str) -> Opened:
        opened = self._open.get(session_id)
        if opened is None or opened.closing or session_id in self._opening:
            raise UnknownSession(
                f"session not found: {session_id!r} is not open in this connection; "
                "load or resume it, or make a new one"
            )
        return opened

    async def prompt(self, opened: Opened, given: Sequence[Given]) -> TurnEnd:
        """A turn whose request is dropped ends as cancelled, and has ended when this returns."""
        if opened.turn is not None:
            raise SessionBusy(
                f"session {opened.session.id!r} takes a turn already: wait for its end, or cancel it"
            )
        turn = opened.turn = Turn(opened.session, opened.stream, given)
        self._tasks.start_soon(self._take, opened, turn)
        try:
            await turn.over.wait()
        except anyio.get_cancelled_exc_class():
            # Not passed on: the request gets the end of its turn as its reply.
            turn.cancel()
            with anyio.move_on_after(GRACE, shield=True):
                await turn.over.wait()
        return turn.end()

    async def close(self, session_id: str) -> None:
        opened = self.get(session_id)
        opened.closing = True
        try:
            if opened.turn is not None:
                opened.turn.cancel()
                with anyio.move_on_after(2 * GRACE, shield=True):
                    await opened.turn.over.wait()
            await self._end(session_id)
        finally:
            del self._open[session_id]
            self._client.forget(session_id)

    async def delete(self, session_id: str) -> None:
        if session_id in self._open:
            await self.close(session_id)
        await (await self._host.get()).delete(session_id)

    async def listed(
        self, cwd: str | None, cursor: str | None
    ) -> tuple[Sequence[SessionSummary], str | None]:
        return await (await self._host.get()).listed(cwd=cwd, cursor=cursor)

    async def _reopen(self, session_id: str, place: Wanted, *, replay: bool) -> Opened:
        agent = await self._host.get()
        stream = self._client.stream(session_id)
        session = await agent.open(
            self._client, session_id, place.cwd, extra=place.extra, servers=place.servers
        )
        opened = self._open[session_id] = Opened(session=session, stream=stream)
        if replay:
            for event in session.history():
                await stream.replay(event, session)
        return opened

    async def _end(self, session_id: str) -> None:
        """Also for a client that no longer waits for it; one that has ended already is no error."""
        with anyio.move_on_after(2 * GRACE, shield=True), suppress(UnknownSession):
            await (await self._host.get()).close(session_id)

    async def _take(self, opened: Opened, turn: Turn) -> None:
        try:
            await turn.run()
        finally:
            opened.turn = None

    async def _greet(self, opened: Opened, first: Sequence[Notice]) -> None:
        try:
            await opened.stream.flushed()
            for notice in first:
                self._client.post(notice)
            await opened.session.greet()
        except Exception:  # noqa: BLE001 (the session is good, only its first words are lost)
            _log.exception("session %r could not greet", opened.session.id)
