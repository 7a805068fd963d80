"""Runs one prompt on an OpenCode server, from its session to its trace.

The event stream of the attempt's own directory goes into the log as it arrives, into the transcript,
and to the policy that decides about permissions. The reply to the prompt says that the turn is over
and how; it holds the last message alone, so the others are read from the session. Whatever happens,
the turn is aborted in the end and the session deleted, unless a conversation continues in it.
"""

import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import PermissionDenied, ProtocolError, Stalled, TurnTimeout, WorkerError
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
from goent.opencode.event_stream import (
    ALL_EVENTS,
    Connected,
    EventRouter,
    Heartbeat,
    ServerEvent,
    SessionError,
    SessionIdle,
)
from goent.opencode.opencode_turn import classify_fault, explained_fault, message_failure
from goent.opencode.server_api import (
    MessagePart,
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
    """A conversation's session: its log, and the messages and costs of earlier turns."""

    log: StreamLog
    session: str = ""
    seen: set[str] = field(default_factory=set[str])
    spending: SessionSpending | None = None


async def delete_session(client: OpenCodeClient, session: str) -> None:
    """Delete a session, if its server is still there."""
    with anyio.move_on_after(CLEAN_UP_S, shield=True), suppress(ProtocolError):
        await client.delete(session)


LOOK_INTERVAL_S = 5.0  # without news before the server is asked about the session
MAX_IDLE_LOOKS = 3  # in a row that find the session idle
MAX_BOOT_LOOKS = 12  # the same before its turn began: a busy server is slow to begin
MAX_FAILED_LOOKS = 12  # in a row without an answer


class AttemptControl(Protocol):
    """The attempt that a session belongs to."""

    def permission_refused(self, *, by_subagent: bool) -> None:
        """A refusal that fails the attempt; a subagent's does not end the turn by itself."""
        ...

    def attempt_failed(self, error: WorkerError) -> None: ...


class SessionMonitor:
    """Follows the session of one attempt and its subagents': events, permissions, liveness."""

    def __init__(
        self,
        client: OpenCodeClient,
        directory: str,
        session: str,
        transcript: LiveTranscript,
        permissions: AttemptPermissions,
        control: AttemptControl,
    ) -> None:
        self.directory = directory
        self.fault: SessionFault | None = None
        self._client = client
        self._session = session
        self._transcript = transcript
        self._permissions = permissions
        self._control = control
        self._has_news = self._began = False
        self._over = anyio.Event()
        self._answering = anyio.Lock()

    async def start(self, tasks: TaskGroup, log: StreamLog) -> None:
        """Return when the event stream is connected, or after a while: it may come up later."""

        def observe(line: str, event: ServerEvent | None) -> None:
            log.write(line.encode())
            if event:
                self._has_news = self._has_news or not isinstance(event, Connected | Heartbeat)
                self._transcript.apply(event)

        router = EventRouter(self._client, ALL_EVENTS, directory=self.directory, observe=observe)
        router.add(self._session, self)
        with anyio.move_on_after(CONNECT_TIMEOUT_S):
            await tasks.start(router.run)
        tasks.start_soon(self._watch, router)

    async def until_over(self, patience: float) -> None:
        """The reply to a prompt can be ahead of the events of its end."""
        with anyio.move_on_after(patience):
            await self._over.wait()

    async def hear(self, event: ServerEvent) -> None:
        match event:
            case SessionError(error=error):
                self.fault = explained_fault(self.fault, error)
            case SessionIdle():
                self._over.set()
            case _:
                pass

    async def hear_tool_call(self, part: MessagePart) -> None:
        # Only now: the trace has to show the call as refused.
        stopped = part.call and part.call == self._permissions.stopped_call
        if stopped and part.call_state.status == "error":
            self._control.permission_refused(by_subagent=True)

    async def hear_question(self, question: PendingQuestion) -> None:
        async with self._answering:
            with suppress(ProtocolError):  # a question that its turn has withdrawn
                await self._permissions.answer(question, self._client, self.directory)
        if self._permissions.refusal:
            self._control.permission_refused(by_subagent=question.session != self._session)

    async def _watch(self, router: EventRouter) -> None:
        """Fail the attempt when the server does not answer, or has stopped working on the session."""
        idle = failed = 0
        while True:
            await anyio.sleep(LOOK_INTERVAL_S)
            if self._has_news:
                self._has_news, self._began, idle, failed = False, True, 0, 0
                continue
            try:
                for question in await self._client.questions(self.directory):
                    if await router.owner(question.session):
                        await self.hear_question(question)
                busy = await self._client.is_busy(self._session, self.directory)
            except ProtocolError as error:
                failed += 1
                if failed >= MAX_FAILED_LOOKS:
                    self._control.attempt_failed(error)
                continue
            self._began = self._began or busy
            idle, failed = (0 if busy else idle + 1), 0
            if idle >= (MAX_IDLE_LOOKS if self._began else MAX_BOOT_LOOKS):
                reason = "OpenCode does not work on the session any more, and has not answered"
                self._control.attempt_failed(Stalled(reason))


CONNECT_TIMEOUT_S = 10.0  # for the event stream; the attempt continues without it
ANSWER_TIMEOUT_S = 60.0  # for an answer that may take a busy server long
REPORT_INTERVAL_S = 1.0
LATE_ERROR_TIMEOUT_S = 1.0  # for an error that arrives after the refusal that it caused
LAST_EVENTS_TIMEOUT_S = 2.0  # for events after the reply
REFUSAL_GRACE_S = 5.0  # for the end of a turn in which something was refused


class AttemptPlan(Value, frozen=True, kw_only=True):
    """Everything decided before an attempt begins. `links` are files outside that may be read.

    `by` is who works, if that is one of go-ent's providers or like one.
    """

    attempt: CaseAttempt
    directory: Path
    prompt: TurnInput
    links: tuple[Path, ...]
    rules: tuple[PermissionRule, ...]
    policy: AskPolicy
    choice: TargetModel
    by: TraceWorker | None
    payer: str
    limit_s: float
    log_dir: Path | None


class OpenCodeAttempt:
    """One prompt on one server; its session is deleted in the end unless `thread` continues it."""

    def __init__(
        self,
        plan: AttemptPlan,
        use: ServerUse,
        accounts: Accounts,
        observer: AttemptObserver,
        secrets: Callable[[], Collection[str]],
        thread: SessionThread | None = None,
    ) -> None:
        self._plan = plan
        self._use = use
        self._accounts = accounts
        self._observer = observer
        self._is_alone = thread is None
        self._thread = thread or SessionThread(log=StreamLog(secrets))
        self._log = self._thread.log
        self._permissions = AttemptPermissions(plan.rules, plan.policy, plan.links, observer)
        self._workdir = WorkerPaths(plan.directory)
        self._scope = anyio.CancelScope()
        self._error: WorkerError | None = None
        self._reply: ServerMessage | None = None
        self._replied = 0.0
        self._is_usage_reported = plan.choice.is_metered  # by the gate

    @property
    def _client(self) -> OpenCodeClient:
        return self._use.server.client

    async def run(self, until: float) -> tuple[Trace, WorkerError | None]:
        """The trace, and why the attempt failed if it did; `until` is its deadline."""
        plan = self._plan
        with self._accounts.charge_to(plan.payer) as bill:
            if not plan.choice.is_metered:
                await self._accounts.allow_direct(plan.payer, plan.choice.provider)
            session = await self._open(until)
            await self._check_guard()
            transcript = LiveTranscript(session, self._observer, self._thread.seen)
            began, clock = datetime.now(UTC), time.monotonic()
            try:
                with self._bind(session):
                    await self._prompt(session, transcript, bill, until)
                    took = ((self._replied or time.monotonic()) - clock) * 1000
                    await self._stop(session)
                    trace = await self._collect_trace(session, transcript, bill)
            finally:
                if self._is_alone:
                    self._log.end()
                self._report(transcript, bill)
                with anyio.CancelScope(shield=True):
                    await self._clean_up(session, bill)
                self._report(transcript, bill)
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
        """The session, made within the attempt's time: booting a directory takes a while."""
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
        """A server that somebody else runs has no guard: only its questions are judged."""
        guard, directory = self._use.server.guard, str(self._plan.directory)
        if guard and not await guard.wait_until_loaded(directory):
            raise guard_missing(directory)

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """Judge a tool call; one that the policy refuses ends the attempt."""
        verdict = self._permissions.judge(call, self._workdir)
        if self._permissions.refusal:
            self.permission_refused(by_subagent=not call.is_own)
        return verdict

    async def _prompt(
        self, session: str, transcript: LiveTranscript, bill: AttemptBill, until: float
    ) -> None:
        plan, server = self._plan, self._use.server
        if plan.log_dir and not self._log.path:
            self._log.begin(plan.log_dir, plan.attempt, self._observer)
        monitor = SessionMonitor(
            self._client, str(plan.directory), session, transcript, self._permissions, self
        )
        self._scope.deadline = until
        with self._scope:
            async with task_group() as tasks:
                await monitor.start(tasks, self._log)
                tasks.start_soon(self._report_regularly, transcript, bill)
                tasks.start_soon(self._watch_server, server.gone)
                try:
                    self._reply = await self._client.ask(
                        session, plan.prompt, patience=plan.limit_s + CLEAN_UP_S
                    )
                except ProtocolError as error:
                    self._error = await self._explain(error, monitor)
                self._replied = time.monotonic()
                if self._log.path and (self._reply or monitor.fault):
                    await monitor.until_over(LAST_EVENTS_TIMEOUT_S)
                tasks.cancel_scope.cancel()

    def permission_refused(self, *, by_subagent: bool) -> None:
        """The turn ends by itself, unless the refusal was a subagent's."""
        grace = 0.0 if by_subagent else REFUSAL_GRACE_S
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + grace)

    def attempt_failed(self, error: WorkerError) -> None:
        self._error = self._error or error
        self._scope.cancel()

    async def _watch_server(self, gone: anyio.Event) -> None:
        await gone.wait()
        self.attempt_failed(await self._use.server.crash())

    async def _explain(self, error: ProtocolError, monitor: SessionMonitor) -> WorkerError:
        """Why the prompt was not answered."""
        if isinstance(error, ServerUnreachable):
            ending = await self._use.server.is_ending()
            return await self._use.server.crash() if ending else error
        with anyio.move_on_after(LATE_ERROR_TIMEOUT_S):
            while monitor.fault is None:  # noqa: ASYNC110 (the event stream reports it a moment later)
                await anyio.sleep(0.05)
        return classify_fault(monitor.fault) if monitor.fault else error

    async def _stop(self, session: str) -> None:
        if self._reply is None:
            with anyio.move_on_after(CLEAN_UP_S, shield=True), suppress(ProtocolError):
                await self._client.abort(session)

    async def _collect_trace(
        self, session: str, transcript: LiveTranscript, bill: AttemptBill
    ) -> Trace:
        """The messages of the session and its subagents; if the server is gone, those it had reported."""
        with suppress(ProtocolError):
            await self._read_messages(session, transcript)
        spoken = transcript.messages
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

    async def _read_messages(self, session: str, transcript: LiveTranscript) -> None:
        sessions = [session]
        for each in sessions:  # while it grows
            messages = [
                message
                for message in await self._client.messages(each, patience=ANSWER_TIMEOUT_S)
                if message.info.id not in self._thread.seen
            ]
            transcript.replace_session(each, messages)
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
        """Leave nothing running and nothing behind."""
        with anyio.move_on_after(CLEAN_UP_S), suppress(ProtocolError):
            if self._reply is None:
                await self._client.abort(session)
            if not self._is_usage_reported:  # the attempt was cut off
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
        return message_failure(self._reply.info, self._plan.prompt.model or "the model")

    async def _report_regularly(self, transcript: LiveTranscript, bill: AttemptBill) -> None:
        while True:
            await anyio.sleep(REPORT_INTERVAL_S)
            self._report(transcript, bill)

    def _report(self, transcript: LiveTranscript, bill: AttemptBill) -> None:
        transcript.report_changes()
        if bill.calls:
            self._observer.usage_changed(bill.tokens, bill.usd)
