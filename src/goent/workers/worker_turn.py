"""Runs one turn of a worker: a prompt goes in, and exactly one outcome comes out.

Watchers run beside the prompt and can stop it: on request, on a time limit, on silence, on a spent
budget. A session that does not stop within the grace period is abandoned, and the worker closes.
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
from goent.domain.types import Failure, PermissionAnswer, Prompt, Value
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

TurnOutcome = Literal["completed", "cancelled"]
StopCause = Literal["cancel", "timeout", "stall", "budget"]

EVIDENCE_EVENTS = (TurnStarted, ToolCall, WorkKept, FilesChanged, Verified)
LIFELESS_CHECKS = 2  # consecutive checks without a sign of life that end a silent turn
PROCESS_ENDED = "its process ended"


class WorkerTerms(Value, frozen=True, kw_only=True):
    """The limits and checks that a worker runs under."""

    verify: tuple[str, ...] = ()
    timeout_s: float | None = None
    permission_timeout_s: float = 300.0
    limits: LimitSettings = LimitSettings()
    workspace: Workspace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerServices:
    """What all workers of a project share.

    `on_usage` records what a driver metered, and returns why the turn must end, if it must.
    `release_budget` is called when a worker's task is over, `on_turn_end` once the turn's end is in
    the journal.
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


class WorkerTurn:
    """One turn, from taking the prompt to its outcome in the journal."""

    def __init__(
        self,
        number: int,
        prompt: Prompt,
        *,
        spec: WorkerSpec,
        terms: WorkerTerms,
        services: WorkerServices,
    ) -> None:
        self.number = number
        self.close_reason = ""  # why the worker must close after this turn
        self._original_prompt = prompt
        self._prompt = prompt  # what the session gets; after a failover, a brief
        self._spec = spec
        self._terms = terms
        self._services = services
        self._session: WorkerSession | None = None
        self._has_slot = False
        self._questions = _OpenQuestions(spec.id)
        self._view: WorkerView | None = None  # from the turn's start; ahead of the feed's own view
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
        self._folder_watch: SharedFolderWatch | None = None  # None in a folder of the worker's own
        self._guarded_before: Fingerprints | None = None
        self._unsaved_workspace = terms.workspace  # until its work is on the branch

    # Commands, from other tasks

    def stop(self, by: StopCause, reason: str) -> None:
        """Stop the turn. The first caller's reason counts."""
        if not self._stop.is_set():
            self._stopped_by, self._reason = by, reason
            self._stop.set()

    async def answer(
        self, permission: str, option: PermissionAnswer, by: str, message: str = ""
    ) -> bool:
        """Answer a permission question; whether the model gets the message. The first answer wins."""
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

    # From the worker's own task

    async def wait_for_slot(self) -> None:
        """Wait while as many workers run as the settings allow."""
        if not self._has_slot:
            await self._services.slots.acquire()
            self._has_slot = True
            # The first look at the files happens while the session opens.
            self._folder_watch = self._services.shared_folders.watch(self._spec)

    async def run(self, session: WorkerSession) -> WorkerSpec | None:
        """Run the turn in the session. Returns the spec to continue with elsewhere; None if it ended.

        Raises only cancellation and internal errors.
        """
        self._session = session
        began = time.time()
        outcome = await self._outcome(session)
        failover = self._services.failover
        await self._services.meter.settle(self._spec.id)
        if not isinstance(outcome, WorkerError):
            if outcome == "completed":
                await failover.record_health(self._spec, None, began)
            await self.end(outcome)
            return None
        await failover.record_health(self._spec, outcome, began)
        if spec := await self.fail_over(outcome, session.token):
            return spec
        if isinstance(outcome, WorkerCrashed) and not outcome.session_lives:
            self.close_reason = self.close_reason or PROCESS_ENDED
        await self.end(await failover.failure_of(outcome, self._spec))
        return None

    async def fail_over(self, error: WorkerError, token: str = "") -> WorkerSpec | None:
        """Plan a failover. Returns the spec to continue with; None if nobody can take over."""
        if self._stop.is_set():
            return None
        feed = self._services.feed
        with suppress(EnvironmentTrouble):  # a full disk: decide on what is stored
            await feed.commit()
        stuck = StuckTurn(
            spec=self._spec,
            prompt=self._original_prompt,
            token=token,
            has_events=self._has_events or feed.view(self._spec.id).calls > self._calls_before,
            failovers=self._failovers,
        )
        if self._failovers and self._spec.resume and not token:  # the session could not be opened
            plan = await self._services.failover.plan_new_session(stuck, self._spec)
        else:
            plan = await self._services.failover.plan(stuck, error)
        if plan is None:
            return None
        await self._continue_with(plan, error)
        return plan.spec

    async def _continue_with(self, plan: FailoverPlan, error: WorkerError) -> None:
        before, to = self._spec.provider.name, plan.spec.provider.name
        await self._start()
        for question in self._questions.withdraw_all():
            await self._append(PermissionWithdrawn(id=question, reason="its session has failed"))
        if to != before:
            self._failovers += 1
            await self._append(FailedOver(from_provider=before, to_provider=to, reason=str(error)))
        await self._append(Noticed(text=plan.note))
        self._spec, self._prompt = plan.spec, plan.prompt
        self._scope, self._prompted = anyio.CancelScope(), anyio.Event()

    async def end(self, outcome: TurnOutcome | Failure) -> None:
        """Record the outcome, also of a turn that could not begin."""
        if self._has_slot:
            self._has_slot = False
            self._services.slots.release()
        await self._start()
        await self._report_guarded_changes()
        await self._report_shared_changes()
        failure = outcome if isinstance(outcome, Failure) else None
        state = "failed" if isinstance(outcome, Failure) else outcome
        if self._session and self._unsaved_workspace:
            for event in await self._services.worker_folders.keep_unfinished(
                self._unsaved_workspace, self._original_prompt.text, self._spec.id
            ):
                await self._append(event)
        await self._services.release_budget(self._spec.id)
        assert self._view, "set by the start"
        await self._append(
            TurnEnded(
                turn=self.number,
                state=state,
                evidence=evidence(replace(self._view, state=state)),
                failure=failure,
                reason=self._reason,
            )
        )
        self._services.on_turn_end(self._spec.id)

    async def _start(self) -> None:
        if self._view is None:
            self._view = self._services.feed.view(self._spec.id)
            self._calls_before = self._view.calls
            await self._append(TurnStarted(turn=self.number, prompt=self._original_prompt.text))

    async def _outcome(self, session: WorkerSession) -> TurnOutcome | WorkerError:
        outcome: TurnOutcome | WorkerError = "cancelled"
        async with anyio.create_task_group() as watchers:
            self._watchers = watchers
            watchers.start_soon(self._stop_on_request, session)
            with self._scope:
                await self.wait_for_slot()
                await self._start()
                if session.token != self._services.feed.view(self._spec.id).token:
                    await self._append(SessionOpened(token=session.token))
                self._guarded_before = self._guarded_before or await self._guarded_fingerprints()
                if self._folder_watch:
                    await self._folder_watch.ready()
                watchers.start_soon(self._limit_time)
                watchers.start_soon(self._watch_silence, session)
                outcome = await self._work(session)
            watchers.cancel_scope.cancel()
        if isinstance(outcome, WorkerCrashed) and self._stop.is_set() and not outcome.session_lives:
            self.close_reason = PROCESS_ENDED
        match self._stopped_by:
            case "timeout":
                return TurnTimeout(self._reason)
            case "stall":
                return Stalled(self._reason)
            case "budget":
                return BudgetSpent(self._reason)
            case "cancel":
                return "cancelled"
            case None:
                return outcome

    async def _work(self, session: WorkerSession) -> TurnOutcome | WorkerError:
        """Prompt, save and verify. Returns a failure: raised, it would end the watchers' group."""
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
        reported = isinstance(event, UsageReported)
        if reported and (reason := await self._services.on_usage(self._spec, event)):
            self.stop("budget", reason)

    async def _save_work(self) -> None:
        """Commit the work before it is verified: what a check leaves behind is not the worker's."""
        if workspace := self._unsaved_workspace:
            kept = await self._services.worker_folders.keep(
                workspace, self._original_prompt.text, self._spec.id
            )
            self._unsaved_workspace = None
            for event in kept:
                await self._append(event)

    async def _verify(self) -> None:
        if not self._terms.verify:
            return
        checks = await self._services.verifier.verify(self._terms.verify, self._spec.cwd)
        await self._append(Verified(checks=checks))
        if failed := next((check for check in checks if check.exit != 0), None):
            how = "timed out" if failed.exit is None else f"exited {failed.exit}"
            raise VerifyFailed(f"{failed.command!r} {how}: {failed.tail[-500:]}")

    # Watchers

    async def _stop_on_request(self, session: WorkerSession) -> None:
        """Cancel the session's prompt; if it does not end within the grace period, abandon it."""
        await self._stop.wait()
        if self._prompting:
            grace = self._terms.limits.cancel_grace_s
            with anyio.move_on_after(grace):
                await session.cancel()
                await self._prompted.wait()
            if not self._prompted.is_set():
                self.close_reason = (
                    f"its turn did not stop within {grace:g} s, so its session was abandoned"
                )
        self._scope.cancel()

    async def _limit_time(self) -> None:
        limit = self._terms.timeout_s or self._terms.limits.turn_timeout_s or math.inf
        self._deadline = self._deadline or anyio.current_time() + limit
        await anyio.sleep_until(self._deadline)
        self.stop("timeout", f"the turn took longer than its limit of {limit:g} s")

    async def _watch_silence(self, session: WorkerSession) -> None:
        """Report a silent turn, and end it only if it shows no sign of life."""
        patience, lifeless = self._terms.limits.stall_s, 0
        self._last_event_at = anyio.current_time()
        while lifeless < LIFELESS_CHECKS:
            await anyio.sleep_until(self._last_event_at + patience)
            if anyio.current_time() < self._last_event_at + patience:
                continue  # there were events meanwhile
            self._last_event_at = anyio.current_time()
            if self._questions or not self._prompting:
                continue  # waiting for an answer, or being verified
            signs = await session.liveness()
            lifeless = 0 if signs.alive else lifeless + 1
            state = "still working" if signs.alive else "stalled"
            await self._append(
                Noticed(text=f"no events for {patience:g} s; {state}: {signs.detail}")
            )
        silence = patience * LIFELESS_CHECKS
        self.stop("stall", f"no events and no sign of life for {silence:g} s")

    async def _refuse_on_timeout(self, permission: str) -> None:
        await anyio.sleep(self._terms.permission_timeout_s)
        with suppress(RequestError):  # already answered, or the turn is over
            await self.answer(permission, "reject", "the time limit")

    # What changed on disk, and the journal

    async def _guarded_fingerprints(self) -> Fingerprints:
        own = self._terms.workspace
        origin = Path(own.origin) if own else None
        return await anyio.to_thread.run_sync(fingerprints, self._spec.cwd, origin)

    async def _report_guarded_changes(self) -> None:
        if self._guarded_before is None:
            return
        after = await self._guarded_fingerprints()
        if changed := guarded_file_changes(self._guarded_before, after, self._spec.cwd):
            await self._append(GuardedFilesChanged(changes=changed))

    async def _report_shared_changes(self) -> None:
        if self._folder_watch and (changed := await self._folder_watch.finish()):
            await self._append(changed)

    async def _append(self, event: AnyEvent) -> None:
        if self._view and isinstance(event, EVIDENCE_EVENTS):
            # The feed's own view is only as new as what the disk has taken.
            at, seq = self._view.updated_at, self._view.seq
            self._view = fold_worker(
                self._view, EventEnvelope(seq=seq, at=at, worker=self._spec.id, event=event)
            )
        await self._services.feed.append(self._spec.id, event)


class _OpenQuestions:
    """The permission questions of a turn; true while any is open."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._open: dict[str, PermissionAsked] = {}
        self._withdrawn: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, question: PermissionAsked) -> None:
        self._open[question.id] = question

    def take(self, permission: str, option: PermissionAnswer) -> PermissionAsked:
        """Close the question for whoever answers it first. Raises `RequestError` if it is not open."""
        if reason := self._withdrawn.get(permission):
            raise RequestError(
                f"question {permission!r} of worker {self._worker!r} was withdrawn: {reason}; "
                "if the worker still needs the permission, it will ask again"
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
        dropped = tuple(self._open)
        self._open.clear()
        return dropped
