"""What is a worker's session with OpenCode, however OpenCode is spoken to?

A turn's events come from several places and leave in one order: each place puts them into the
turn, `prompt` hands them on. How a turn is taken and what its end means, the methods know.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import (
    NothingSaid,
    PermissionBypassed,
    PermissionDenied,
    ProtocolError,
    WorkerBusy,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import DriverEvent, Noticed, ToolCall
from goent.domain.guard import GuardedCall, Verdict
from goent.domain.ports import Emit, Signs, StopReason, WorkerSpec
from goent.domain.types import Answer, Prompt
from goent.drivers.ground import Ground
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.guard import OUTSIDE, STRANGER, ProcessGuard, goes_astray, matters
from goent.drivers.opencode.questions import Questions
from goent.drivers.opencode.second_look import SecondLook
from goent.drivers.opencode.shapes import Activity, Message, Part, Question
from goent.drivers.opencode.turn import Turn
from goent.drivers.opencode.usage import Spending
from goent.drivers.questions import Matter, verdict
from goent.drivers.rules import oversight_level
from goent.drivers.tasks import task_group
from goent.drivers.vitals import read_vitals

ABORT_AFTER = (1.0, 1.0, 2.0)  # seconds to wait for the turn's end, each time before an abort
# Seconds to look at a silent process, and of CPU that it takes while it idles: 0.01 to 0.04 were
# seen. One that works has 0.2 and more, with ten others on each core.
LOOK, IDLE_CPU = 2.0, 0.1
DONE = frozenset({"completed", "failed"})
OVER = Verdict(allow=False, message="The turn is over, so this call does not run.")


class Conversation(ABC):
    """One session in one process; `direct` if its model calls bypass the gate."""

    def __init__(
        self,
        client: Client,
        guard: ProcessGuard | None,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        self.id = session
        self.questions = Questions(client, spec)
        self.spending = Spending(client, spec.provider, session) if direct else None
        self._client = client
        self._guard = guard
        self._ground = Ground(spec.cwd)
        self._spec = spec
        self._instructions = instructions
        self._last_prompt: Message | None = None
        self._turn: Turn | None = None
        self._second_look = SecondLook(None if guard else self._is_excused)
        self._late: PermissionBypassed | None = None  # found between two turns

    @property
    def worker(self) -> str:
        return self._spec.id

    @property
    def directory(self) -> str:
        return str(self._spec.cwd)

    def was_told_since(self, begun: float) -> bool:
        """Whether a prompt of that time or later is in the history that it was opened with."""
        last = self._last_prompt
        return last is not None and last.info.time.created >= int(begun * 1000)

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        if self._turn is not None:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        turn = self._turn = Turn(self._spec.cwd)
        begun = time.time()
        try:
            if self._late:
                raise self._late
            await self._be_guarded()
            async with task_group() as tasks:
                tasks.start_soon(self._take, turn, prompt)
                tasks.start_soon(self._stop_if_caught, turn)
                await turn.hand_on(self._metering(emit))
        finally:
            turn.discard()
            self._turn, self._late = None, None
            self.questions.withdraw()
        await self._report(emit)
        await self._look_again(turn, begun)
        if turn.bypass:
            raise turn.bypass
        return await self._verdict(turn)

    def _metering(self, emit: Emit) -> Emit:
        """What bypasses the gate is told of whenever a tool is done: a budget may end the turn."""

        async def told(event: DriverEvent) -> None:
            await emit(event)
            if isinstance(event, ToolCall) and event.status in DONE:
                await self._report(emit)

        return told if self.spending else emit

    async def _report(self, emit: Emit) -> None:
        if self.spending and (report := await self.spending.report()):
            await emit(report)

    async def cancel(self) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.cancelled = True
        await self._stop(turn)

    async def _stop(self, turn: Turn) -> None:
        self.questions.withdraw()
        await self._ask_to_stop()
        for patience in ABORT_AFTER:
            with anyio.move_on_after(patience):
                await turn.answered.wait()
                return
            # A parent whose subagent was stopped may go on with its next step.
            with suppress(ProtocolError):
                await self._client.abort(self.id)
        turn.asking.cancel()

    async def signs(self) -> Signs:
        tool = self._turn.running_tool if self._turn else ""
        if tool:
            return Signs(alive=True, detail=f"its tool is running: {tool}")
        pid = self._pid
        if pid is None:
            return Signs(alive=False, detail="nothing is known of the server's process")
        before = read_vitals(pid)
        await anyio.sleep(LOOK)
        after = read_vitals(pid)
        used = after.cpu - before.cpu if before and after else 0.0
        return Signs(
            alive=used > IDLE_CPU, detail=f"OpenCode used {used:.2f} s of CPU in {LOOK:g} s"
        )

    async def answer(self, permission_id: str, option: Answer, message: str = "") -> bool:
        self.questions.answer(permission_id, option, message)
        return True

    async def judge(self, call: GuardedCall) -> Verdict:
        """May a tool call run? By the worker's rules, or by its owner's word."""
        turn = self._turn
        if turn is None or turn.cancelled:
            return OVER
        if goes_astray(call):
            return STRANGER
        asked, seen = matters(call, self._ground), False
        for matter in asked:
            action = verdict(matter, self._spec.rules)
            if action == "deny":
                return refused(matter, "by a rule of the user's")
            if action == "ask":
                seen = seen or self.questions.shows(matter)
                reply = await self.questions.put(matter, turn.put)
                if reply.answer not in ("allow_once", "allow_always"):
                    if reply.answer == "reject" and call.is_own and not reply.message:
                        await self._end_by_rejection(turn, matter)
                    return refused(matter, "by the user", reply.message) if reply.answer else OVER
        if turn is not self._turn or turn.cancelled:
            return OVER  # it ended after the answer
        self.questions.clear(call, asked, seen=seen)
        self._second_look.allow(call.session, call.call)
        return Verdict(allow=True)

    async def saw(self, part: Part) -> None:
        """A tool call as it is now, of the session or of a subagent."""
        if bypass := self._second_look.saw(part):
            if self._turn:
                self._turn.catch(bypass)
            else:
                self._late = bypass

    async def _stop_if_caught(self, turn: Turn) -> None:
        await turn.caught.wait()
        if turn.bypass and not turn.answered.is_set():
            await self._stop(turn)

    async def _look_again(self, turn: Turn, begun: float) -> None:
        """At calls whose end was not told before the turn's, or was lost with the event stream."""
        look = self._second_look
        if turn.bypass or turn.cancelled or isinstance(turn.error, WorkerCrashed):
            return
        with suppress(ProtocolError):
            sessions = await self._family() if look.missed else look.unfinished
            for session in sessions:
                for message in await self._client.messages(session):
                    if message.info.time.created < begun * 1000:
                        continue
                    for part in message.parts:
                        if bypass := look.saw(part, from_start=False):
                            turn.catch(bypass)
            look.missed = False

    async def _family(self) -> frozenset[str]:
        """The session and its subagents', however deep they are nested."""
        found, unseen = {self.id}, [self.id]
        while unseen:
            children = {child.id for child in await self._client.children(unseen.pop())}
            unseen += children - found
            found |= children
        return frozenset(found)

    def _is_excused(self, call: GuardedCall) -> bool:
        """Without a guard of ours, what the worker's rules allow needs no question; nor what they leave alone."""
        rules = self._spec.rules
        free = oversight_level(rules) == "free"
        return all(
            (free and matter.permission == OUTSIDE)
            or verdict(replace(matter, reason=""), rules) == "allow"
            for matter in matters(call, self._ground)
        )

    async def _end_by_rejection(self, turn: Turn, matter: Matter) -> None:
        """Before OpenCode hears of it, so that it does not ask its model what to do next."""
        turn.rejected = matter
        with anyio.move_on_after(sum(ABORT_AFTER)), suppress(ProtocolError):
            await self._ask_to_stop()
            await turn.answered.wait()

    async def _be_guarded(self) -> None:
        """Nothing is asked of a model whose tools would run without our word.

        A server that somebody else runs has no guard of ours: there, OpenCode's own rules hold.
        """
        guard = self._guard
        if guard is None or guard.holds(self.directory):
            return
        with suppress(ProtocolError):
            await self._client.busy(
                self.directory
            )  # it opens a directory when it is asked about it
        if not await guard.is_loaded(self.directory):
            raise unguarded(self.directory)

    async def asked(self, question: Question) -> None:
        """A question that the event stream brought; one of its own that is refused ends the turn."""
        turn = self._turn
        with suppress(ProtocolError):
            if turn is None or turn.cancelled:
                await self._client.reply(question.id, "reject", self.directory)
                return
            own = question.session == self.id
            matter, reply = await self.questions.ask_by_event(question, turn.put)
            if reply.answer != "reject" and question.tool and self._guard is None:
                self._second_look.allow(question.session, question.tool.call)
            if own and reply.answer == "reject" and not reply.message:
                turn.rejected = matter

    @abstractmethod
    async def crash(self) -> WorkerCrashed:
        """How its process ended."""

    @abstractmethod
    async def close(self) -> None:
        """Leave nothing running. A process that is gone has nothing to close."""

    @property
    @abstractmethod
    def _pid(self) -> int | None: ...

    @abstractmethod
    async def _take(self, turn: Turn, prompt: Prompt) -> None:
        """Take the turn and close it; what went wrong is noted in it."""

    @abstractmethod
    async def _ask_to_stop(self) -> None: ...

    @abstractmethod
    async def _verdict(self, turn: Turn) -> StopReason: ...

    async def _remember(self, earlier: "Conversation | None") -> None:
        """What it was told, asked, granted and billed for before."""
        self._last_prompt = await self._client.last_prompt(self.id)
        if self._last_prompt:
            self._instructions = ()
        if earlier:
            self.questions = earlier.questions.at(self._client)
        if self.spending and earlier and earlier.spending:
            self.spending = earlier.spending.at(self._client)
        elif self.spending:
            await self.spending.skip()

    def _attached(self, prompt: Prompt) -> Sequence[Path]:
        """The prompt's files; the first prompt brings what the project tells every agent."""
        paths = (*self._instructions, *(self._spec.cwd / file for file in prompt.files))
        self._instructions = ()
        return paths

    async def _tell_of_retry(self, activity: Activity) -> None:
        if self._turn:
            wait = max(0.0, activity.next / 1000 - time.time())
            what = f"attempt {activity.attempt} failed: {activity.message}"
            await self._turn.put(Noticed(text=f"{what}; the next in {wait:.0f} s"))

    def _check_rejected(self, turn: Turn) -> None:
        if turn.rejected:
            tool, what = turn.rejected.permission, _what(turn.rejected)
            raise PermissionDenied(f"permission {tool!r} was refused for {what!r}: the turn ended")

    def _check(self, turn: Turn) -> None:
        """Is what the turn brought something that it can end with?"""
        self._check_rejected(turn)
        if not turn.spoke:
            model = self._spec.provider.opencode_model
            raise NothingSaid(f"{model} ended its turn without a word and without a tool call")


def unguarded(directory: str) -> WorkerError:
    """Why nothing was asked of a model there."""
    return WorkerError(
        f"OpenCode did not load go-ent's guard in {directory!r}, so its tools would run "
        "unasked; check that this version of OpenCode loads plugins (`go-ent doctor`)"
    )


def refused(matter: Matter, by: str, words: str = "") -> Verdict:
    """What the model is told; with words of the user's, what to do instead."""
    said = f" The user says: {words}" if words else ""
    return Verdict(
        allow=False,
        message=f"Permission {matter.permission!r} was refused {by} for {_what(matter)!r}.{said}",
    )


def _what(matter: Matter) -> str:
    return ", ".join(matter.patterns) or next(iter(matter.detail.splitlines()), "*")
