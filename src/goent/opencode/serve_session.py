"""Runs a worker's session over HTTP, on a server of ours or one that somebody else runs.

A prompt is accepted immediately; what the model says and does arrives by the event stream. The turn
is over when the server reports the session idle and its last message agrees: an abort reports idle
twice, and the second report may arrive in the next turn. What the stream has lost is read from the
messages.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import anyio

from goent.acp.agent_messages import AnyUpdate
from goent.domain.errors import ProtocolError, WorkerError
from goent.domain.ports import TurnStopReason, WorkerLiveness, WorkerSpec
from goent.domain.types import Prompt
from goent.opencode.event_stream import (
    Connected,
    MessageUpdated,
    PartDelta,
    PartUpdated,
    ServerEvent,
    SessionError,
    SessionIdle,
    SessionStatus,
)
from goent.opencode.opencode_translator import PartReader
from goent.opencode.opencode_turn import (
    OpenCodeTurn,
    classify_fault,
    explained_fault,
    message_failure,
)
from goent.opencode.server_api import OpenCodeClient, ServerMessage, ServerNotFound, TurnInput
from goent.opencode.session import CLOSE_TIMEOUT_S, BaseSession, OpenCodeServer

LATE_ERROR_TIMEOUT_S = 0.3  # for an error that arrives after the end that it caused
POLL_INTERVAL_S = 30.0  # without news before the server is asked whether the turn is over
ABORTED = "MessageAbortedError"


class ServeSession(BaseSession):
    """One session of a server. `start` sets its rules; its model goes with each prompt."""

    def __init__(
        self,
        server: OpenCodeServer,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        super().__init__(server, spec, session, direct=direct, instructions=instructions)
        self._reader = PartReader()
        self._last: ServerMessage | None = None
        self._changed = anyio.Event()
        self._began = False  # the server was seen working on the turn
        self._missed = False  # the stream broke during the turn
        # The last message before the turn; "" if the turn has the first one, None if unknown.
        self._last_before_turn: str | None = None

    @classmethod
    async def start(
        cls,
        server: OpenCodeServer,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
        earlier: BaseSession | None = None,
    ) -> "ServeSession":
        """Open the session; `earlier` is the same one in a process that it has left."""
        try:
            name = await _open_session(server.client, spec)
            session = cls(server, spec, name, direct=direct, instructions=instructions)
            if spec.resume:
                await session.restore(earlier)
        except ProtocolError:
            if await server.is_ending():
                raise await server.crash() from None
            raise
        server.router.add(name, session)
        if server.guard:
            server.guard.add(name, session)
        return session

    @property
    def token(self) -> str:
        return self.id

    async def close(self) -> None:
        self._server.router.remove(self.id)
        if self._server.guard:
            self._server.guard.remove(self.id)
        with anyio.move_on_after(CLOSE_TIMEOUT_S), suppress(WorkerError):
            if self._turn is not None:
                await self._client.abort(self.id)

    async def hear(self, event: ServerEvent) -> None:
        turn = self._turn
        if turn is None:
            return
        match event:
            case SessionStatus(session=session, status=status):
                self._began = self._began or session == self.id
                if status.type == "retry":
                    await self._report_retry(status)
            case SessionError(error=error):
                self._began = True
                turn.note_fault(explained_fault(turn.fault, error))
            case SessionIdle() if self._began:
                self._changed.set()
            case Connected():
                self._missed = self._bypass_detector.missed = True
                await self._catch_up(turn)
                self._changed.set()
            case MessageUpdated(info=info):
                self._reader.note_message(info)
            case PartUpdated(part=part):
                await _put_updates(turn, self._reader.read(part))
            case PartDelta():
                await _put_updates(turn, self._reader.read_delta(event))
            case _:
                pass

    async def liveness(self) -> WorkerLiveness:
        """By its process, or by the server's word if the process is somebody else's."""
        if self._server.pid is not None:
            return await super().liveness()
        try:
            busy = await self._client.is_busy(self.id, self.directory)
        except ProtocolError as error:
            return WorkerLiveness(alive=False, detail=str(error))
        state = "busy" if busy else "idle"
        return WorkerLiveness(alive=busy, detail=f"its server reports it as {state}")

    async def _request_stop(self) -> None:
        with suppress(ProtocolError):
            await self._client.abort(self.id)

    async def _run_turn(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        self._reader, self._last = PartReader(), None
        self._changed, self._began, self._missed = anyio.Event(), False, False
        self._last_before_turn = None
        try:
            with turn.prompt_scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_when, self._server.gone, tasks.cancel_scope)
                    await self._prompt_and_wait(turn, prompt)
                    tasks.cancel_scope.cancel()
        except* WorkerError as group:
            turn.error = next(e for e in group.exceptions if isinstance(e, WorkerError))
        finally:
            if self._last is None and self._server.gone.is_set():
                turn.error = await self._server.crash()
                await turn.interrupt()
                await self._withdraw_questions(turn)
            turn.close()

    async def _prompt_and_wait(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        """Return when the turn's last message is there and complete."""
        try:
            newest = await self._newest()
            self._last_before_turn = newest.info.id if newest else ""
            await self._client.prompt(
                self.id,
                TurnInput(
                    model=self._spec.provider.opencode_model,
                    text=prompt.text,
                    files=tuple(self._attached(prompt)),
                ),
            )
        except ProtocolError:
            if not await self._server.is_ending():
                raise
            return  # `_run_turn` reports how the server ended
        while True:
            with anyio.move_on_after(POLL_INTERVAL_S):
                await self._changed.wait()
            self._changed = anyio.Event()
            if await self._is_over(turn):
                break
        await self._read_final_messages(turn)

    async def _is_over(self, turn: OpenCodeTurn) -> bool:
        try:
            if await self._client.is_busy(self.id, self.directory):
                self._began = True
                return False
            newest = await self._newest()
        except ProtocolError:
            return False  # either it recovers, or it is found gone
        if newest is None or newest.info.id == self._last_before_turn:
            return turn.fault is not None or turn.cancelled
        if newest.info.role == "assistant":
            done = newest.info.time.completed is not None or newest.info.error is not None
            self._last = newest if done else None
            return done
        return self._began and await turn.last_fault(LATE_ERROR_TIMEOUT_S) is not None

    async def _newest(self) -> ServerMessage | None:
        messages = await self._client.messages(self.id, limit=1)
        return messages[-1] if messages else None

    async def _catch_up(self, turn: OpenCodeTurn) -> None:
        """Read what a broken stream has lost; the new one may still deliver some of it."""
        with suppress(ProtocolError):
            await self._read_all(turn, await self._messages_of_turn())
        self._reader.mark_gap()

    async def _read_final_messages(self, turn: OpenCodeTurn) -> None:
        """The messages have the last word, not the stream."""
        messages = [self._last] if self._last else []
        if messages and self._missed:
            with suppress(ProtocolError):
                messages = await self._messages_of_turn()
        await self._read_all(turn, messages)

    async def _messages_of_turn(self) -> Sequence[ServerMessage]:
        if self._last_before_turn is None:
            return []
        newest_first = reversed(await self._client.messages(self.id))
        since = takewhile(lambda message: message.info.id != self._last_before_turn, newest_first)
        return [*since][::-1]

    async def _read_all(self, turn: OpenCodeTurn, messages: Sequence[ServerMessage]) -> None:
        for message in messages:
            await _put_updates(turn, self._reader.read_message(message))

    async def _end_of_turn(self, turn: OpenCodeTurn) -> TurnStopReason:
        if turn.cancelled:
            return "cancelled"
        turn.check_rejected()
        if turn.error:
            raise turn.error
        fault = self._last.info.error if self._last else turn.fault
        if fault and fault.name == ABORTED:
            return "cancelled"
        if fault:
            raise classify_fault(fault)
        if self._last and (failure := message_failure(self._last.info, self._model)):
            raise failure
        self._check_output(turn)
        return "end"


async def _open_session(client: OpenCodeClient, spec: WorkerSpec) -> str:
    if spec.resume is None:
        made = await client.create(str(spec.cwd), title=spec.id, rules=spec.rules)
        return made.id
    try:
        await client.set_up(spec.resume, title=spec.id, rules=spec.rules)
    except ServerNotFound as error:
        raise WorkerError(f"OpenCode has no session {spec.resume!r} to resume: {error}") from error
    return spec.resume


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _put_updates(turn: OpenCodeTurn, updates: Sequence[AnyUpdate]) -> None:
    for update in updates:
        await turn.put_update(update)
