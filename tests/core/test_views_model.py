"""Any journal that the grammar allows, against a model so plain that it cannot be wrong."""

from decimal import Decimal

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import SPAWNED

from goent.domain.events import (
    AnyEvent,
    EventEnvelope,
    Noticed,
    PermissionAnswered,
    PermissionAsked,
    SessionOpened,
    TextDelta,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerClosed,
)
from goent.domain.types import Usage
from goent.store.journal_store import SqliteJournal
from goent.workers.feed import Feed
from goent.workers.views import WorkerView, fold_worker, worker_line, worker_status

within_a_turn = st.one_of(
    st.builds(TextDelta, text=st.text(max_size=5)),
    st.builds(Noticed, text=st.text(max_size=5)),
    st.builds(SessionOpened, token=st.sampled_from(["s1", "s2"])),
    st.builds(ToolCall, id=st.just("x"), tool=st.just("bash"), status=st.just("running")),
    st.builds(
        PermissionAsked,
        id=st.sampled_from("pqr"),
        tool=st.just("bash"),
        detail=st.just("make"),
        options=st.just(()),
    ),
    st.builds(
        PermissionAnswered, id=st.sampled_from("pqr"), option=st.just("reject"), by=st.just("x")
    ),
    st.builds(
        UsageReported,
        provider=st.just("glm"),
        model=st.just("glm-4"),
        usage=st.builds(Usage, input=st.integers(0, 1000)),
        cost_usd=st.one_of(st.none(), st.decimals(0, 1, places=6)),
        source=st.just("gateway"),
    ),
)


@st.composite
def lives(draw: st.DrawFn) -> list[AnyEvent]:
    """WorkerSpawned (TurnStarted … TurnEnded)* WorkerClosed, or its beginning."""
    events: list[AnyEvent] = [SPAWNED]
    for turn in range(1, draw(st.integers(0, 4)) + 1):
        events.append(TurnStarted(turn=turn, prompt="p"))
        events.extend(draw(st.lists(within_a_turn, max_size=8)))
        state = draw(st.sampled_from(["completed", "failed", "cancelled"]))
        events.append(TurnEnded(turn=turn, state=state))  # pyright: ignore[reportArgumentType] (one of the three)
    events.append(WorkerClosed(reason="x"))
    return events[: draw(st.integers(1, len(events)))]


def stamped(events: list[AnyEvent], first: int = 1) -> list[EventEnvelope]:
    return [
        EventEnvelope(seq=seq, at=float(seq), worker="w-1", event=event)
        for seq, event in enumerate(events, first)
    ]


def folded(envelopes: list[EventEnvelope], view: WorkerView | None = None) -> WorkerView:
    for envelope in envelopes:
        view = fold_worker(view, envelope)
    assert view
    return view


def open_questions(events: list[AnyEvent]) -> list[str]:
    """Asked again goes to the end; an answer or the turn's end takes away."""
    waiting: list[str] = []
    for event in events:
        if isinstance(event, TurnEnded):
            waiting = []
        elif isinstance(event, PermissionAsked | PermissionAnswered):
            waiting = [name for name in waiting if name != event.id]
            waiting += [event.id] if isinstance(event, PermissionAsked) else []
    return waiting


@settings(deadline=None)
@given(lives())
def test_a_view_is_what_a_plain_reading_of_the_journal_says(events: list[AnyEvent]) -> None:
    view = folded(stamped(events))
    begun = [e for e in events if isinstance(e, TurnStarted)]
    ended = [e for e in events if isinstance(e, TurnEnded)]
    waiting = open_questions(events)
    running = "waiting" if waiting else "running"
    state = "cancelled" if isinstance(events[-1], WorkerClosed) else "starting"
    if begun:
        state = ended[-1].state if len(ended) == len(begun) else running
    calls = [e for e in events if isinstance(e, UsageReported)]
    known = all(call.cost_usd is not None for call in calls)
    spent = sum((call.cost_usd or Decimal(0) for call in calls), Decimal(0))
    tokens = [e.token for e in events if isinstance(e, SessionOpened)]

    assert (view.state, view.turn, view.seq) == (state, len(begun), len(events))
    assert view.open == (not isinstance(events[-1], WorkerClosed))
    assert [question.id for question in view.questions] == waiting
    assert view.usage.input == sum(call.usage.input for call in calls)
    assert view.cost_usd == (spent if calls and known else None)
    assert view.token == (tokens[-1] if tokens else "")
    assert worker_status(view).state == worker_line(view).state == state


@settings(deadline=None)
@given(lives(), st.data())
def test_folding_in_pieces_is_folding_at_once(events: list[AnyEvent], data: st.DataObject) -> None:
    envelopes = stamped(events)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(envelopes)))))
    view = None
    for start, end in zip([0, *cuts], [*cuts, len(envelopes)], strict=True):
        view = folded(envelopes[start:end], view) if start < end else view
    assert view == folded(envelopes)


@pytest.mark.anyio
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batches=st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=6),
    limit=st.integers(1, 4),
)
async def test_a_cursor_skips_nothing_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], limit: int
) -> None:
    """However the writing and the reading fall together, for one worker and for all."""
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    async with SqliteJournal.open(path) as journal, anyio.create_task_group() as tasks:
        feed = Feed(journal)
        tasks.start_soon(feed.run)
        seen: dict[str | None, list[EventEnvelope]] = {None: [], "a": []}
        said: list[tuple[str, AnyEvent]] = []
        for worker in "abc":
            said.append((worker, SPAWNED))
            await feed.append(worker, SPAWNED)
        for batch in batches:
            for worker in batch:
                said.append((worker, ToolCall(id=str(len(said)), tool="t", status="running")))
                await feed.append(*said[-1])
            await read_on(feed, seen, limit)
        await feed.commit()
        while await read_on(feed, seen, limit):
            pass
        assert [(e.worker, e.event) for e in seen[None]] == said
        assert seen["a"] == [e for e in seen[None] if e.worker == "a"]
        for worker in "abc":
            mine = [e for e in seen[None] if e.worker == worker]
            assert feed.view(worker) == folded(mine)
        tasks.cancel_scope.cancel()


async def read_on(feed: Feed, seen: dict[str | None, list[EventEnvelope]], limit: int) -> int:
    """One page for each reader, from where it is."""
    taken = 0
    for worker, read in seen.items():
        after = read[-1].seq if read else 0
        page = await feed.events(worker=worker, after=after, limit=limit)
        assert len(page) <= limit
        read.extend(page)
        taken += len(page)
    return taken
