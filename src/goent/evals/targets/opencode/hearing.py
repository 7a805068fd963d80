"""What does the server tell while an attempt goes on, and does it still work on it?

The stream of the attempt's own directory goes into the log as it comes, and what matters of it to the
messages told so far and to whoever decides about permissions. When it breaks it is opened again; what was
asked meanwhile is looked up.
"""

from contextlib import aclosing, suppress
from typing import Protocol

import anyio
from anyio.abc import TaskStatus

from goent.domain.errors import ProtocolError, Stalled, WorkerError
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.events import (
    WHOLE,
    Connected,
    Heartbeat,
    PartTold,
    PermissionQuestion,
    SessionCreated,
    SessionError,
    SessionIdle,
    Told,
    listen_in,
)
from goent.drivers.opencode.second_look import call_state
from goent.drivers.opencode.shapes import Question, SessionFault
from goent.evals.targets.opencode.growing import Growing
from goent.evals.targets.opencode.logs import StreamLog
from goent.evals.targets.opencode.permits import Permits

RECONNECT = 0.2
LOOK = 5.0  # seconds without news before the server is asked how it stands
IDLE_LOOKS = 3  # looks in a row at a session that nobody works on any more
BOOT_LOOKS = 12  # the same before anybody has: a busy server takes its time to begin
DEAF_LOOKS = 12  # looks in a row that brought no answer


class Concerned(Protocol):
    """Whose attempt it is."""

    def refused(self, *, by_subagent: bool) -> None:
        """A permission that fails the attempt; a subagent's no does not end the turn by itself."""
        ...

    def failed(self, error: WorkerError) -> None: ...


class Hearing:
    """The ear of one attempt, for one session and its subagents'."""

    def __init__(
        self,
        client: Client,
        directory: str,
        session: str,
        growing: Growing,
        permits: Permits,
        concerned: Concerned,
    ) -> None:
        self.fault: SessionFault | None = None
        self._client = client
        self._directory = directory
        self._session = session
        self._growing = growing
        self._permits = permits
        self._concerned = concerned
        self._family = {session}
        self._news = self._began = False
        self._over = anyio.Event()

    async def listen(self, log: StreamLog, *, task_status: TaskStatus[None]) -> None:
        """For as long as the task lives; started when the stream is up."""
        up = False
        while True:
            with suppress(ProtocolError):
                async with aclosing(listen_in(self._client, self._directory, WHOLE)) as events:
                    async for line, told in events:
                        log.write(line.encode())
                        if told:
                            await self._hear(told)
                        if isinstance(told, Connected) and not up:
                            up = True
                            task_status.started()
            await anyio.sleep(RECONNECT)

    async def until_over(self, patience: float) -> None:
        """The reply to a prompt can be ahead of what the stream tells of its end."""
        with anyio.move_on_after(patience):
            await self._over.wait()

    async def watch(self) -> None:
        """For as long as the task lives, or until nobody works on the session any more."""
        idle = deaf = 0
        while True:
            await anyio.sleep(LOOK)
            if self._news:
                self._news, self._began, idle, deaf = False, True, 0, 0
                continue
            try:
                await self._catch_up()
                at_work = self._session in await self._client.busy(self._directory)
            except ProtocolError as error:
                deaf += 1
                if deaf >= DEAF_LOOKS:
                    self._concerned.failed(error)
                continue
            self._began = self._began or at_work
            idle, deaf = (0 if at_work else idle + 1), 0
            if idle >= (IDLE_LOOKS if self._began else BOOT_LOOKS):
                why = "OpenCode works on the session no more, and has not answered"
                self._concerned.failed(Stalled(why))

    async def _hear(self, told: Told) -> None:
        self._news = self._news or not isinstance(told, Connected | Heartbeat)
        self._growing.hear(told)
        match told:
            case Connected():
                with suppress(ProtocolError):
                    await self._catch_up()
            case SessionCreated(info=info) if info.parent in self._family:
                self._family.add(info.id)
            case SessionError(error=error, session=self._session):
                if self.fault is None or not self.fault.data.message:
                    self.fault = error  # the next one may be the same with its stack
            case SessionIdle(session=self._session):
                self._over.set()
            case PermissionQuestion():
                await self._answer(told)
            case PartTold(part=part) if part.call and part.call == self._permits.stopped:
                if call_state(part).status == "error":  # as it is to be read in the trace
                    self._concerned.refused(by_subagent=True)
            case _:
                pass

    async def _catch_up(self) -> None:
        for question in await self._client.questions(self._directory):
            await self._answer(question)

    async def _answer(self, question: Question) -> None:
        if not await self._is_ours(question.session):
            return
        with suppress(ProtocolError):  # a question that its turn has taken back
            await self._permits.answer(question, self._client, self._directory)
        if self._permits.refused:
            self._concerned.refused(by_subagent=question.session != self._session)

    async def _is_ours(self, session: str) -> bool:
        if session not in self._family:
            with suppress(ProtocolError):
                if (await self._client.session(session)).parent in self._family:
                    self._family.add(session)
        return session in self._family
