"""Answers queries about workers from the journal, and reports progress to waiting callers."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import anyio

from goent.domain.events import UsageReported
from goent.domain.replies import (
    ModelUse,
    OutputReply,
    Result,
    Status,
    WaitReply,
    WorkerLine,
    WorkerList,
)
from goent.domain.requests import (
    ListRequest,
    OperationRequest,
    OutputRequest,
    WaitRequest,
    WorkerRequest,
)
from goent.domain.swarm_messages import SwarmRequest
from goent.domain.types import ENDED_STATES, FileChange, Value
from goent.workers.feed import Feed
from goent.workers.views import (
    WorkerView,
    evidence,
    latest_words,
    overlaps,
    worker_line,
    worker_status,
)
from goent.workers.worker_report import all_changed_files, models_used, transcript, worker_result

HEARTBEAT_S = 5.0  # seconds between two reports while nothing happens
WORDS_S = 2.0  # seconds between two reports while only text is added

OnProgress = Callable[[Status, str], Awaitable[None]]


class ProgressReports:
    """The progress reports to one caller. `views` are what it knows already."""

    def __init__(self, views: Iterable[WorkerView] = ()) -> None:
        self._reported: dict[str, tuple[WorkerView, float]] = {}
        for view in views:
            self._note(view)

    async def report(self, views: Iterable[WorkerView], on_progress: OnProgress) -> None:
        """Report the workers that changed, and the others once per heartbeat."""
        for view in views:
            if view.id not in self._reported:
                self._note(view)
            elif self._is_due(view):
                self._note(view)
                await on_progress(worker_status(view), latest_words(view))

    def _note(self, view: WorkerView) -> None:
        self._reported[view.id] = view, anyio.current_time()

    def _is_due(self, view: WorkerView) -> bool:
        last, at = self._reported[view.id]
        if (last.step, last.state, last.plan) != (view.step, view.state, view.plan):
            return True
        wait = WORDS_S if last.words != view.words else HEARTBEAT_S
        return anyio.current_time() - at >= wait


class StateMark(Value, frozen=True, kw_only=True):
    """The state of a worker or a swarm, and the last event behind it."""

    state: str
    seq: int


class WorkSummary(Value, frozen=True, kw_only=True):
    """The models a worker used, and the files its edits and commands changed."""

    models: tuple[ModelUse, ...] = ()
    files: tuple[FileChange, ...] = ()


class WorkerQueries:
    """Answers from the journal. `due` returns the number of a worker's last requested turn."""

    def __init__(self, feed: Feed, due: Callable[[str], int]) -> None:
        self._feed = feed
        self._due = due

    async def recall(self, request: OperationRequest) -> None:
        """Load the workers that the request names, also old ones."""
        if isinstance(request, WorkerRequest):
            await self._feed.recall(request.worker_id)
        elif isinstance(request, WaitRequest):
            for worker in request.worker_ids:
                await self._feed.recall(worker)
        elif isinstance(request, SwarmRequest):
            await self._feed.recall_swarm(request.swarm_id)

    def status(self, worker: str) -> Status:
        return worker_status(self._feed.view(worker), time.time())

    async def result(self, worker: str) -> Result:
        view = self._feed.view(worker)
        met = overlaps(view, self._feed.views.values())
        return worker_result(view, await self._feed.all_events(worker), met)

    async def account(self, worker: str) -> WorkSummary:
        """The models it used and the files it changed; empty for an unknown worker."""
        if worker not in self._feed.views:
            return WorkSummary()
        events = [envelope.event for envelope in await self._feed.all_events(worker)]
        return WorkSummary(
            models=models_used(event for event in events if isinstance(event, UsageReported)),
            files=all_changed_files(events),
        )

    async def output(self, request: OutputRequest, after: int) -> OutputReply:
        """The output after the cursor as text, up to the limit."""
        view = self._feed.view(request.worker_id)
        events = await self._feed.events(worker=view.id, after=max(0, after - 1), limit=1000)
        before = events.pop(0).event if events and events[0].seq == after else None
        text, taken = transcript(events, request.filter, request.limit, before)
        cursor = events[taken - 1].seq if taken else after
        return OutputReply(
            text=text,
            cursor=cursor,
            more=cursor < view.seq,
            state=view.state,
            evidence=evidence(view),
        )

    async def whole_output(self, worker: str) -> str:
        self._feed.view(worker)
        events = await self._feed.all_events(worker)
        text, _ = transcript(events, "all", sum(len(str(e.event)) for e in events) + 1)
        return text

    def state_marks(self) -> dict[str, StateMark]:
        """A comparable mark per worker: equal marks mean that nothing has changed."""
        return {
            view.id: StateMark(state=view.state, seq=view.seq) for view in self._feed.views.values()
        }

    async def wait_for_change(self) -> None:
        """Return on the next event."""
        await self._feed.wait_for_news(self._feed.seq)

    async def wait_for_turn(self, worker: str, turn: int) -> None:
        """Return when the worker has begun that turn, or is closed."""
        while (view := self._feed.view(worker)).open and view.turn < turn:
            await self._feed.wait_for_news(self._feed.seq)

    async def wait_for_answer(self, worker: str, permission: str) -> None:
        """Return when the question is answered or withdrawn."""
        while any(asked.id == permission for asked in self._feed.view(worker).questions):
            await self._feed.wait_for_news(self._feed.seq)

    async def wait(
        self, request: WaitRequest, on_progress: OnProgress, *, turn: int | None = None
    ) -> WaitReply:
        """Wait until all (or any) have finished, or one asks a question, which needs the caller.

        With `turn`, until that turn has ended.
        """
        seq = self._feed.seq
        views = [self._feed.view(worker) for worker in request.worker_ids]
        reports = ProgressReports(views)
        with anyio.move_on_after(request.timeout_s):
            while not self._enough(views, turn, any_=request.any):
                with anyio.move_on_after(HEARTBEAT_S):
                    await self._feed.wait_for_news(seq)
                seq = self._feed.seq
                views = [self._feed.view(worker) for worker in request.worker_ids]
                await reports.report(views, on_progress)
        return WaitReply(
            workers=tuple(map(self.status, request.worker_ids)),
            timed_out=not self._enough(views, turn, any_=request.any),
        )

    def list(self, request: ListRequest) -> WorkerList:
        fitting = [
            view
            for view in self._newest_first()
            if request.state in (None, view.state)
            and request.provider in (None, view.spawned.provider, view.spawned.backend)
        ]
        return WorkerList(
            workers=tuple(
                worker_line(view, self._overlapping_workers(view))
                for view in fitting[: request.limit]
            ),
            total=len(fitting),
        )

    def lines(self) -> tuple[WorkerLine, ...]:
        """One line per worker, newest first."""
        return tuple(
            worker_line(view, self._overlapping_workers(view)) for view in self._newest_first()
        )

    def _newest_first(self) -> Iterable[WorkerView]:
        return sorted(self._feed.views.values(), key=lambda view: view.started_at, reverse=True)

    def _overlapping_workers(self, view: WorkerView) -> Iterator[str]:
        return (each.worker_id for each in overlaps(view, self._feed.views.values()))

    def _enough(self, views: Sequence[WorkerView], turn: int | None, *, any_: bool) -> bool:
        if any(view.state == "waiting" for view in views):
            return True
        ended = [self._is_done(view, turn) for view in views]
        return any(ended) if any_ else all(ended)

    def _is_done(self, view: WorkerView, turn: int | None) -> bool:
        """Whether its last turn has ended: an accepted prompt may not have begun yet."""
        last = self._due(view.id) if turn is None else turn
        return view.state in ENDED_STATES and (not view.open or view.turn >= last)
