"""How does one worker talk with an OpenCode server over HTTP: a session, its turns, its questions?

A prompt is handed in and answered at once; what the model says and does comes by the event stream.
The turn is over when the server says that the session is idle and its last message bears that out:
an abort says it twice, and the second time may fall into the next turn. What the stream has lost is
read from the messages.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import anyio

from goent.acp.updates import AnyUpdate
from goent.domain.errors import ModelRefused, ProtocolError, WorkerCrashed, WorkerError
from goent.domain.events import PermissionWithdrawn
from goent.domain.ports import Signs, StopReason, WorkerSpec
from goent.domain.types import Prompt
from goent.drivers.opencode.client import Client, NotFound, Words
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.events import (
    Connected,
    MessageTold,
    PartGrew,
    PartTold,
    SessionError,
    SessionIdle,
    SessionStatus,
    Told,
)
from goent.drivers.opencode.failures import classify_fault
from goent.drivers.opencode.guard import ProcessGuard
from goent.drivers.opencode.shapes import Message
from goent.drivers.opencode.switchboard import Switchboard
from goent.drivers.opencode.turn import Turn
from goent.drivers.opencode_serve.parts import Reader

LATE = 0.3  # seconds for an error that comes after the end that it brought about
LOOK_AGAIN = 30.0  # seconds without news before the server is asked whether the turn goes on
CLOSE_TIMEOUT = 5.0
ABORTED = "MessageAbortedError"
REFUSED = "content-filter"
LOST = "the OpenCode server that asked has ended"


class Server(Protocol):
    """A running server, as a session sees it. `pid` is None if it is somebody else's."""

    @property
    def client(self) -> Client: ...

    @property
    def switchboard(self) -> Switchboard: ...

    @property
    def guard(self) -> ProcessGuard | None: ...

    @property
    def gone(self) -> anyio.Event: ...

    @property
    def server_pid(self) -> int | None: ...

    async def crash(self) -> WorkerCrashed: ...

    async def is_ending(self) -> bool: ...


class ServeSession(Conversation):
    """One session of a server. `start` gives it its rules; its model goes with each prompt."""

    def __init__(
        self,
        server: Server,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        super().__init__(
            server.client, server.guard, spec, session, direct=direct, instructions=instructions
        )
        self._server = server
        self._reader = Reader()
        self._last: Message | None = None
        self._news = anyio.Event()
        self._began = False  # the server has been heard to work on the turn
        self._missed = False  # the stream broke in the turn
        self._before: str | None = None  # the last message before the turn; "" if it is the first

    @classmethod
    async def start(
        cls,
        server: Server,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
        earlier: Conversation | None = None,
    ) -> "ServeSession":
        """A session in the worker's directory, under its rules; `earlier` is where it was before."""
        try:
            name = await _open(server.client, spec)
            session = cls(server, spec, name, direct=direct, instructions=instructions)
            if spec.resume:
                await session._remember(earlier)
        except ProtocolError:
            if await server.is_ending():
                raise await server.crash() from None
            raise
        server.switchboard.add(name, session)
        if server.guard:
            server.guard.add(name, session)
        return session

    @property
    def token(self) -> str:
        return self.id

    async def crash(self) -> WorkerCrashed:
        return await self._server.crash()

    async def close(self) -> None:
        self._server.switchboard.remove(self.id)
        if self._server.guard:
            self._server.guard.remove(self.id)
        with anyio.move_on_after(CLOSE_TIMEOUT), suppress(WorkerError):
            if self._turn is not None:
                await self._client.abort(self.id)

    async def hear(self, told: Told) -> None:
        turn = self._turn
        if turn is None:
            return
        match told:
            case SessionStatus(session=session, status=status):
                self._began = self._began or session == self.id
                if status.type == "retry":
                    await self._tell_of_retry(status)
            case SessionError(error=error):
                self._began = True
                if turn.fault is None or not turn.fault.data.message:
                    turn.note_fault(error)  # the next one may be the same with its stack
            case SessionIdle() if self._began:
                self._news.set()
            case Connected():
                self._missed = self._second_look.missed = True
                await self._catch_up(turn)
                self._news.set()
            case _:
                await self._read(turn, told)

    async def _read(self, turn: Turn, told: Told) -> None:
        match told:
            case MessageTold(info=info):
                self._reader.learn(info)
            case PartTold(part=part):
                await _tell(turn, self._reader.read(part))
            case PartGrew():
                await _tell(turn, self._reader.grow(told))
            case _:
                pass

    async def signs(self) -> Signs:
        """Into a process that is not ours nobody can look: then its own word counts."""
        if self._server.server_pid is not None:
            return await super().signs()
        try:
            at_work = self.id in await self._client.busy(self.directory)
        except ProtocolError as error:
            return Signs(alive=False, detail=str(error))
        return Signs(
            alive=at_work, detail="by its server's word it is " + ("busy" if at_work else "idle")
        )

    @property
    def _pid(self) -> int | None:
        return self._server.server_pid

    async def _ask_to_stop(self) -> None:
        with suppress(ProtocolError):
            await self._client.abort(self.id)

    async def _take(self, turn: Turn, prompt: Prompt) -> None:
        self._reader, self._last = Reader(), None
        self._news, self._began, self._missed = anyio.Event(), False, False
        self._before = None
        try:
            with turn.asking:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_when, self._server.gone, tasks.cancel_scope)
                    await self._talk(turn, prompt)
                    tasks.cancel_scope.cancel()
        except* WorkerError as group:
            turn.error = next(e for e in group.exceptions if isinstance(e, WorkerError))
        finally:
            if self._last is None and self._server.gone.is_set():
                turn.error = await self._server.crash()
                await turn.interrupt()
                for name in self.questions.withdraw():
                    await turn.put(PermissionWithdrawn(id=name, reason=LOST))
            turn.close()

    async def _talk(self, turn: Turn, prompt: Prompt) -> None:
        """Hand in the prompt, and wait until its last message is there and whole."""
        try:
            newest = await self._newest()
            self._before = newest.info.id if newest else ""
            words = Words(
                model=self._spec.provider.opencode_model,
                text=prompt.text,
                files=tuple(self._attached(prompt)),
            )
            await self._client.prompt(self.id, words)
        except ProtocolError:
            if not await self._server.is_ending():
                raise
            return  # whoever watches the server tells how it ended
        while True:
            with anyio.move_on_after(LOOK_AGAIN):
                await self._news.wait()
            self._news = anyio.Event()
            if await self._is_over(turn):
                break
        await self._read_again(turn)

    async def _is_over(self, turn: Turn) -> bool:
        """Whether nothing more will come, as the server itself sees it."""
        try:
            if self.id in await self._client.busy(self.directory):
                self._began = True
                return False
            newest = await self._newest()
        except ProtocolError:
            return False  # either it recovers, or it is found gone
        if newest is None or newest.info.id == self._before:
            return turn.fault is not None or turn.cancelled
        if newest.info.role == "assistant":
            done = newest.info.time.completed is not None or newest.info.error is not None
            self._last = newest if done else None
            return done
        return self._began and await turn.last_fault(LATE) is not None

    async def _newest(self) -> Message | None:
        messages = await self._client.messages(self.id, limit=1)
        return messages[-1] if messages else None

    async def _catch_up(self, turn: Turn) -> None:
        """Tell what a broken stream has swallowed; the new one may still tell what is in there."""
        with suppress(ProtocolError):
            await self._read_all(turn, await self._said())
        self._reader.doubt()

    async def _read_again(self, turn: Turn) -> None:
        """The last word is the messages', not the stream's."""
        messages = [self._last] if self._last else []
        if messages and self._missed:
            with suppress(ProtocolError):
                messages = await self._said()
        await self._read_all(turn, messages)

    async def _said(self) -> Sequence[Message]:
        """The turn's messages so far."""
        if self._before is None:
            return []
        newest_first = reversed(await self._client.messages(self.id))
        since = takewhile(lambda message: message.info.id != self._before, newest_first)
        return [*since][::-1]

    async def _read_all(self, turn: Turn, messages: Sequence[Message]) -> None:
        for message in messages:
            await _tell(turn, self._reader.read_message(message))

    async def _verdict(self, turn: Turn) -> StopReason:
        if turn.cancelled:
            return "cancelled"
        self._check_rejected(turn)
        if turn.error:
            raise turn.error
        error = self._last.info.error if self._last else turn.fault
        if error and error.name == ABORTED:
            return "cancelled"
        if error:
            raise classify_fault(error)
        if self._last and self._last.info.finish == REFUSED:
            raise ModelRefused(f"{self._spec.provider.opencode_model} refused to answer")
        self._check(turn)
        return "end"


async def _open(client: Client, spec: WorkerSpec) -> str:
    if spec.resume is None:
        made = await client.create(str(spec.cwd), title=spec.id, rules=spec.rules)
        return made.id
    try:
        await client.set_up(spec.resume, title=spec.id, rules=spec.rules)
    except NotFound as error:
        raise WorkerError(
            f"OpenCode has no session {spec.resume!r} that it could go on with: {error}"
        ) from error
    return spec.resume


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _tell(turn: Turn, updates: Sequence[AnyUpdate]) -> None:
    for update in updates:
        await turn.tell(update)
