"""Runs one prompt on an OpenCode server, from its session to its trace.

The stream of the attempt's own directory goes into the log as it comes, and what matters of it to the
messages told so far and to whoever decides about permissions. When it breaks it is opened again; what was
asked meanwhile is looked up.

The reply to the prompt says that the turn is over and how; it holds the last message alone, so the others are
read from the session. Whatever happens, the turn is aborted in the end, and the session deleted, unless a
conversation goes on in it.
"""

import time
from collections.abc import Callable, Collection, Generator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import (
    ModelRefused,
    PermissionDenied,
    ProtocolError,
    Stalled,
    TurnTimeout,
    WorkerError,
)
from goent.domain.ports import GuardedCall, GuardVerdict
from goent.domain.settings import PermissionRule
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt
from goent.evals.suites import AskPolicy
from goent.evals.targets.opencode_target_permissions import AttemptPermissions
from goent.evals.targets.opencode_target_servers import (
    Accounts,
    AttemptBill,
    ServerUse,
    TargetModel,
)
from goent.evals.targets.opencode_transcript import (
    LiveTranscript,
    StreamLog,
    count_model_calls,
    delegations,
    traced_message,
)
from goent.evals.traces import Trace, TraceWorker
from goent.opencode.call_guard import read_call_state
from goent.opencode.event_stream import (
    ALL_EVENTS,
    Connected,
    Heartbeat,
    PartUpdated,
    PermissionQuestion,
    ServerEvent,
    SessionCreated,
    SessionError,
    SessionIdle,
    listen_in_directory,
)
from goent.opencode.opencode_turn import classify_fault
from goent.opencode.server_api import (
    OpenCodeClient,
    PendingQuestion,
    ServerMessage,
    ServerUnreachable,
    SessionFault,
    TurnInput,
)
from goent.opencode.session import SessionSpending, guard_missing
from goent.proc.concurrency import task_group

CLEAN_UP_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class SessionThread:
    """The session, which of its messages were read and what of it was paid already, and its log."""

    log: StreamLog
    session: str = ""
    seen: set[str] = field(default_factory=set[str])
    spending: SessionSpending | None = None


async def delete_session(client: OpenCodeClient, session: str) -> None:
    """Delete a session; of a server that is gone there is nothing to delete."""
    with anyio.move_on_after(CLEAN_UP_S, shield=True), suppress(ProtocolError):
        await client.delete(session)


RECONNECT_S = 0.2
LOOK_INTERVAL_S = 5.0  # seconds without news before the server is asked how it stands
MOST_IDLE_LOOKS = 3  # looks in a row at a session that nobody works on any more
MOST_BOOT_LOOKS = 12  # the same before anybody has: a busy server takes its time to begin
MOST_FAILED_LOOKS = 12  # looks in a row that brought no answer


class AttemptControl(Protocol):
    """Whose attempt it is."""

    def permission_refused(self, *, by_subagent: bool) -> None:
        """A permission that fails the attempt; a subagent's no does not end the turn by itself."""
        ...

    def attempt_failed(self, error: WorkerError) -> None: ...


class SessionMonitor:
    """The ear of one attempt, for one session and its subagents'."""

    def __init__(
        self,
        client: OpenCodeClient,
        directory: str,
        session: str,
        growing: LiveTranscript,
        permits: AttemptPermissions,
        concerned: AttemptControl,
    ) -> None:
        self.fault: SessionFault | None = None
        self._client = client
        self._directory = directory
        self._session = session
        self._growing = growing
        self._permits = permits
        self._concerned = concerned
        self._sessions = {session}
        self._has_news = self._began = False
        self._over = anyio.Event()

    async def listen(self, log: StreamLog, *, task_status: TaskStatus[None]) -> None:
        """For as long as the task lives; started when the stream is up."""
        up = False
        while True:
            with suppress(ProtocolError):
                async with aclosing(
                    listen_in_directory(self._client, self._directory, ALL_EVENTS)
                ) as events:
                    async for line, told in events:
                        log.write(line.encode())
                        if told:
                            await self._apply(told)
                        if isinstance(told, Connected) and not up:
                            up = True
                            task_status.started()
            await anyio.sleep(RECONNECT_S)

    async def until_over(self, patience: float) -> None:
        """The reply to a prompt can be ahead of what the stream tells of its end."""
        with anyio.move_on_after(patience):
            await self._over.wait()

    async def watch(self) -> None:
        """For as long as the task lives, or until nobody works on the session any more."""
        idle = deaf = 0
        while True:
            await anyio.sleep(LOOK_INTERVAL_S)
            if self._has_news:
                self._has_news, self._began, idle, deaf = False, True, 0, 0
                continue
            try:
                await self._answer_open_questions()
                at_work = self._session in await self._client.busy(self._directory)
            except ProtocolError as error:
                deaf += 1
                if deaf >= MOST_FAILED_LOOKS:
                    self._concerned.attempt_failed(error)
                continue
            self._began = self._began or at_work
            idle, deaf = (0 if at_work else idle + 1), 0
            if idle >= (MOST_IDLE_LOOKS if self._began else MOST_BOOT_LOOKS):
                why = "OpenCode works on the session no more, and has not answered"
                self._concerned.attempt_failed(Stalled(why))

    async def _apply(self, told: ServerEvent) -> None:
        self._has_news = self._has_news or not isinstance(told, Connected | Heartbeat)
        self._growing.apply(told)
        match told:
            case Connected():
                with suppress(ProtocolError):
                    await self._answer_open_questions()
            case SessionCreated(info=info) if info.parent in self._sessions:
                self._sessions.add(info.id)
            case SessionError(error=error, session=self._session):
                if self.fault is None or not self.fault.data.message:
                    self.fault = error  # the next one may be the same with its stack
            case SessionIdle(session=self._session):
                self._over.set()
            case PermissionQuestion():
                await self._answer(told)
            case PartUpdated(part=part) if part.call and part.call == self._permits.stopped_call:
                if read_call_state(part).status == "error":  # as it is to be read in the trace
                    self._concerned.permission_refused(by_subagent=True)
            case _:
                pass

    async def _answer_open_questions(self) -> None:
        for question in await self._client.questions(self._directory):
            await self._answer(question)

    async def _answer(self, question: PendingQuestion) -> None:
        if not await self._is_ours(question.session):
            return
        with suppress(ProtocolError):  # a question that its turn has taken back
            await self._permits.answer(question, self._client, self._directory)
        if self._permits.refusal:
            self._concerned.permission_refused(by_subagent=question.session != self._session)

    async def _is_ours(self, session: str) -> bool:
        if session not in self._sessions:
            with suppress(ProtocolError):
                if (await self._client.session(session)).parent in self._sessions:
                    self._sessions.add(session)
        return session in self._sessions


CONNECT_TIMEOUT_S = (
    10.0  # seconds for the event stream; without it the attempt goes on, and is looked at
)
ANSWER_TIMEOUT_S = 60.0  # seconds for an answer that a busy server may take long for
REPORT_INTERVAL_S = 1.0  # seconds between two tellings of what has grown
LATE_ERROR_S = 1.0  # seconds for an error that comes after the refusal that it brought about
LAST_EVENTS_S = 2.0  # seconds for what the stream tells after the reply
REFUSAL_GRACE_S = 5.0  # seconds for the end of a turn in which something was refused
REFUSED_FINISH = "content-filter"


class AttemptPlan(Value, frozen=True, kw_only=True):
    """All that is decided before an attempt begins. `links` are files outside that may be read.

    `by` is who works, where that is one of go-ent's providers or like one.
    """

    attempt: CaseAttempt
    directory: Path
    words: TurnInput
    links: tuple[Path, ...]
    rules: tuple[PermissionRule, ...]
    policy: AskPolicy
    choice: TargetModel
    by: TraceWorker | None
    payer: str
    limit_s: float
    log_dir: Path | None


class OpenCodeAttempt:
    """One prompt on one server. `thread` is a conversation's; another one's session is deleted in the end."""

    def __init__(
        self,
        plan: AttemptPlan,
        use: ServerUse,
        accounts: Accounts,
        witness: AttemptObserver,
        secrets: Callable[[], Collection[str]],
        thread: SessionThread | None = None,
    ) -> None:
        self._plan = plan
        self._use = use
        self._accounts = accounts
        self._witness = witness
        self._is_alone = thread is None
        self._thread = thread or SessionThread(log=StreamLog(secrets))
        self._log = self._thread.log
        self._permissions = AttemptPermissions(plan.rules, plan.policy, plan.links, witness)
        self._ground = WorkerPaths(plan.directory)
        self._scope = anyio.CancelScope()
        self._error: WorkerError | None = None
        self._reply: ServerMessage | None = None
        self._replied = 0.0
        self._is_usage_reported = plan.choice.is_metered  # by the gate

    @property
    def _client(self) -> OpenCodeClient:
        return self._use.server.client

    async def run(self, until: float) -> tuple[Trace, WorkerError | None]:
        """The trace, and why the attempt failed if it did; `until` is the end of its time."""
        plan = self._plan
        with self._accounts.charge_to(plan.payer) as bill:
            if not plan.choice.is_metered:
                await self._accounts.allow_direct(plan.payer, plan.choice.provider)
            session = await self._open(until)
            await self._check_guard()
            growing = LiveTranscript(session, self._witness, self._thread.seen)
            began, clock = datetime.now(UTC), time.monotonic()
            try:
                with self._bind(session):
                    await self._prompt(session, growing, bill, until)
                    took = ((self._replied or time.monotonic()) - clock) * 1000
                    await self._stop(session)
                    trace = await self._collect_trace(session, growing, bill)
            finally:
                if self._is_alone:
                    self._log.end()
                self._report(growing, bill)
                with anyio.CancelScope(shield=True):
                    await self._clean_up(session, bill)
                self._report(growing, bill)
        error = self._verdict()
        return replace(
            trace,
            duration_ms=took,
            start_time=began.isoformat(timespec="milliseconds"),
            end_time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            log_path=str(self._log.path) if self._log.path else None,
            permissions=self._permissions.decisions,
            by=plan.by,
            partial=error is not None,
        ), error

    @property
    def worker(self) -> str:
        return self._plan.payer

    @property
    def directory(self) -> str:
        return str(self._plan.directory)

    async def _open(self, until: float) -> str:
        """Making a directory ready takes the server a while, and all its strength."""
        if self._thread.session:
            return self._thread.session
        with anyio.CancelScope(deadline=until):
            self._thread.session = await self._create()
            return self._thread.session
        raise TurnTimeout(f"OpenCode had made no session after {self._plan.limit_s:g} s")

    async def _create(self) -> str:
        plan = self._plan
        title = f"{plan.attempt.case.id} ({plan.payer})"
        try:
            async with self._use.booting:
                made = await self._client.create(
                    str(plan.directory), title=title, rules=plan.rules, patience=ANSWER_TIMEOUT_S
                )
        except ProtocolError:
            if await self._use.server.is_ending():
                raise await self._use.server.crash() from None
            raise
        return made.id

    @contextmanager
    def _bind(self, session: str) -> Generator[None]:
        gate = self._accounts.gate
        gate.bind(token=self._use.server.token, session=session, worker=self._plan.payer)
        guard = self._use.server.guard
        if guard:
            guard.add(session, self)
        try:
            yield
        finally:
            gate.unbind(session)
            if guard:
                guard.remove(session)

    async def _check_guard(self) -> None:
        """A server that somebody else runs has no guard: what it asks is all that we hear of."""
        guard, directory = self._use.server.guard, str(self._plan.directory)
        if guard and not await guard.wait_until_loaded(directory):
            raise guard_missing(directory)

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """A call that the policy refuses ends the attempt."""
        verdict = self._permissions.judge(call, self._ground)
        if self._permissions.refusal:
            self.permission_refused(by_subagent=not call.is_own)
        return verdict

    async def _prompt(
        self, session: str, growing: LiveTranscript, bill: AttemptBill, until: float
    ) -> None:
        plan, server = self._plan, self._use.server
        if plan.log_dir and not self._log.path:
            self._log.begin(plan.log_dir, plan.attempt, self._witness)
        hearing = SessionMonitor(
            self._client, str(plan.directory), session, growing, self._permissions, self
        )
        self._scope.deadline = until
        with self._scope:
            async with task_group() as tasks:
                with anyio.move_on_after(CONNECT_TIMEOUT_S):
                    await tasks.start(hearing.listen, self._log)
                tasks.start_soon(hearing.watch)
                tasks.start_soon(self._report_regularly, growing, bill)
                tasks.start_soon(self._watch_server, server.gone)
                try:
                    self._reply = await self._client.ask(
                        session, plan.words, patience=plan.limit_s + CLEAN_UP_S
                    )
                except ProtocolError as error:
                    self._error = await self._explain(error, hearing)
                self._replied = time.monotonic()
                if self._log.path and (self._reply or hearing.fault):
                    await hearing.until_over(LAST_EVENTS_S)
                tasks.cancel_scope.cancel()

    def permission_refused(self, *, by_subagent: bool) -> None:
        """The turn ends by itself, and says so; one whose subagent was refused would go on."""
        grace = 0.0 if by_subagent else REFUSAL_GRACE_S
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + grace)

    def attempt_failed(self, error: WorkerError) -> None:
        self._error = self._error or error
        self._scope.cancel()

    async def _watch_server(self, gone: anyio.Event) -> None:
        await gone.wait()
        self.attempt_failed(await self._use.server.crash())

    async def _explain(self, error: ProtocolError, hearing: SessionMonitor) -> WorkerError:
        """Why the prompt was not answered: the server knows, or is no more."""
        if isinstance(error, ServerUnreachable):
            ending = await self._use.server.is_ending()
            return await self._use.server.crash() if ending else error
        with anyio.move_on_after(LATE_ERROR_S):
            while hearing.fault is None:  # noqa: ASYNC110 (the stream tells it, a moment later)
                await anyio.sleep(0.05)
        return classify_fault(hearing.fault) if hearing.fault else error

    async def _stop(self, session: str) -> None:
        """A turn that is not over is ended."""
        if self._reply is None:
            with anyio.move_on_after(CLEAN_UP_S, shield=True), suppress(ProtocolError):
                await self._client.abort(session)

    async def _collect_trace(
        self, session: str, growing: LiveTranscript, bill: AttemptBill
    ) -> Trace:
        """The session's own messages and its subagents'; of a server that is gone, what it had told."""
        with suppress(ProtocolError):
            await self._read_messages(session, growing)
        spoken = growing.messages
        self._thread.seen.update(each.message.info.id for each in spoken)
        calls = sum(count_model_calls(each.message) for each in spoken)
        if self._plan.choice.is_metered:
            await self._accounts.wait_settled(self._plan.payer)
            calls = bill.calls
        else:
            await self._report_usage(session, bill)
        return Trace(
            messages=tuple(map(traced_message, spoken)),
            usage=bill.tokens if bill.calls else None,
            cost_usd=bill.usd,
            llm_calls=calls,
        )

    async def _read_messages(self, session: str, growing: LiveTranscript) -> None:
        sessions = [session]
        for each in sessions:  # while it grows
            said = await self._client.messages(each, patience=ANSWER_TIMEOUT_S)
            messages = [one for one in said if one.info.id not in self._thread.seen]
            growing.replace_session(each, messages)
            named = dict.fromkeys(call.session for call in delegations(messages))
            sessions += [child for child in named if child not in sessions]

    async def _report_usage(self, session: str, bill: AttemptBill) -> None:
        self._is_usage_reported = True
        provider, thread = self._plan.choice.provider, self._thread
        thread.spending = thread.spending or SessionSpending(self._client, provider, session)
        report = await thread.spending.report()
        if report:
            bill.add(report)
            await self._accounts.report_direct(self._plan.payer, provider, report)

    async def _clean_up(self, session: str, bill: AttemptBill) -> None:
        """Nothing goes on and nothing stays behind; a server that is gone has nothing left."""
        with anyio.move_on_after(CLEAN_UP_S), suppress(ProtocolError):
            if self._reply is None:
                await self._client.abort(session)
            if not self._is_usage_reported:  # cut off before anybody looked
                await self._report_usage(session, bill)
        if self._is_alone:
            await delete_session(self._client, session)

    def _verdict(self) -> WorkerError | None:
        if no := self._permissions.refusal:
            what = ", ".join(no.patterns) or "*"
            return PermissionDenied(
                f"permission {no.permission!r} was refused for {what!r}: allow it in the target, with "
                f"`permission: {{{no.permission}: allow}}`, or set `permission_policy` to once or always"
            )
        if self._error:
            return self._error
        if self._reply is None:
            return TurnTimeout(f"OpenCode was not done after {self._plan.limit_s:g} s")
        if fault := self._reply.info.error:
            return classify_fault(fault)
        if self._reply.info.finish == REFUSED_FINISH:
            return ModelRefused(f"{self._plan.words.model or 'the model'} refused to answer")
        return None

    async def _report_regularly(self, growing: LiveTranscript, bill: AttemptBill) -> None:
        while True:
            await anyio.sleep(REPORT_INTERVAL_S)
            self._report(growing, bill)

    def _report(self, growing: LiveTranscript, bill: AttemptBill) -> None:
        growing.report_changes()
        if bill.calls:
            self._witness.usage_changed(bill.tokens, bill.usd)
