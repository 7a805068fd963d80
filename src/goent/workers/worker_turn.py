"""Runs one turn of a worker: a prompt goes in, and exactly one outcome comes out.

Beside the prompt runs somebody who can stop it: because it was asked for, because time is up.
A session that does not stop within the grace is left behind, and the worker closes.
"""

import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.domain.errors import (
    BudgetSpent,
    EnvironmentTrouble,
    RequestError,
    Stalled,
    TurnTimeout,
    VerifyFailed,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import (
    AnyEvent,
    DriverEvent,
    EventEnvelope,
    FailedOver,
    FilesChanged,
    GuardedFilesChanged,
    Noticed,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    SessionOpened,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    Verified,
    WorkKept,
)
from goent.domain.ports import Meter, Verifier, WorkerSession, WorkerSpec
from goent.domain.settings import LimitSettings
from goent.domain.types import Evidence, Failure, PermissionAnswer, Prompt, Value, WorkerState
from goent.domain.workspace import Workspace
from goent.workers.feed import Feed
from goent.workers.folder_changes import (
    Fingerprints,
    SharedFolders,
    SharedFolderWatch,
    fingerprints,
    guarded_file_changes,
)
from goent.workers.task_intake import WorkerFolders
from goent.workers.views import WorkerView, evidence, fold_worker
from goent.workers.worker_failover import FailoverPlan, FailoverPlanner, StuckTurn


class WorkerTerms(Value, frozen=True, kw_only=True):
    """Under which bounds a worker lives."""

    verify: tuple[str, ...] = ()
    timeout_s: float | None = None
    permission_timeout_s: float = 300.0
    limits: LimitSettings = LimitSettings()
    workspace: Workspace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerServices:
    """What all workers of a project have in common.

    `spent` is told what a driver metered, and says why the turn has to end, if it has to; `over`
    is told when a worker's task has been worked on, and `ended` that its turn is in the journal.
    """

    feed: Feed
    meter: Meter
    verifier: Verifier
    slots: anyio.CapacityLimiter
    on_usage: Callable[[WorkerSpec, UsageReported], Awaitable[str]]
    release_budget: Callable[[str], Awaitable[None]]
    failover: FailoverPlanner
    worker_folders: WorkerFolders
    shared_folders: SharedFolders
    on_turn_end: Callable[[str], None]


class TurnQuestions:
    """What the worker waits to be told in its turn; true while there is something."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._open: dict[str, PermissionAsked] = {}
        self._withdrawn: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, question: PermissionAsked) -> None:
        self._open[question.id] = question

    def take(self, permission: str, option: PermissionAnswer) -> PermissionAsked:
        """The question, for whoever answers it first. Raises `RequestError` if that cannot be."""
        if reason := self._withdrawn.get(permission):
            raise RequestError(
                f"question {permission!r} of worker {self._worker!r} was withdrawn: {reason}; "
                "if it still needs the permission, it asks anew"
            )
        question = self._open.get(permission)
        if question is None:
            open_ones = ", ".join(self._open) or "none"
            raise RequestError(
                f"worker {self._worker!r} has no open question {permission!r} (open: {open_ones})"
            )
        offered = [choice.id for choice in question.options]
        if option not in offered:
            raise RequestError(f"question {permission!r} offers {', '.join(offered)}")
        return self._open.pop(permission)

    def withdraw(self, permission: str, reason: str) -> bool:
        """Whether it was still open: its answer may have been faster."""
        if self._open.pop(permission, None) is None:
            return False
        self._withdrawn[permission] = reason
        return True

    def withdraw_all(self) -> tuple[str, ...]:
        """Those that nobody can answer any more."""
        dropped = tuple(self._open)
        self._open.clear()
        return dropped


TurnOutcome = Literal["completed", "cancelled"]
StopCause = Literal["cancel", "timeout", "stall", "budget"]

EVIDENCE_EVENTS = (
    TurnStarted,
    ToolCall,
    WorkKept,
    FilesChanged,
    Verified,
)  # what evidence is told from
LIFELESS_CHECKS = 2  # looks in a row that find nothing at work before a silent turn is ended


class WorkerTurn:
    """From the moment a prompt is taken up to its outcome in the journal."""

    def __init__(
        self,
        number: int,
        prompt: Prompt,
        *,
        spec: WorkerSpec,
        terms: WorkerTerms,
        shared: WorkerServices,
    ) -> None:
        self.number = number
        self.close_reason = ""  # why the worker cannot go on after this turn
        self._original_prompt = prompt
        self._prompt = prompt  # what the session is told: the same, unless it takes over
        self._spec = spec
        self._terms = terms
        self._shared = shared
        self._session: WorkerSession | None = None
        self._has_slot = False
        self._questions = TurnQuestions(spec.id)
        self._started = False
        self._view: WorkerView | None = None  # what evidence is told from, up to now
        self._prompting = False
        self._prompted = anyio.Event()
        self._stop = anyio.Event()
        self._stopped_by: StopCause | None = None
        self._reason = ""
        self._scope = anyio.CancelScope()
        self._watchers: TaskGroup | None = None
        self._last_event_at = 0.0
        self._has_events = False
        self._calls_before = 0
        self._failovers = 0
        self._deadline: float | None = None
        self._folder_watch: SharedFolderWatch | None = (
            None  # at the folder, if it is not the worker's own
        )
        self._guarded_before: Fingerprints | None = (
            None  # files that other programs obey, before the turn
        )
        self._unsaved_workspace = terms.workspace  # until what was made in it is on its branch

    def stop(self, by: StopCause, reason: str) -> None:
        """The first who stops it gives the reason."""
        if not self._stop.is_set():
            self._stopped_by, self._reason = by, reason
            self._stop.set()

    async def answer(
        self, permission: str, option: PermissionAnswer, by: str, message: str = ""
    ) -> bool:
        """The first answer wins; a later one is told that there is no such question.

        Whether the model is told the message.
        """
        question = self._questions.take(permission, option)
        assert self._session, "only a session asks"
        try:
            passed = await self._session.answer(permission, option, message)
        except RequestError:
            self._questions.add(question)  # the driver is about to withdraw it
            raise
        answered = PermissionAnswered(id=permission, option=option, by=by, message=message)
        if self._folder_watch:
            await self._folder_watch.note_event(answered)
        await self._append(answered)
        return passed

    async def queue(self) -> None:
        """Wait until it may run, beside how many others the settings allow."""
        if not self._has_slot:
            await self._shared.slots.acquire()
            self._has_slot = True
            self._folder_watch = self._shared.shared_folders.watch(
                self._spec
            )  # while its session is opened

    async def run(self, session: WorkerSession) -> WorkerSpec | None:
        """The turn, as far as it gets here: what to open if it goes on elsewhere, None if it ended.

        Raises nothing but cancellation and our own faults.
        """
        self._session = session
        began = time.time()
        outcome = await self._outcome(session)
        await self._shared.meter.settle(self._spec.id)
        if not isinstance(outcome, WorkerError):
            if outcome == "completed":
                await self._shared.failover.record_health(self._spec, None, began)
            await self.end(outcome)
            return None
        await self._shared.failover.record_health(self._spec, outcome, began)
        if spec := await self.fail_over(outcome, session.token):
            return spec
        if isinstance(outcome, WorkerCrashed) and not outcome.session_lives:
            self.close_reason = self.close_reason or "its process ended"
        await self.end(await self._shared.failover.failure_of(outcome, self._spec))
        return None

    async def fail_over(self, error: WorkerError, token: str = "") -> WorkerSpec | None:
        """With what another provider goes on, or the same one in a new session; None if nobody."""
        if self._stop.is_set():
            return None
        with suppress(EnvironmentTrouble):  # a full disk: what is known will have to do
            await self._shared.feed.commit()
        called = self._shared.feed.view(self._spec.id).calls > self._calls_before
        stuck = StuckTurn(
            spec=self._spec,
            prompt=self._original_prompt,
            token=token,
            has_events=self._has_events or called,
            failovers=self._failovers,
        )
        if self._failovers and self._spec.resume and not token:  # the session could not be opened
            move = await self._shared.failover.plan_new_session(stuck, self._spec)
        else:
            move = await self._shared.failover.plan(stuck, error)
        if move:
            await self._continue_as(move, error)
        return move.spec if move else None

    async def _continue_as(self, move: FailoverPlan, error: WorkerError) -> None:
        before, to = self._spec.provider.name, move.spec.provider.name
        await self._start()
        for question in self._questions.withdraw_all():
            await self._append(PermissionWithdrawn(id=question, reason="its session has failed"))
        if to != before:
            self._failovers += 1
            await self._append(FailedOver(from_provider=before, to_provider=to, reason=str(error)))
        await self._append(Noticed(text=move.note))
        self._spec, self._prompt = move.spec, move.prompt
        self._scope, self._prompted = anyio.CancelScope(), anyio.Event()

    async def end(self, outcome: TurnOutcome | Failure) -> None:
        """Write down how it ended; also for a turn that could not even begin."""
        self._release_slot()
        await self._start()
        await self._report_guarded_changes()
        await self._report_shared_changes()
        failure = outcome if isinstance(outcome, Failure) else None
        state = "failed" if isinstance(outcome, Failure) else outcome
        if self._session and self._unsaved_workspace:
            keeping = self._shared.worker_folders.keep_unfinished
            for event in await keeping(
                self._unsaved_workspace, self._original_prompt.text, self._spec.id
            ):
                await self._append(event)
        await self._shared.release_budget(self._spec.id)
        await self._append(
            TurnEnded(
                turn=self.number,
                state=state,
                evidence=self._evidence(state),
                failure=failure,
                reason=self._reason,
            )
        )
        self._shared.on_turn_end(self._spec.id)

    async def _guarded_fingerprints(self) -> Fingerprints:
        own = self._terms.workspace
        origin = Path(own.origin) if own else None
        return await anyio.to_thread.run_sync(fingerprints, self._spec.cwd, origin)

    async def _report_guarded_changes(self) -> None:
        if self._guarded_before is None:
            return
        changed = guarded_file_changes(
            self._guarded_before, await self._guarded_fingerprints(), self._spec.cwd
        )
        if changed:
            await self._append(GuardedFilesChanged(changes=changed))

    async def _report_shared_changes(self) -> None:
        if self._folder_watch and (changed := await self._folder_watch.finish()):
            await self._append(changed)

    async def _outcome(self, session: WorkerSession) -> TurnOutcome | WorkerError:
        outcome: TurnOutcome | WorkerError = "cancelled"
        async with anyio.create_task_group() as beside:
            self._watchers = beside
            beside.start_soon(self._stop_when_asked, session)
            with self._scope:
                await self.queue()
                await self._start()
                await self._note_session(session)
                self._guarded_before = self._guarded_before or await self._guarded_fingerprints()
                if self._folder_watch:
                    await self._folder_watch.ready()
                beside.start_soon(self._limit_time)
                beside.start_soon(self._watch_silence, session)
                outcome = await self._work(session)
            beside.cancel_scope.cancel()
        if isinstance(outcome, WorkerCrashed) and self._stop.is_set() and not outcome.session_lives:
            self.close_reason = "its process ended"
        if self._stopped_by == "timeout":
            return TurnTimeout(self._reason)
        if self._stopped_by == "stall":
            return Stalled(self._reason)
        if self._stopped_by == "budget":
            return BudgetSpent(self._reason)
        return "cancelled" if self._stopped_by == "cancel" else outcome

    def _release_slot(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._shared.slots.release()

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            self._view = self._shared.feed.view(self._spec.id)
            self._calls_before = self._view.calls
            await self._append(TurnStarted(turn=self.number, prompt=self._original_prompt.text))

    async def _note_session(self, session: WorkerSession) -> None:
        if session.token != self._shared.feed.view(self._spec.id).token:
            await self._append(SessionOpened(token=session.token))

    async def _work(self, session: WorkerSession) -> TurnOutcome | WorkerError:
        """A failure is a value here: raised, it would tear the group that watches the turn."""
        try:
            self._prompting = True
            reason = await session.prompt(self._prompt, self._emit)
            self._prompted.set()
            if reason == "end":
                await self._save_work()
                await self._report_shared_changes()
                await self._verify()
        except WorkerError as error:
            return error
        finally:
            self._prompting = False
        return "completed" if reason == "end" else "cancelled"

    async def _emit(self, event: DriverEvent) -> None:
        assert self._watchers, "a driver speaks only during the turn"
        self._last_event_at = anyio.current_time()
        self._has_events = self._has_events or not isinstance(event, Noticed)
        if isinstance(event, PermissionAsked):
            event = replace(event, expires_at=time.time() + self._terms.permission_timeout_s)
            self._questions.add(event)
            self._watchers.start_soon(self._refuse_on_timeout, event.id)
        withdrawn = isinstance(event, PermissionWithdrawn)
        if withdrawn and not self._questions.withdraw(event.id, event.reason):
            return  # its answer was faster
        if self._folder_watch:
            await self._folder_watch.note_event(event)
        await self._append(event)
        spent = isinstance(event, UsageReported)
        if spent and (reason := await self._shared.on_usage(self._spec, event)):
            self.stop("budget", reason)

    async def _refuse_on_timeout(self, permission: str) -> None:
        await anyio.sleep(self._terms.permission_timeout_s)
        with suppress(RequestError):  # answered by somebody, or the turn is over
            await self.answer(permission, "reject", "the time limit")

    async def _limit_time(self) -> None:
        limit = self._terms.timeout_s or self._terms.limits.turn_timeout_s or math.inf
        self._deadline = self._deadline or anyio.current_time() + limit
        await anyio.sleep_until(self._deadline)
        self.stop("timeout", f"the turn took longer than its limit of {limit:g} s")

    async def _stop_when_asked(self, session: WorkerSession) -> None:
        """Ask the session to stop; if it does not within the grace, go on without it."""
        await self._stop.wait()
        if self._prompting:
            grace = self._terms.limits.cancel_grace_s
            with anyio.move_on_after(grace):
                await session.cancel()
                await self._prompted.wait()
            if not self._prompted.is_set():
                self.close_reason = (
                    f"its turn did not stop within {grace:g} s; its session was left"
                )
        self._scope.cancel()

    async def _watch_silence(self, session: WorkerSession) -> None:
        """A silent turn is looked at and told of; only one that shows no life is ended."""
        patience, lifeless = self._terms.limits.stall_s, 0
        self._last_event_at = anyio.current_time()
        while lifeless < LIFELESS_CHECKS:
            await anyio.sleep_until(self._last_event_at + patience)
            if anyio.current_time() < self._last_event_at + patience:
                continue  # it spoke meanwhile
            self._last_event_at = anyio.current_time()
            if self._questions or not self._prompting:
                continue  # its owner is silent, or it is being verified
            signs = await session.liveness()
            lifeless = 0 if signs.alive else lifeless + 1
            state = "at work" if signs.alive else "stalled"
            await self._append(Noticed(text=f"no news for {patience:g} s; {state}: {signs.detail}"))
        self.stop("stall", f"nothing was heard or seen of it for {patience * LIFELESS_CHECKS:g} s")

    async def _save_work(self) -> None:
        """Before anything is verified: what a check leaves behind is not the worker's."""
        workspace, places = self._unsaved_workspace, self._shared.worker_folders
        if workspace is None:
            return
        kept = await places.keep(workspace, self._original_prompt.text, self._spec.id)
        self._unsaved_workspace = None
        for event in kept:
            await self._append(event)

    async def _verify(self) -> None:
        if not self._terms.verify:
            return
        checks = await self._shared.verifier.verify(self._terms.verify, self._spec.cwd)
        await self._append(Verified(checks=checks))
        failed = [check for check in checks if check.exit != 0]
        if failed:
            code = "did not end in time" if failed[0].exit is None else f"exited {failed[0].exit}"
            raise VerifyFailed(f"{failed[0].command!r} {code}: {failed[0].tail[-500:]}")

    def _evidence(self, state: WorkerState) -> Evidence | None:
        assert self._view, "a turn that ends has begun"
        return evidence(replace(self._view, state=state))

    async def _append(self, event: AnyEvent) -> None:
        if self._view and isinstance(event, EVIDENCE_EVENTS):
            # The feed's own view is as old as what the disk has taken.
            at, seq = self._view.updated_at, self._view.seq
            self._view = fold_worker(
                self._view, EventEnvelope(seq=seq, at=at, worker=self._spec.id, event=event)
            )
        await self._shared.feed.append(self._spec.id, event)
