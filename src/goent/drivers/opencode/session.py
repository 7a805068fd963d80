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
from goent.acp.options import ConfigOption, find_option
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
from goent.domain.events import Noticed, PermissionWithdrawn
from goent.domain.ports import Emit, Signs, StopReason, WorkerSpec
from goent.domain.types import Answer, Prompt
from goent.drivers.opencode.content import WARM
from goent.drivers.opencode.events import RetryStatus, SessionFault
from goent.drivers.opencode.failures import classify
from goent.drivers.opencode.inner import Message, Question
from goent.drivers.opencode.process import OpenCodeProcess
from goent.drivers.opencode.questions import Questions, describe, outcome
from goent.drivers.opencode.tasks import task_group
from goent.drivers.opencode.turn import Turn
from goent.drivers.opencode.usage import Spending
from goent.drivers.opencode.vitals import read_vitals
from goent.rpc import RpcError

LATE = 0.3  # seconds for an update or an error that comes after the reply
ABORT_AFTER = (1.0, 1.0, 2.0)  # seconds to wait for the turn's end, each time before an abort
CLOSE_TIMEOUT = 5.0
MOST_NAMES = 20
LOST = "the OpenCode process that asked has ended"
# Seconds to look at a silent process, and of CPU that it takes while it idles: 0.01 to 0.04 were
# seen. One that works has 0.2 and more, with ten others on each core.
LOOK, IDLE_CPU = 2.0, 0.1
# OpenCode trims a prompt, and one that begins with a slash never reaches the model.
Options = tuple[ConfigOption, ...] | None
_SLASH = re.compile(r"[\s\ufeff]*/")


class OpenCodeSession:
    """One session of a process. `start` gives it its model and its rules."""

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
        self.questions = Questions(process.inner, spec)
        self.spending = Spending(process.inner, spec.provider, session) if direct else None
        self._last_prompt: Message | None = None
        self._turn: Turn | None = None

    @property
    def directory(self) -> str:
        return str(self._spec.cwd)

    @classmethod
    async def start(
        cls,
        process: OpenCodeProcess,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
        earlier: "OpenCodeSession | None" = None,
    ) -> "OpenCodeSession":
        """A session in the worker's directory, on the worker's model, under its rules.

        `earlier` is the same one in a process that it has left.
        """
        try:
            name, options = await _open(process, spec)
            session = cls(process, spec, name, direct=direct, instructions=instructions)
            await session._set_model(options)
            await process.inner.set_up(name, title=spec.id, rules=spec.rules)
            if spec.resume:
                await session._remember(earlier)
        except WorkerCrashed:
            raise await process.crash() from None
        except ProtocolError:
            if await process.is_ending():
                raise await process.crash() from None
            raise
        except RpcError as error:
            raise classify(error, None) from error
        process.add(name, session)
        return session

    def was_told_since(self, begun: float) -> bool:
        """Whether a prompt of that time or later is in the history that it was opened with."""
        last = self._last_prompt
        return last is not None and last.info.time.created >= int(begun * 1000)

    async def crash(self) -> WorkerCrashed:
        """How its process ended."""
        return await self._process.crash()

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        if self._turn is not None:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        turn = self._turn = Turn(self._spec.cwd)
        try:
            async with task_group() as tasks:
                tasks.start_soon(self._take, turn, self._blocks(prompt))
                await turn.hand_on(emit)
        finally:
            turn.close()
            self._turn = None
            self.questions.withdraw()
        if self.spending and (report := await self.spending.report()):
            await emit(report)
        return await self._verdict(turn)

    async def cancel(self) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.cancelled = True
        self.questions.withdraw()
        await self._process.connection.cancel(self.id)
        for patience in ABORT_AFTER:
            with anyio.move_on_after(patience):
                await turn.answered.wait()
                return
            # A parent whose subagent was stopped may go on with its next step.
            with suppress(ProtocolError):
                await self._process.inner.abort(self.id)
        turn.asking.cancel()

    async def signs(self) -> Signs:
        tool = self._turn.running_tool if self._turn else ""
        if tool:
            return Signs(alive=True, detail=f"its tool is running: {tool}")
        before = read_vitals(self._process.pid)
        await anyio.sleep(LOOK)
        after = read_vitals(self._process.pid)
        used = after.cpu - before.cpu if before and after else 0.0
        return Signs(
            alive=used > IDLE_CPU, detail=f"OpenCode used {used:.2f} s of CPU in {LOOK:g} s"
        )

    async def answer(self, permission_id: str, option: Answer) -> None:
        self.questions.answer(permission_id, option)

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
        pending = await self.questions.ask_own(request, turn.put)
        if pending.answer == "reject":
            turn.rejected = pending.question
        return outcome(request, pending.answer)

    async def child_asked(self, question: Question) -> None:
        turn = self._turn
        with suppress(ProtocolError):
            if turn is None or turn.cancelled:
                await self._process.inner.reply(question.id, "reject", self.directory)
            else:
                await self.questions.ask_of_child(question, turn.put)

    async def retrying(self, status: RetryStatus) -> None:
        if self._turn:
            wait = max(0.0, status.next / 1000 - time.time())
            text = f"attempt {status.attempt} failed: {status.message}; the next in {wait:.0f} s"
            await self._turn.put(Noticed(text=text))

    def failed(self, fault: SessionFault) -> None:
        if self._turn:
            self._turn.note_fault(fault)

    async def _set_model(self, options: Options) -> None:
        model = self._spec.provider.opencode_model
        try:
            await self._process.connection.set_model(self.id, model)
        except UnknownModel as error:
            option = find_option(options, "model")
            known = [c.value for c in option.choices if c.value != WARM] if option else []
            more = f" and {len(known) - MOST_NAMES} more" if len(known) > MOST_NAMES else ""
            names = ", ".join(known[:MOST_NAMES]) or "none"
            raise UnknownModel(f"{error}; it has: {names}{more}") from error

    async def _remember(self, earlier: "OpenCodeSession | None") -> None:
        """What it was told, asked, granted and billed for before."""
        inner = self._process.inner
        self._last_prompt = await inner.last_prompt(self.id)
        if self._last_prompt:
            self._instructions = ()
        if earlier:
            self.questions = earlier.questions.at(inner)
        if self.spending and earlier and earlier.spending:
            self.spending = earlier.spending.at(inner)
        elif self.spending:
            await self.spending.skip()

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
            if isinstance(error, WorkerCrashed):
                await turn.interrupt()
                for name in self.questions.withdraw():
                    await turn.put(PermissionWithdrawn(id=name, reason=LOST))
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


async def _open(process: OpenCodeProcess, spec: WorkerSpec) -> tuple[str, Options]:
    if spec.resume is None:
        new = await process.connection.new_session(str(spec.cwd))
        return new.session_id, new.config_options
    try:
        # Not `session/load`: what has been said was told when it was said.
        opened = await process.connection.resume_session(spec.resume, str(spec.cwd))
    except RpcError as error:
        raise WorkerError(
            f"OpenCode has no session {spec.resume!r} that it could go on with: {error.message}"
        ) from error
    return spec.resume, opened.config_options
