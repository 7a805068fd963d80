"""How does one prompt go? A session in its directory, and what that says afterwards.

The reply to the prompt says that the turn is over and how; it holds the last message alone, so the others are
read from the session. Whatever happens, the turn is aborted in the end, and the session deleted, unless a
conversation goes on in it.
"""

import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import (
    ModelRefused,
    PermissionDenied,
    ProtocolError,
    TurnTimeout,
    WorkerError,
)
from goent.domain.guard import GuardedCall, Verdict
from goent.domain.settings import PermissionRule
from goent.domain.types import Value
from goent.drivers.ground import Ground
from goent.drivers.opencode.client import Client, ServerUnreachable, Words
from goent.drivers.opencode.conversation import unguarded
from goent.drivers.opencode.failures import classify_fault
from goent.drivers.opencode.shapes import Message
from goent.drivers.opencode.usage import Spending
from goent.drivers.tasks import task_group
from goent.evals.ports import Attempt, Witness
from goent.evals.suites import Policy
from goent.evals.targets.opencode.accounts import Accounts, Bill
from goent.evals.targets.opencode.growing import Growing
from goent.evals.targets.opencode.hearing import Hearing
from goent.evals.targets.opencode.launches import Choice
from goent.evals.targets.opencode.logs import StreamLog
from goent.evals.targets.opencode.permits import Permits
from goent.evals.targets.opencode.reading import model_calls, traced
from goent.evals.targets.opencode.servers import Use
from goent.evals.targets.opencode.subagents import delegations
from goent.evals.targets.opencode.threads import CLEAN_UP, Thread, forget
from goent.evals.traces import Trace, WorkedBy

CONNECT = 10.0  # seconds for the event stream; without it the attempt goes on, and is looked at
PATIENCE = 60.0  # seconds for an answer that a busy server may take long for
TELL = 1.0  # seconds between two tellings of what has grown
LATE = 1.0  # seconds for an error that comes after the refusal that it brought about
LAST_EVENTS = 2.0  # seconds for what the stream tells after the reply
LAST_WORDS = 5.0  # seconds for the end of a turn in which something was refused
REFUSED = "content-filter"


class Plan(Value, frozen=True, kw_only=True):
    """All that is decided before an attempt begins. `links` are files outside that may be read.

    `by` is who works, where that is one of go-ent's providers or like one.
    """

    attempt: Attempt
    directory: Path
    words: Words
    links: tuple[Path, ...]
    rules: tuple[PermissionRule, ...]
    policy: Policy
    choice: Choice
    by: WorkedBy | None
    payer: str
    limit_s: float
    log_dir: Path | None


class Attempting:
    """One prompt on one server. `thread` is a conversation's; another one's session is deleted in the end."""

    def __init__(
        self,
        plan: Plan,
        use: Use,
        accounts: Accounts,
        witness: Witness,
        secrets: Callable[[], Collection[str]],
        thread: Thread | None = None,
    ) -> None:
        self._plan = plan
        self._use = use
        self._accounts = accounts
        self._witness = witness
        self._is_alone = thread is None
        self._thread = thread or Thread(log=StreamLog(secrets))
        self._log = self._thread.log
        self._permits = Permits(plan.rules, plan.policy, plan.links, witness)
        self._ground = Ground(plan.directory)
        self._scope = anyio.CancelScope()
        self._error: WorkerError | None = None
        self._reply: Message | None = None
        self._replied = 0.0
        self._counted = plan.choice.held  # by the gate

    @property
    def _client(self) -> Client:
        return self._use.server.client

    async def run(self, until: float) -> tuple[Trace, WorkerError | None]:
        """The trace, and why the attempt failed if it did; `until` is the end of its time."""
        plan = self._plan
        with self._accounts.charging(plan.payer) as bill:
            if not plan.choice.held:
                await self._accounts.allow_direct(plan.payer, plan.choice.provider)
            session = await self._open(until)
            await self._be_guarded()
            growing = Growing(session, self._witness, self._thread.seen)
            began, clock = datetime.now(UTC), time.monotonic()
            try:
                with self._bound(session):
                    await self._talk(session, growing, bill, until)
                    took = ((self._replied or time.monotonic()) - clock) * 1000
                    await self._stop(session)
                    trace = await self._look_back(session, growing, bill)
            finally:
                if self._is_alone:
                    self._log.end()
                self._tell(growing, bill)
                with anyio.CancelScope(shield=True):
                    await self._clean_up(session, bill)
                self._tell(growing, bill)
        error = self._verdict()
        return replace(
            trace,
            duration_ms=took,
            start_time=began.isoformat(timespec="milliseconds"),
            end_time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            log_path=str(self._log.path) if self._log.path else None,
            permissions=self._permits.decisions,
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
                    str(plan.directory), title=title, rules=plan.rules, patience=PATIENCE
                )
        except ProtocolError:
            if await self._use.server.is_ending():
                raise await self._use.server.crash() from None
            raise
        return made.id

    @contextmanager
    def _bound(self, session: str) -> Generator[None]:
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

    async def _be_guarded(self) -> None:
        """A server that somebody else runs has no guard: what it asks is all that we hear of."""
        guard, directory = self._use.server.guard, str(self._plan.directory)
        if guard and not await guard.is_loaded(directory):
            raise unguarded(directory)

    async def judge(self, call: GuardedCall) -> Verdict:
        """A call that the policy refuses ends the attempt."""
        verdict = self._permits.judge(call, self._ground)
        if self._permits.refused:
            self.refused(by_subagent=not call.is_own)
        return verdict

    async def _talk(self, session: str, growing: Growing, bill: Bill, until: float) -> None:
        plan, server = self._plan, self._use.server
        if plan.log_dir and not self._log.path:
            self._log.begin(plan.log_dir, plan.attempt, self._witness)
        hearing = Hearing(self._client, str(plan.directory), session, growing, self._permits, self)
        self._scope.deadline = until
        with self._scope:
            async with task_group() as tasks:
                with anyio.move_on_after(CONNECT):
                    await tasks.start(hearing.listen, self._log)
                tasks.start_soon(hearing.watch)
                tasks.start_soon(self._keep_telling, growing, bill)
                tasks.start_soon(self._lost, server.gone)
                try:
                    self._reply = await self._client.ask(
                        session, plan.words, patience=plan.limit_s + CLEAN_UP
                    )
                except ProtocolError as error:
                    self._error = await self._explained(error, hearing)
                self._replied = time.monotonic()
                if self._log.path and (self._reply or hearing.fault):
                    await hearing.until_over(LAST_EVENTS)
                tasks.cancel_scope.cancel()

    def refused(self, *, by_subagent: bool) -> None:
        """The turn ends by itself, and says so; one whose subagent was refused would go on."""
        grace = 0.0 if by_subagent else LAST_WORDS
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + grace)

    def failed(self, error: WorkerError) -> None:
        self._error = self._error or error
        self._scope.cancel()

    async def _lost(self, gone: anyio.Event) -> None:
        await gone.wait()
        self.failed(await self._use.server.crash())

    async def _explained(self, error: ProtocolError, hearing: Hearing) -> WorkerError:
        """Why the prompt was not answered: the server knows, or is no more."""
        if isinstance(error, ServerUnreachable):
            ending = await self._use.server.is_ending()
            return await self._use.server.crash() if ending else error
        with anyio.move_on_after(LATE):
            while hearing.fault is None:  # noqa: ASYNC110 (the stream tells it, a moment later)
                await anyio.sleep(0.05)
        return classify_fault(hearing.fault) if hearing.fault else error

    async def _stop(self, session: str) -> None:
        """A turn that is not over is ended."""
        if self._reply is None:
            with anyio.move_on_after(CLEAN_UP, shield=True), suppress(ProtocolError):
                await self._client.abort(session)

    async def _look_back(self, session: str, growing: Growing, bill: Bill) -> Trace:
        """The session's own messages and its subagents'; of a server that is gone, what it had told."""
        with suppress(ProtocolError):
            await self._recall(session, growing)
        spoken = growing.spoken
        self._thread.seen.update(each.message.info.id for each in spoken)
        calls = sum(model_calls(each.message) for each in spoken)
        if self._plan.choice.held:
            await self._accounts.settled(self._plan.payer)
            calls = bill.calls
        else:
            await self._spent(session, bill)
        return Trace(
            messages=tuple(map(traced, spoken)),
            usage=bill.tokens if bill.calls else None,
            cost_usd=bill.usd,
            llm_calls=calls,
        )

    async def _recall(self, session: str, growing: Growing) -> None:
        sessions = [session]
        for each in sessions:  # while it grows
            said = await self._client.messages(each, patience=PATIENCE)
            messages = [one for one in said if one.info.id not in self._thread.seen]
            growing.learn(each, messages)
            named = dict.fromkeys(call.session for call in delegations(messages))
            sessions += [child for child in named if child not in sessions]

    async def _spent(self, session: str, bill: Bill) -> None:
        self._counted = True
        provider, thread = self._plan.choice.provider, self._thread
        thread.spending = thread.spending or Spending(self._client, provider, session)
        report = await thread.spending.report()
        if report:
            bill.add(report)
            await self._accounts.report_direct(self._plan.payer, provider, report)

    async def _clean_up(self, session: str, bill: Bill) -> None:
        """Nothing goes on and nothing stays behind; a server that is gone has nothing left."""
        with anyio.move_on_after(CLEAN_UP), suppress(ProtocolError):
            if self._reply is None:
                await self._client.abort(session)
            if not self._counted:  # cut off before anybody looked
                await self._spent(session, bill)
        if self._is_alone:
            await forget(self._client, session)

    def _verdict(self) -> WorkerError | None:
        if no := self._permits.refused:
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
        if self._reply.info.finish == REFUSED:
            return ModelRefused(f"{self._plan.words.model or 'the model'} refused to answer")
        return None

    async def _keep_telling(self, growing: Growing, bill: Bill) -> None:
        while True:
            await anyio.sleep(TELL)
            self._tell(growing, bill)

    def _tell(self, growing: Growing, bill: Bill) -> None:
        growing.tell()
        if bill.calls:
            self._witness.spent(bill.tokens, bill.usd)
