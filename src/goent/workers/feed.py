"""Stores events in the journal, folds them into the views, and wakes the readers.

Workers append; one writer takes the pending batch, commits it to the journal in one transaction,
folds it into the views and wakes the readers. A reader has a cursor and reads the journal from
there, so a slow reader costs nothing and loses nothing.
"""

import logging
import time
from collections.abc import Callable, Iterator

import anyio

from goent.domain.errors import EnvironmentTrouble, UnknownSwarm, UnknownWorker
from goent.domain.events import (
    AnyEvent,
    EventEnvelope,
    SwarmEvent,
    TextDelta,
    Thought,
    ToolCall,
    WorkerSpawned,
)
from goent.domain.ports import Journal
from goent.workers.views import SwarmView, WorkerView, fold_swarm, fold_worker

CAPACITY = 10_000  # pending events above which bulk events wait for the disk
GATHER_S = 0.02  # seconds in which streamed text is merged into one event
SPEECH_LIMIT = 1000  # characters that text is merged up to, or split at
RETRY_S = 1.0  # seconds between attempts when the disk fails
DRAIN_S = 10.0  # seconds that shutdown waits for a failing disk
BULK_EVENTS = (TextDelta, Thought, ToolCall)  # the others, such as a turn's end, never wait

log = logging.getLogger(__name__)


class Feed:
    """The journal of one project, with the views of its workers and swarms."""

    def __init__(self, journal: Journal, *, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._clock = clock
        self._waiting: list[tuple[str, float, AnyEvent]] = []
        self._appended = 0
        self._stored = 0
        self._writing = False
        self._refusals = 0
        self._trouble: EnvironmentTrouble | None = None
        self._arrived = anyio.Event()
        self._news = anyio.Event()
        self.views: dict[str, WorkerView] = {}
        self.swarms: dict[str, SwarmView] = {}
        self.seq = 0

    async def load(self) -> None:
        """Fold what the journal already contains."""
        for worker in reversed(await self._journal.workers()):
            view = await self._folded(worker)
            if view:
                self.views[worker] = view
                self.seq = max(self.seq, view.seq)
        for swarm in reversed(await self._journal.swarms()):
            await self.recall_swarm(swarm)

    async def recall_swarm(self, swarm: str) -> None:
        """Load a swarm that is not in memory, with its workers, if the journal has it."""
        if swarm not in self.swarms:
            view = None
            for envelope in await self._journal.read(worker=swarm, limit=100_000):
                view = fold_swarm(view, envelope)
            if view is None:
                return
            self.swarms[swarm] = view
            self.seq = max(self.seq, view.seq)
        for task in self.swarms[swarm].tasks.values():
            for worker in task.workers:
                await self.recall(worker)

    def spawned(self, worker: str) -> WorkerSpawned | None:
        view = self.views.get(worker)
        return view.spawned if view else None

    async def recall(self, worker: str) -> None:
        """Load a worker that is not in memory, if the journal has it."""
        if worker not in self.views and (view := await self._folded(worker)):
            self.views[worker] = view

    async def _folded(self, worker: str) -> WorkerView | None:
        view, after = None, 0
        while page := await self._journal.read(worker=worker, after=after):
            for envelope in page:
                # The first events may be damaged, or written by a newer version.
                if view or isinstance(envelope.event, WorkerSpawned):
                    view = fold_worker(view, envelope)
            if page[-1].seq <= after:  # a damaged index would loop for ever
                break
            after = page[-1].seq
        if after and view is None:
            log.warning("worker %r cannot be shown: its first event is not readable", worker)
        return view

    async def append(self, worker: str, event: AnyEvent) -> None:
        """Queue an event; returns before it is stored, unless the disk is far behind."""
        while len(self._waiting) >= CAPACITY and isinstance(event, BULK_EVENTS):
            await self._news.wait()
        self._waiting.append((worker, self._clock(), event))
        self._appended += 1
        self._arrived.set()

    async def commit(self) -> None:
        """Return when everything appended so far is stored and in the views.

        Raises `EnvironmentTrouble` if the disk fails; the events are kept and retried.
        """
        target, refused = self._appended, self._refusals
        while self._stored < target:
            await self._news.wait()
            if self._trouble and self._refusals > refused:
                raise self._trouble

    async def run(self) -> None:
        """Write pending events until cancelled."""
        while True:
            await self._arrived.wait()
            if all(isinstance(event, TextDelta | Thought) for _, _, event in self._waiting):
                await anyio.sleep(GATHER_S)
            await self._write()

    async def drain(self) -> None:
        """Write what is left after the writer has stopped."""
        with anyio.move_on_after(DRAIN_S):
            while self._waiting:
                await self._write()
        if self._waiting:
            log.error("%d events were never stored: %s", len(self._waiting), self._trouble)

    async def _write(self) -> None:
        taken, self._waiting, self._arrived = self._waiting, [], anyio.Event()
        self._writing = True
        try:
            envelopes = await self._journal.append(merge_speech(taken))
            for envelope in envelopes:
                self._fold(envelope)
                self.seq = envelope.seq
            self._trouble = None
            self._stored += len(taken)
        except EnvironmentTrouble as trouble:
            self._put_back(taken, trouble)
        finally:
            self._writing = False
            self._wake()
        if self._trouble:
            await anyio.sleep(RETRY_S)

    def _fold(self, envelope: EventEnvelope) -> None:
        whose = envelope.worker
        if not isinstance(envelope.event, SwarmEvent):
            self.views[whose] = fold_worker(self.views.get(whose), envelope)
        elif swarm := fold_swarm(self.swarms.get(whose), envelope):
            self.swarms[whose] = swarm

    def _put_back(
        self, taken: list[tuple[str, float, AnyEvent]], trouble: EnvironmentTrouble
    ) -> None:
        if self._trouble is None:
            log.error("the journal cannot be written, retrying: %s", trouble)
        self._trouble = trouble
        self._refusals += 1
        self._waiting[:0] = taken
        self._arrived.set()

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def view(self, worker: str) -> WorkerView:
        try:
            return self.views[worker]
        except KeyError:
            raise UnknownWorker(
                f"no worker {worker!r} in this project; worker_list (`go-ent ps`) shows them all"
            ) from None

    def swarm(self, swarm: str) -> SwarmView:
        try:
            return self.swarms[swarm]
        except KeyError:
            raise UnknownSwarm(
                f"no swarm {swarm!r} in this project; `go-ent swarm list` shows them all"
            ) from None

    async def events(
        self, *, worker: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[EventEnvelope]:
        """The stored events after the cursor. No event is returned before the views have it."""
        page = await self._journal.read(worker=worker, after=after, limit=limit)
        while self._writing and page and page[-1].seq > self.seq:
            await self._news.wait()
        return page

    async def all_events(self, worker: str) -> list[EventEnvelope]:
        events: list[EventEnvelope] = []
        while page := await self.events(
            worker=worker, after=events[-1].seq if events else 0, limit=5000
        ):
            events += page
        return events

    async def wait_for_news(self, after: int) -> None:
        """Return as soon as something newer than the cursor has been stored."""
        while self.seq <= after:
            await self._news.wait()


def merge_speech(batch: list[tuple[str, float, AnyEvent]]) -> list[tuple[str, float, AnyEvent]]:
    """Merge neighbouring text of one message into one event."""
    out: list[tuple[str, float, AnyEvent]] = []
    for worker, at, event in _split_speech(batch):
        if out and isinstance(event, TextDelta | Thought):
            last_worker, last_at, last = out[-1]
            if (
                last_worker == worker
                and type(last) is type(event)
                and isinstance(last, TextDelta | Thought)
                and last.message == event.message
                and len(last.text) + len(event.text) <= SPEECH_LIMIT
            ):
                joined = type(event)(text=last.text + event.text, message=event.message)
                out[-1] = (worker, last_at, joined)
                continue
        out.append((worker, at, event))
    return out


def _split_speech(
    batch: list[tuple[str, float, AnyEvent]],
) -> Iterator[tuple[str, float, AnyEvent]]:
    """Split long text, so that a reader's page is never longer than requested."""
    for worker, at, event in batch:
        if isinstance(event, TextDelta | Thought) and len(event.text) > SPEECH_LIMIT:
            for start in range(0, len(event.text), SPEECH_LIMIT):
                piece = event.text[start : start + SPEECH_LIMIT]
                yield worker, at, type(event)(text=piece, message=event.message)
        else:
            yield worker, at, event
