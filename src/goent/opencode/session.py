"""A worker's session with OpenCode, whatever the protocol: its turns, questions and spending.

Permission questions arrive in two ways. ACP asks for the worker's own session, one question at a
time, and waits for our reply. A subagent's session asks only by the event stream, as every session
does without ACP; its question is judged by the worker's rules, which OpenCode does not apply to
subagents, and what they leave open is asked of the worker's owner and answered over HTTP.

Seen in OpenCode 1.18: a subagent starts with `task: deny` and the process's own rules; its parent's
rules do not reach it, nor do rules that are set while it runs. A rejected question of the worker's
own session ends the turn; a subagent receives the rejection and continues. An "always" holds for
every session of the process in that directory, other workers' too, so OpenCode never gets one: it
is kept here, for this worker.

A turn's events come from several places and leave in one order: each place puts them into the
turn, and `prompt` forwards them. How a turn is taken and what its end means is up to the protocol.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import anyio
from msgspec.structs import replace

from goent.acp.agent_messages import PermissionRequest
from goent.agents.acp_turn import request_text
from goent.agents.open_questions import AskOwner, OpenQuestions, OwnerReply
from goent.agents.opencode_program import OPENCODE_NAME
from goent.agents.process_vitals import sample_cpu
from goent.agents.worker_paths import OUTSIDE, WorkerPaths
from goent.domain.errors import (
    NothingSaid,
    PermissionBypassed,
    ProtocolError,
    WorkerBusy,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import DriverEvent, Noticed, PermissionWithdrawn, ToolCall, UsageReported
from goent.domain.ports import (
    Emit,
    GuardedCall,
    GuardVerdict,
    TurnStopReason,
    WorkerLiveness,
    WorkerSpec,
)
from goent.domain.types import PermissionAnswer, Prompt, Provider, Usage
from goent.opencode.call_guard import (
    FOREIGN_TASK,
    BypassDetector,
    ProcessGuard,
    access_for_guarded_call,
    resumes_foreign_session,
)
from goent.opencode.event_stream import EventRouter
from goent.opencode.opencode_turn import OpenCodeTurn
from goent.opencode.server_api import (
    MessagePart,
    OpenCodeClient,
    PendingQuestion,
    QuestionReply,
    QuestionSubject,
    ServerMessage,
    SessionActivity,
    ToolReference,
)
from goent.permissions.access_rules import (
    AccessRequest,
    decide_access,
    oversight_level,
    strictest_action,
)
from goent.proc.concurrency import task_group


class SessionSpending:
    """A session's tokens and cost, subagents included, from one report to the next."""

    def __init__(self, client: OpenCodeClient, provider: Provider, session: str) -> None:
        self._client = client
        self._provider = provider
        self._session = session
        self._reported = (Usage(), Decimal(0))

    def move_to(self, client: OpenCodeClient) -> None:
        """The session continues in another process, which will report what is not reported yet."""
        self._client = client

    async def skip_earlier(self) -> None:
        """Leave out what was used before this worker."""
        self._reported = await self._total()

    async def report(self) -> UsageReported | None:
        """What was used since the last report; a price that OpenCode does not know is unknown."""
        try:
            usage, cost = await self._total()
        except ProtocolError:
            return None  # the process is gone; the next one has the figures too
        before, spent = self._reported
        self._reported = (usage, cost)
        used = Usage(
            input=usage.input - before.input,
            output=usage.output - before.output,
            cache_read=usage.cache_read - before.cache_read,
            cache_write=usage.cache_write - before.cache_write,
            reasoning=usage.reasoning - before.reasoning,
        )
        if not used.total:
            return None
        return UsageReported(
            provider=self._provider.name,
            model=self._provider.model,
            usage=used,
            cost_usd=cost - spent if cost > spent else self._own_cost(used),
            source="opencode",
        )

    def _own_cost(self, used: Usage) -> Decimal | None:
        """By the provider's own price: OpenCode reports 0 if it has none."""
        return self._provider.price.cost(used) if self._provider.price else None

    async def _total(self) -> tuple[Usage, Decimal]:
        own = await self._client.session(self._session)
        sessions = [own, *await self._client.subagents(self._session)]
        usage = sum((each.tokens.usage for each in sessions), Usage())
        return usage, sum((Decimal(str(each.cost)) for each in sessions), Decimal(0))


DOOM_LOOP = "doom_loop"  # OpenCode asks about a repeated call whatever it does
_BY_KIND = {"execute": "bash", "edit": "edit", "fetch": "webfetch"}


class OpenCodeQuestions(OpenQuestions):
    """The permission questions of one worker, as OpenCode's HTTP API has them."""

    def __init__(self, client: OpenCodeClient, spec: WorkerSpec) -> None:
        super().__init__(spec.asked)
        self._client = client
        self._rules = spec.rules
        self._directory = str(spec.cwd)
        # The permissions given, by session and call; None for all of them.
        self._allowed_calls: dict[tuple[str, str], set[str] | None] = {}

    def move_to(self, client: OpenCodeClient) -> None:
        """The session continues in another process; what is always allowed stays so."""
        self._client = client
        self._allowed_calls.clear()

    def would_be_seen(self, access: AccessRequest) -> bool:
        """Whether allowing it allows the whole call: its owner sees it, or saw this very command."""
        return access.permission == "bash" or not self.covers(access)

    def clear(self, call: GuardedCall, accesses: Sequence[AccessRequest], *, seen: bool) -> None:
        """Answer OpenCode's own questions about a call that may run.

        With `seen`, a person saw the whole call; a rule or an earlier "always" allows only the
        permissions it names.
        """
        permissions = {access.permission for access in accesses}
        if call.tool == "bash":
            permissions.discard(OUTSIDE)  # OpenCode finds more paths in the command
        self._allowed_calls[call.session, call.call] = None if seen else permissions

    def _is_cleared(self, question: PendingQuestion) -> bool:
        call = (question.session, question.tool.call if question.tool else "")
        if call not in self._allowed_calls or question.permission == DOOM_LOOP:
            return False
        permissions = self._allowed_calls[call]
        if permissions is None or question.permission in permissions:
            return True
        outside = AccessRequest(permission=OUTSIDE, always=question.patterns, exact=True)
        return question.permission == OUTSIDE and self.covers(outside)

    async def ask_own(
        self, request: PermissionRequest, ask: AskOwner
    ) -> tuple[AccessRequest, OwnerReply]:
        """Ask a question that arrived by ACP; the answer is None if the turn ends first.

        A rejection over ACP has no message, so one with a message goes over HTTP first; OpenCode
        ignores the second answer.
        """
        turn = self.turn
        question = await self._find_question(request)
        access = _access_request(question)
        if turn != self.turn:  # it ended meanwhile
            return access, OwnerReply()
        if self._is_cleared(question):
            return access, OwnerReply(answer="allow_once")
        reply = await self.ask(access, ask)
        if reply.message:
            try:
                await self._client.reply(question.id, "reject", self._directory, reply.message)
            except ProtocolError:
                reply = OwnerReply(answer="reject")
        return access, reply

    async def ask_by_event(
        self, question: PendingQuestion, ask: AskOwner
    ) -> tuple[AccessRequest, OwnerReply]:
        """Answer a question that arrived by the event stream; ask what the rules leave open."""
        access = _access_request(question)
        action = strictest_action(self._rules, question.permission, question.patterns)
        if action == "allow" or self._is_cleared(question):
            reply = OwnerReply(answer="allow_once")
        else:
            reply = await self.ask(access, ask) if action == "ask" else OwnerReply()
            if reply.answer is None:
                reply = OwnerReply(answer="reject")
        decision: QuestionReply = "reject" if reply.answer == "reject" else "once"
        await self._client.reply(question.id, decision, self._directory, reply.message)
        return access, reply

    async def _find_question(self, request: PermissionRequest) -> PendingQuestion:
        """The question as the server lists it: ACP has neither permission nor patterns."""
        call = request.tool_call
        listed: list[PendingQuestion] = []
        with suppress(ProtocolError):
            listed = await self._client.questions(self._directory)
        for question in listed:
            about = question.tool.call if question.tool else ""
            if question.session == request.session_id and about == call.tool_call_id:
                return question
        return PendingQuestion(
            id="",
            session=request.session_id,
            permission=_BY_KIND.get(call.kind or "", call.kind or "tool"),
            patterns=(call.title,) if call.title else (),
            metadata=QuestionSubject(),
            tool=ToolReference(call=call.tool_call_id),
        )


def _access_request(question: PendingQuestion) -> AccessRequest:
    """An "always" is for this very command or these patterns; OpenCode's own is wider."""
    command = question.metadata.command
    return AccessRequest(
        permission=question.permission,
        patterns=question.patterns,
        always=(command,) if command else question.patterns,
        exact=True,
        detail=describe_question(question),
    )


def describe_question(question: PendingQuestion) -> str:
    """What it is about, for a person: the command, the path with the edit, or the patterns."""
    about = question.metadata
    subject = about.command or about.url or about.filepath or ", ".join(question.patterns)
    diff = "\n".join(about.diff.split("\n")[4:])  # without the header, which repeats the path
    return f"{subject}\n{diff}".strip()


ABORT_DELAYS_S = (1.0, 1.0, 2.0)  # for the turn to end, each before an abort
# CPU that an idle process takes while it is sampled: 0.01 to 0.04 s were seen. A working one takes
# 0.2 s and more, with ten others on each core.
IDLE_CPU_S = 0.1
ENDED = frozenset({"completed", "failed"})
CLOSE_TIMEOUT_S = 5.0
PROCESS_ENDED = "the OpenCode process that asked has ended"
TURN_OVER = GuardVerdict(allow=False, message="The turn is over, so this call does not run.")


class OpenCodeServer(Protocol):
    """A running server, ours or somebody else's, who starts it without our guard and pid."""

    @property
    def client(self) -> OpenCodeClient: ...

    @property
    def router(self) -> EventRouter: ...

    @property
    def token(self) -> str:
        """What its model calls show at the gate; empty if they do not pass it."""
        ...

    @property
    def guard(self) -> ProcessGuard | None: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def gone(self) -> anyio.Event: ...

    async def is_ending(self) -> bool:
        """Whether it is gone, or about to be."""
        ...

    async def crash(self) -> WorkerCrashed:
        """How it ended, as an error."""
        ...


class BaseSession(ABC):
    """One session in one process; `direct` if its model calls bypass the gate."""

    def __init__(
        self,
        server: OpenCodeServer,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        self.id = session
        self.questions = OpenCodeQuestions(server.client, spec)
        self.spending = SessionSpending(server.client, spec.provider, session) if direct else None
        self._server = server
        self._client = server.client
        self._guard = server.guard
        self._workdir = WorkerPaths(spec.cwd)
        self._spec = spec
        self._instructions = instructions
        self._last_prompt: ServerMessage | None = None
        self._turn: OpenCodeTurn | None = None
        self._bypass_detector = BypassDetector(None if server.guard else self._is_excused)
        self._late_bypass: PermissionBypassed | None = None  # found between two turns

    @property
    def worker(self) -> str:
        return self._spec.id

    @property
    def directory(self) -> str:
        return str(self._spec.cwd)

    def has_prompt_since(self, begun: float) -> bool:
        """Whether the history it was opened with has a prompt of that time or later."""
        last = self._last_prompt
        return last is not None and last.info.time.created >= int(begun * 1000)

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        if self._turn is not None:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        turn = self._turn = OpenCodeTurn(self._spec.cwd)
        begun = time.time()
        try:
            if self._late_bypass:
                raise self._late_bypass
            await self._wait_for_guard()
            async with task_group() as tasks:
                tasks.start_soon(self._run_turn, turn, prompt)
                tasks.start_soon(self._stop_if_caught, turn)
                await turn.forward(self._metering(emit))
        finally:
            turn.discard()
            self._turn, self._late_bypass = None, None
            self.questions.withdraw()
        await self._report(emit)
        await self._check_missed_calls(turn, begun)
        if turn.bypass:
            raise turn.bypass
        return await self._end_of_turn(turn)

    def _metering(self, emit: Emit) -> Emit:
        """Report spending that bypasses the gate after each tool call: a budget may end the turn."""

        async def emit_metered(event: DriverEvent) -> None:
            await emit(event)
            if isinstance(event, ToolCall) and event.status in ENDED:
                await self._report(emit)

        return emit_metered if self.spending else emit

    async def _report(self, emit: Emit) -> None:
        if self.spending and (report := await self.spending.report()):
            await emit(report)

    async def cancel(self) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.cancelled = True
        await self._stop(turn)

    async def _stop(self, turn: OpenCodeTurn) -> None:
        self.questions.withdraw()
        await self._request_stop()
        for patience in ABORT_DELAYS_S:
            with anyio.move_on_after(patience):
                await turn.done.wait()
                return
            # A parent whose subagent was stopped may continue with its next step.
            with suppress(ProtocolError):
                await self._client.abort(self.id)
        turn.prompt_scope.cancel()

    async def liveness(self) -> WorkerLiveness:
        tool = self._turn.running_tool if self._turn else ""
        if tool:
            return WorkerLiveness(alive=True, detail=f"its tool is running: {tool}")
        pid = self._server.pid
        if pid is None:
            return WorkerLiveness(alive=False, detail="nothing is known of the server's process")
        return await sample_cpu(pid, OPENCODE_NAME, idle_cpu=IDLE_CPU_S)

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        self.questions.answer(permission_id, option, message)
        return True

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """Decide whether a tool call may run, by the worker's rules or its owner's answer."""
        turn = self._turn
        if turn is None or turn.cancelled:
            return TURN_OVER
        if resumes_foreign_session(call):
            return FOREIGN_TASK
        needed, seen = access_for_guarded_call(call, self._workdir), False
        for access in needed:
            action = decide_access(access, self._spec.rules)
            if action == "deny":
                return refusal_verdict(access, "by a rule of the user's")
            if action == "ask":
                seen = seen or self.questions.would_be_seen(access)
                reply = await self.questions.ask(access, turn.put)
                if reply.answer not in ("allow_once", "allow_always"):
                    if reply.answer == "reject" and call.is_own and not reply.message:
                        await self._end_by_rejection(turn, access)
                    return (
                        refusal_verdict(access, "by the user", reply.message)
                        if reply.answer
                        else TURN_OVER
                    )
        if turn is not self._turn or turn.cancelled:
            return TURN_OVER  # it ended after the answer
        self.questions.clear(call, needed, seen=seen)
        self._bypass_detector.allow(call.session, call.call)
        return GuardVerdict(allow=True)

    async def hear_tool_call(self, part: MessagePart) -> None:
        if bypass := self._bypass_detector.check(part):
            if self._turn:
                self._turn.record_bypass(bypass)
            else:
                self._late_bypass = bypass

    async def _stop_if_caught(self, turn: OpenCodeTurn) -> None:
        await turn.bypass_found.wait()
        if turn.bypass and not turn.done.is_set():
            await self._stop(turn)

    async def _check_missed_calls(self, turn: OpenCodeTurn, begun: float) -> None:
        """Check calls whose end was not reported before the turn's, or lost with the event stream."""
        look = self._bypass_detector
        if turn.bypass or turn.cancelled or isinstance(turn.error, WorkerCrashed):
            return
        with suppress(ProtocolError):
            sessions = look.unfinished
            if look.missed:
                subagents = await self._client.subagents(self.id)
                sessions = {self.id, *(each.id for each in subagents)}
            for session in sessions:
                for message in await self._client.messages(session):
                    if message.info.time.created < begun * 1000:
                        continue
                    for part in message.parts:
                        if bypass := look.check(part, from_start=False):
                            turn.record_bypass(bypass)
            look.missed = False

    def _is_excused(self, call: GuardedCall) -> bool:
        """Whether the worker's rules allow a call on a server without our guard."""
        rules = self._spec.rules
        free = oversight_level(rules) == "free"
        return all(
            (free and access.permission == OUTSIDE)
            or decide_access(replace(access, reason=""), rules) == "allow"
            for access in access_for_guarded_call(call, self._workdir)
        )

    async def _end_by_rejection(self, turn: OpenCodeTurn, access: AccessRequest) -> None:
        """Stop the turn before OpenCode learns of the refusal and calls its model again."""
        turn.rejected = access
        with anyio.move_on_after(sum(ABORT_DELAYS_S)), suppress(ProtocolError):
            await self._request_stop()
            await turn.done.wait()

    async def _wait_for_guard(self) -> None:
        """Prompt no model whose tools would run unchecked.

        A server that somebody else runs has no guard of ours; there OpenCode's own rules hold.
        """
        guard = self._guard
        if guard is None or guard.is_guarded(self.directory):
            return
        with suppress(ProtocolError):
            await self._client.busy(self.directory)  # any request makes it load the directory
        if not await guard.wait_until_loaded(self.directory):
            raise guard_missing(self.directory)

    async def hear_question(self, question: PendingQuestion) -> None:
        """Ask a question; refusing one of the session's own ends the turn."""
        turn = self._turn
        with suppress(ProtocolError):
            if turn is None or turn.cancelled:
                await self._client.reply(question.id, "reject", self.directory)
                return
            own = question.session == self.id
            access, reply = await self.questions.ask_by_event(question, turn.put)
            if reply.answer != "reject" and question.tool and self._guard is None:
                self._bypass_detector.allow(question.session, question.tool.call)
            if own and reply.answer == "reject" and not reply.message:
                turn.rejected = access

    async def crash(self) -> WorkerCrashed:
        """How its process ended."""
        return await self._server.crash()

    @abstractmethod
    async def close(self) -> None:
        """Leave nothing running; does nothing if the process is gone."""

    @abstractmethod
    async def _run_turn(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        """Take the turn and close it; a failure is kept in it."""

    @abstractmethod
    async def _request_stop(self) -> None: ...

    @abstractmethod
    async def _end_of_turn(self, turn: OpenCodeTurn) -> TurnStopReason: ...

    async def restore(self, earlier: "BaseSession | None") -> None:
        """Take over what the session was prompted, granted and billed before."""
        self._last_prompt = await self._client.last_prompt(self.id)
        if self._last_prompt:
            self._instructions = ()
        if earlier:
            self.questions = earlier.questions
            self.questions.move_to(self._client)
        if self.spending and earlier and earlier.spending:
            self.spending = earlier.spending
            self.spending.move_to(self._client)
        elif self.spending:
            await self.spending.skip_earlier()

    @property
    def _model(self) -> str:
        return self._spec.provider.opencode_model

    async def _withdraw_questions(self, turn: OpenCodeTurn) -> None:
        """The process is gone, and with it whoever asked."""
        for name in self.questions.withdraw():
            await turn.put(PermissionWithdrawn(id=name, reason=PROCESS_ENDED))

    def _attached(self, prompt: Prompt) -> Sequence[Path]:
        """The prompt's files; before the first ones, the project's instructions for agents."""
        paths = (*self._instructions, *(self._spec.cwd / file for file in prompt.files))
        self._instructions = ()
        return paths

    async def _report_retry(self, activity: SessionActivity) -> None:
        if self._turn:
            wait = max(0.0, activity.next / 1000 - time.time())
            failure = f"attempt {activity.attempt} failed: {activity.message}"
            await self._turn.put(Noticed(text=f"{failure}; the next in {wait:.0f} s"))

    def _check_output(self, turn: OpenCodeTurn) -> None:
        """Raises an error if the turn brought nothing that it could end with."""
        turn.check_rejected()
        if not turn.has_output:
            raise NothingSaid(
                f"{self._model} ended its turn without a word and without a tool call"
            )


def guard_missing(directory: str) -> WorkerError:
    """Why no model was prompted there."""
    return WorkerError(
        f"OpenCode did not load go-ent's guard in {directory!r}, so its tools would run "
        "unchecked; check that this version of OpenCode loads plugins (`go-ent doctor`)"
    )


def refusal_verdict(access: AccessRequest, by: str, words: str = "") -> GuardVerdict:
    """The refusal, with the user's words on what to do instead, as the model reads it."""
    advice = f" The user says: {words}" if words else ""
    return GuardVerdict(
        allow=False,
        message=f"Permission {access.permission!r} was refused {by} for {request_text(access)!r}.{advice}",
    )
