"""How does one worker talk with OpenCode: a session, its turns, its questions?

A turn's events come from three places (ACP updates, permission questions, the server's event
stream) and leave in one order: each place puts them into the turn, `prompt` hands them on.
"""

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from goent.acp.asks import Cancelled, PermissionOutcome, PermissionRequest
from goent.acp.content import ContentBlock, ResourceLink, Text
from goent.acp.messages import NewSession
from goent.acp.options import find_option
from goent.acp.updates import AnyUpdate
from goent.domain.errors import (
    ModelRefused,
    NothingSaid,
    PermissionDenied,
    ProtocolError,
    UnknownModel,
    WorkerBusy,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import Noticed
from goent.domain.ports import Emit, StopReason, WorkerSpec
from goent.domain.types import Answer, Prompt
from goent.drivers.opencode.content import WARM
from goent.drivers.opencode.events import RetryStatus, SessionFault
from goent.drivers.opencode.failures import classify
from goent.drivers.opencode.inner import Question
from goent.drivers.opencode.process import OpenCodeProcess
from goent.drivers.opencode.questions import Questions, describe, outcome
from goent.drivers.opencode.tasks import task_group
from goent.drivers.opencode.turn import Turn
from goent.drivers.opencode.usage import Spending
from goent.rpc import RpcError

LATE = 0.3  # seconds for an update or an error that comes after the reply
ABORT_AFTER = (1.0, 1.0, 2.0)  # seconds to wait for the turn's end, each time before an abort
CLOSE_TIMEOUT = 5.0
MOST_NAMES = 20
# OpenCode trims a prompt, and one that begins with a slash never reaches the model.
_SLASH = re.compile(r"[\s\ufeff]*/")


class OpenCodeSession:
    """The port `Session`, on one session of a process. `start` gives it its model and rules."""

    def __init__(
        self,
        process: OpenCodeProcess,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        self.id = session
        self._instructions = instructions
        self._process = process
        self._spec = spec
        self._questions = Questions(process.inner, spec)
        self._spending = Spending(process.inner, spec.provider, session) if direct else None
        self._turn: Turn | None = None

    @property
    def directory(self) -> str:
        return str(self._spec.cwd)

    @property
    def token(self) -> str:
        return self.id

    @classmethod
    async def start(
        cls,
        process: OpenCodeProcess,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> "OpenCodeSession":
        """A session in the worker's directory, on the worker's model, under its rules."""
        try:
            new = await process.connection.new_session(str(spec.cwd))
            session = cls(process, spec, new.session_id, direct=direct, instructions=instructions)
            await session._set_model(new)
            await process.inner.set_up(new.session_id, title=spec.id, rules=spec.rules)
        except WorkerCrashed:
            raise await process.crash() from None
        except RpcError as error:
            raise classify(error, None) from error
        process.add(new.session_id, session)
        return session

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        if self._turn is not None:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        turn = self._turn = Turn(self._spec.cwd)
        try:
            if self._spending:
                await self._spending.begin()
            async with task_group() as tasks:
                tasks.start_soon(self._take, turn, self._blocks(prompt))
                await turn.hand_on(emit)
        finally:
            turn.close()
            self._turn = None
            self._questions.withdraw()
        if self._spending and (report := await self._spending.report()):
            await emit(report)
        return await self._verdict(turn)

    async def cancel(self) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.cancelled = True
        self._questions.withdraw()
        await self._process.connection.cancel(self.id)
        for patience in ABORT_AFTER:
            with anyio.move_on_after(patience):
                await turn.answered.wait()
                return
            # A parent whose subagent was stopped may go on with its next step.
            with suppress(ProtocolError):
                await self._process.inner.abort(self.id)
        turn.asking.cancel()

    async def answer(self, permission_id: str, option: Answer) -> None:
        self._questions.answer(permission_id, option)

    async def close(self) -> None:
        """Leave nothing running. A process that is gone has nothing to close."""
        self._process.remove(self.id)
        with anyio.move_on_after(CLOSE_TIMEOUT), suppress(WorkerError, RpcError, TimeoutError):
            if self._turn is not None:
                await self._process.inner.abort(self.id)
            await self._process.connection.close_session(self.id)

    async def update(self, update: AnyUpdate) -> None:
        if self._turn:
            await self._turn.tell(update)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        turn = self._turn
        if turn is None or turn.cancelled:
            return Cancelled()
        pending = await self._questions.ask_own(request, turn.put)
        if pending.answer == "reject":
            turn.rejected = pending.question
        return outcome(request, pending.answer)

    async def child_asked(self, question: Question) -> None:
        turn = self._turn
        with suppress(ProtocolError):
            if turn is None or turn.cancelled:
                await self._process.inner.reply(question.id, "reject", self.directory)
            else:
                await self._questions.ask_of_child(question, turn.put)

    async def retrying(self, status: RetryStatus) -> None:
        if self._turn:
            wait = max(0.0, status.next / 1000 - time.time())
            text = f"attempt {status.attempt} failed: {status.message}; the next in {wait:.0f} s"
            await self._turn.put(Noticed(text=text))

    def failed(self, fault: SessionFault) -> None:
        if self._turn:
            self._turn.note_fault(fault)

    async def _set_model(self, new: NewSession) -> None:
        model = self._spec.provider.opencode_model
        try:
            await self._process.connection.set_model(new.session_id, model)
        except UnknownModel as error:
            option = find_option(new.config_options, "model")
            known = [c.value for c in option.choices if c.value != WARM] if option else []
            more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
            names = ", ".join(known[:MOST_NAMES]) or "none"
            raise UnknownModel(f"{error}; it has: {names}{more}") from error

    def _blocks(self, prompt: Prompt) -> Sequence[ContentBlock]:
        text = f"Task:\n{prompt.text}" if _SLASH.match(prompt.text) else prompt.text
        paths = [*self._instructions, *(self._spec.cwd / file for file in prompt.files)]
        self._instructions = ()
        links = [ResourceLink(uri=path.as_uri(), name=path.name) for path in paths]
        return [Text(text=text), *links]

    async def _take(self, turn: Turn, blocks: Sequence[ContentBlock]) -> None:
        try:
            with turn.asking:
                result = await self._process.connection.prompt(self.id, blocks)
                turn.stop_reason = result.stop_reason
                if not turn.spoke and not turn.cancelled:
                    await turn.last_words(LATE)
        except (WorkerError, RpcError) as error:
            turn.error = error
        finally:
            turn.close()

    async def _verdict(self, turn: Turn) -> StopReason:
        if isinstance(turn.error, WorkerCrashed):
            raise await self._process.crash() from turn.error
        if turn.cancelled or turn.stop_reason == "cancelled":
            return "cancelled"
        if isinstance(turn.error, RpcError):
            raise classify(turn.error, await turn.last_fault(LATE)) from turn.error
        if turn.error:
            raise turn.error
        self._check(turn)
        return "end"

    def _check(self, turn: Turn) -> None:
        if turn.stop_reason == "refusal":
            raise ModelRefused(f"{self._spec.provider.opencode_model} refused to answer")
        if turn.rejected:
            tool, about = turn.rejected.permission, describe(turn.rejected).splitlines()
            patterns = ", ".join(turn.rejected.patterns)
            what = patterns or (about[0] if about else "*")
            raise PermissionDenied(f"permission {tool!r} was refused for {what!r}: the turn ended")
        if not turn.spoke:
            model = self._spec.provider.opencode_model
            raise NothingSaid(f"{model} ended its turn without a word and without a tool call")
