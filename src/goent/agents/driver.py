"""Runs workers on ACP agents: a process and a session for each worker, its turns and questions.

The process is the worker's own. If it ends in the middle of a turn, the turn fails; the next prompt
starts another, in which the agent reopens the session if it keeps its sessions.

Spending is an estimate: agents differ in what they count, and most report no cost. A turn without
any report has an unknown cost.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Self

import anyio
from anyio.abc import TaskGroup

from goent.acp.agent_messages import (
    AnyUpdate,
    PermissionCancelled,
    PermissionOutcome,
    PermissionRequest,
    UsageUpdate,
)
from goent.acp.client_messages import AuthMethod, TurnUsage
from goent.acp.message_parts import AcpText, ContentBlock, ResourceLink
from goent.agents.acp_turn import AgentTurn
from goent.agents.agent_connection import describe_login
from goent.agents.agent_launch import AgentLaunch, foreign_launch, own_launch, uses_own_agent
from goent.agents.agent_process import AgentProcess, closes_sessions, keeps_sessions, open_session
from goent.agents.call_permissions import access_for_call
from goent.agents.driver_context import DriverContext, check_directory
from goent.agents.open_questions import (
    OpenQuestions,
    OwnerReply,
    permission_outcome,
    with_owner_message,
)
from goent.agents.opencode_program import OPENCODE, check_agent, read_version
from goent.agents.oversight import AgentOversight, IsShared
from goent.agents.process_vitals import read_signs
from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import WorkerBusy, WorkerCrashed, WorkerError
from goent.domain.events import Noticed, PermissionWithdrawn, UsageReported
from goent.domain.ports import Emit, Gate, TurnStopReason, WorkerLiveness, WorkerSession, WorkerSpec
from goent.domain.types import PermissionAnswer, Prompt, Provider, Usage
from goent.permissions.access_rules import AccessRequest, decide_access
from goent.proc.concurrency import task_group
from goent.proc.process_table import new_mark
from goent.rpc.json_rpc import RpcError

CURRENCY = "USD"


class AgentSpending:
    """The session's cost between reports. If it was `resumed`, its earlier cost is unknown."""

    def __init__(self, provider: Provider, *, resumed: bool) -> None:
        self._provider = provider
        self._reported = None if resumed else Decimal(0)
        self._of_turn = False

    def begin(self) -> None:
        self._of_turn = False

    def record_update(self, update: UsageUpdate) -> UsageReported | None:
        """The cost since the last update, which has the session's total."""
        cost = update.cost
        if cost is None or cost.currency != CURRENCY or not 0 <= cost.amount < float("inf"):
            return None
        total = Decimal(str(cost.amount))
        before, self._reported = self._reported, total
        if before is None or total == before:
            self._of_turn = self._of_turn or before is not None
            return None
        self._of_turn = True
        # A session that continues in another process may start from 0.
        return self._report(Usage(), total - before if total > before else total)

    def end_turn(self, reported: TurnUsage | None) -> UsageReported | None:
        """The turn's tokens, and its cost unless updates reported it."""
        usage = _turn_usage(reported) if reported else Usage()
        if self._of_turn:
            return self._report(usage, Decimal(0)) if usage.total else None
        price = self._provider.price
        return self._report(usage, price.cost(usage) if price and usage.total else None)

    def _report(self, usage: Usage, cost: Decimal | None) -> UsageReported:
        return UsageReported(
            provider=self._provider.name,
            model=self._provider.model,
            usage=usage,
            cost_usd=cost,
            source="estimate",
        )


def _turn_usage(reported: TurnUsage) -> Usage:
    """As reported: some agents count cached and thought tokens within input and output, some apart."""
    return Usage(
        input=max(0, reported.input_tokens),
        output=max(0, reported.output_tokens),
        cache_read=max(0, reported.cached_read_tokens or 0),
        cache_write=max(0, reported.cached_write_tokens or 0),
        reasoning=max(0, reported.thought_tokens or 0),
    )


CLOSE_TIMEOUT_S = 5.0
CANCEL_SHARE = 0.8  # of the grace period of a cancelled turn; then its process is killed
AGENT_ENDED = "the agent that asked has ended"

StartAgent = Callable[["AgentWorkerSession"], Awaitable[AgentProcess]]


class AgentWorkerSession:
    """The port `Session`, in one process after another; `start` starts one."""

    def __init__(
        self,
        spec: WorkerSpec,
        start: StartAgent,
        *,
        direct: bool,
        grace: float,
        waiting: Callable[[], float | None],
        shared: IsShared,
    ) -> None:
        self._spec = spec
        self._start = start
        self._grace = grace
        self._waiting = waiting
        self._workdir = WorkerPaths(spec.cwd)
        self._questions = OpenQuestions(spec.asked)
        self._watch = AgentOversight(spec, self._workdir, shared) if direct else None
        self._pending_message = ""  # the owner's words with a refusal that ended the turn
        resumed = spec.resume is not None
        self._spending = AgentSpending(spec.provider, resumed=resumed) if direct else None
        self._id = spec.resume
        self._keeps = resumed
        self._process: AgentProcess | None = None
        self._login: AuthMethod | None = None  # not reported yet
        self._turn: AgentTurn | None = None
        self._arrival_scope = anyio.CancelScope()
        self._busy = False
        self._cancelled = False

    # The port

    @property
    def token(self) -> str:
        return (self._id or "") if self._keeps else ""

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        if self._busy:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        self._busy, self._cancelled = True, False
        try:
            with anyio.CancelScope() as self._arrival_scope:
                await self.enter()
                await self._prepare(emit)
            if self._cancelled or self._process is None:
                return "cancelled"
            return await self._take_turn(self._process, prompt, emit)
        finally:
            self._busy = False

    async def cancel(self) -> None:
        """Ask the turn to end, and kill a process that does not react."""
        if not self._busy:
            return
        self._cancelled = True
        self._arrival_scope.cancel()
        turn, process = self._turn, self._process
        if turn is None or process is None:
            return
        turn.cancelled = True
        await self._stop(process, turn)

    async def _stop(self, process: AgentProcess, turn: AgentTurn) -> None:
        self._questions.withdraw()
        with anyio.move_on_after(CANCEL_SHARE * self._grace):
            await process.connection.cancel(self._id or "")
            await turn.done.wait()
            return
        process.kill("was killed because it did not stop when its turn was cancelled")
        turn.prompt_scope.cancel()

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        self._questions.answer(permission_id, option, message)
        return self._watch is None

    async def liveness(self) -> WorkerLiveness:
        """Alive while it waits for the model, runs a tool or uses the CPU."""
        waited, process = self._waiting(), self._process
        if waited is not None:
            return WorkerLiveness(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if process is None:
            return WorkerLiveness(alive=True, detail="its agent is starting")
        if self._turn and (tool := self._turn.running_tool):
            return WorkerLiveness(alive=True, detail=f"its tool is running: {tool}")
        return await read_signs(process.child, process.launch.name)

    # Updates and questions of the agent

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        turn = self._turn
        if self._watch and session_id == self._id and turn is None:
            self._watch.record_update(update, None, self._questions.covers)
        if turn is None or session_id != self._id:
            return  # the history of a reopened session, or another session
        if isinstance(update, UsageUpdate) and self._spending:
            if report := self._spending.record_update(update):
                await turn.put(report)
            return
        await turn.put_update(update)
        if self._watch:
            self._watch.record_update(update, turn, self._questions.covers)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        turn = self._turn
        if turn is None or turn.cancelled or turn.bypass or request.session_id != self._id:
            return PermissionCancelled()
        call = turn.calls.merge_question(request.tool_call)
        about = access_for_call(call, self._workdir)
        reply = OwnerReply(answer="allow_always")
        for access in about:
            reply = await self._decide(access, turn)
            if reply.answer in (None, "reject"):
                return self._refusal(request, reply, turn)
        turn.permitted.add(call, about)
        return permission_outcome(request, reply.answer)

    def _refusal(
        self, request: PermissionRequest, reply: OwnerReply, turn: AgentTurn
    ) -> PermissionOutcome:
        """Only go-ent's own agent gets the owner's words: the protocol has no place for them."""
        chosen = permission_outcome(request, reply.answer)
        if self._watch:
            turn.rejection_message = reply.message
            return chosen
        return with_owner_message(chosen, reply.message)

    async def _decide(self, access: AccessRequest, turn: AgentTurn) -> OwnerReply:
        """Decide by the rules; ask the worker's owner what they leave open."""
        match decide_access(access, self._spec.rules):
            case "allow":
                return OwnerReply(answer="allow_always")
            case "deny":
                turn.rejected = access
                what = ", ".join(access.patterns)
                await turn.put(Noticed(text=f"refused by a rule: {access.permission} {what}"[:300]))
                return OwnerReply(answer="reject")
            case _:
                reply = await self._questions.ask(access, turn.put)
        if reply.answer == "reject":
            turn.rejected = access
        return reply

    # Its processes

    async def enter(self) -> None:
        """Open the session in a process, unless its process is alive."""
        if self._process and not self._process.lost:
            return
        await self._leave()
        process = await self._start(self)
        try:
            self._keeps = keeps_sessions(process.initialize_result.agent_capabilities)
            self._id, opened, self._login = await open_session(process, self._spec, self._id)
            if self._watch:
                self._watch.opened(opened)
        except WorkerCrashed:
            raise await process.crash(session_lives=bool(self.token)) from None
        except RpcError as error:
            await process.close()
            raise process.refusal(error, opening=True) from error
        except BaseException:
            await process.close()
            raise
        self._process = process

    async def close(self) -> None:
        """Leave nothing running; the agent may keep the session."""
        process = self._process
        if (
            process
            and not process.lost
            and closes_sessions(process.initialize_result.agent_capabilities)
        ):
            with anyio.move_on_after(CLOSE_TIMEOUT_S), suppress(WorkerError, RpcError):
                await process.connection.close_session(self._id or "")
        await self._leave()

    async def _leave(self) -> None:
        process, self._process = self._process, None
        if process:
            await process.close()

    # A turn

    async def _prepare(self, emit: Emit) -> None:
        login, self._login = self._login, None
        if login and self._process:
            name = self._process.launch.name
            text = f"{name} required a login, and go-ent chose {describe_login(login)}"
            await emit(Noticed(text=text))
        if self._watch and self._process:
            try:
                await self._watch.begin(self._process, self._id or "", emit)
            except WorkerCrashed:
                raise await self._process.crash(session_lives=bool(self.token)) from None

    async def _take_turn(self, process: AgentProcess, prompt: Prompt, emit: Emit) -> TurnStopReason:
        turn = self._turn = AgentTurn(self._spec.cwd)
        if self._spending:
            self._spending.begin()
        try:
            async with task_group() as tasks:
                tasks.start_soon(self._take, process, turn, prompt)
                tasks.start_soon(self._stop_if_caught, process, turn)
                await turn.forward(emit)
        finally:
            turn.close()
            self._turn = None
            self._questions.withdraw()
        if self._spending and turn.has_output and (report := self._spending.end_turn(turn.usage)):
            await emit(report)
        changes = await self._watch.end(turn.permitted, emit) if self._watch else None
        if bypass := turn.bypass or changes:
            raise bypass
        await self._deliver_rejection_message(turn, process, emit)
        return await self._verdict(process, turn)

    async def _stop_if_caught(self, process: AgentProcess, turn: AgentTurn) -> None:
        await turn.bypass_found.wait()
        if turn.bypass and not turn.done.is_set():
            await self._stop(process, turn)

    async def _take(self, process: AgentProcess, turn: AgentTurn, prompt: Prompt) -> None:
        try:
            await turn.run_prompt(
                lambda: process.connection.prompt(self._id or "", self._blocks(prompt))
            )
            if isinstance(turn.error, WorkerCrashed):
                for name in self._questions.withdraw():
                    await turn.put(PermissionWithdrawn(id=name, reason=AGENT_ENDED))
        finally:
            turn.close()

    def _blocks(self, prompt: Prompt) -> Sequence[ContentBlock]:
        paths = [self._spec.cwd / file for file in prompt.files]
        links = [ResourceLink(uri=path.as_uri(), name=path.name) for path in paths]
        message, self._pending_message = self._pending_message, ""
        before = f"The user rejected the last call: {message}\n" if message else ""
        return [AcpText(text=before + prompt.text), *links]

    async def _deliver_rejection_message(
        self, turn: AgentTurn, process: AgentProcess, emit: Emit
    ) -> None:
        """Keep the owner's words with a refusal for the next prompt, if the refusal ended the turn."""
        if not turn.rejection_message:
            return
        if turn.stop_reason == "cancelled" and turn.rejected and not turn.cancelled:
            self._pending_message = turn.rejection_message
        else:
            text = f"{process.launch.name} got the refusal without your message: repeat it in the next prompt"
            await emit(Noticed(text=text))

    async def _verdict(self, process: AgentProcess, turn: AgentTurn) -> TurnStopReason:
        if turn.cancelled:
            return "cancelled"
        match turn.error:
            case WorkerCrashed() as crash:
                raise await process.crash(session_lives=bool(self.token)) from crash
            case RpcError() as refusal:
                raise process.refusal(refusal) from refusal
            case WorkerError() as error:
                raise error
            case None:
                return turn.verdict(process.launch.name)


def _never_shared(_worker: str, _since: float) -> bool:
    return False


class AgentDriver:
    """The port `Driver`, by ACP agents. It exists only inside `running`."""

    def __init__(
        self, tasks: TaskGroup, gate: Gate, context: DriverContext, owner: str, shared: IsShared
    ) -> None:
        self._tasks = tasks
        self._gate = gate
        self._context = context
        self._owner = owner
        self._shared = shared

    @classmethod
    @asynccontextmanager
    async def running(
        cls, context: DriverContext, gate: Gate, *, owner: str, shared: IsShared = _never_shared
    ) -> AsyncGenerator[Self]:
        """On leaving, every agent and everything it started is ended.

        `shared` tells whether others have worked in a worker's directory since a time.
        """
        async with task_group() as tasks:
            try:
                yield cls(tasks, gate, context, owner, shared)
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one worker, whose agent ends with it."""
        check_directory(spec)
        await self._context.sandbox.level()
        settings = self._context.settings()
        own = uses_own_agent(spec.provider, settings)
        token = self._gate.issue_token()
        # The token is this worker's alone, so the session's own name does not access.
        self._gate.bind(token=token, session=spec.id, worker=spec.id)

        async def start(client: AgentWorkerSession) -> AgentProcess:
            return await self._start(self._launch(spec, token, own=own), client)

        session = AgentWorkerSession(
            spec,
            start,
            direct=not own,
            grace=settings.limits.cancel_grace_s,
            waiting=lambda: self._gate.waiting_s(spec.id),
            shared=self._shared,
        )
        try:
            await session.enter()
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()
            self._gate.unbind(spec.id)
            self._gate.revoke_token(token)

    async def _start(self, launch: AgentLaunch, client: AgentWorkerSession) -> AgentProcess:
        program = Path(launch.command[0])
        if program.name == OPENCODE:
            version = await read_version(program, launch.env, patience=launch.start_timeout)
            check_agent(version, launch.name)
        process = AgentProcess(launch, client, new_mark(self._owner))
        await self._tasks.start(process.run)
        return process

    def _launch(self, spec: WorkerSpec, token: str, *, own: bool) -> AgentLaunch:
        if own:
            return own_launch(spec, self._context, self._gate, token)
        return foreign_launch(spec, self._context)
