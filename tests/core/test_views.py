"""The views, as pure folds: whatever a journal holds, they come out the same."""

from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from samples import SPAWNED

from goent.domain.events import (
    AnyEvent,
    EventEnvelope,
    PermissionAnswered,
    PermissionAsked,
    PlanUpdated,
    TextDelta,
    Thought,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    Verified,
    WorkerClosed,
)
from goent.domain.types import Check, Command, FileChange, PlanEntry, Usage
from goent.workers.feed import merge_speech
from goent.workers.views import WorkerView, fold_worker, latest_words, plan_progress, worker_status
from goent.workers.worker_report import transcript, worker_result

texts = st.text(max_size=20)
events = st.one_of(
    st.builds(TextDelta, text=texts, message=st.sampled_from("ab")),
    st.builds(Thought, text=texts),
    st.builds(
        ToolCall,
        id=st.sampled_from("xy"),
        tool=st.just("bash"),
        status=st.sampled_from(["pending", "running", "completed", "failed"]),
    ),
    st.builds(
        PermissionAsked, id=st.sampled_from("pq"), tool=texts, detail=texts, options=st.just(())
    ),
    st.builds(
        PermissionAnswered, id=st.sampled_from("pq"), option=st.just("reject"), by=st.just("x")
    ),
    st.builds(
        UsageReported,
        provider=st.just("glm"),
        model=st.just("glm-4"),
        usage=st.builds(Usage, input=st.integers(0, 1000), output=st.integers(0, 1000)),
        cost_usd=st.one_of(st.none(), st.decimals(0, 1, places=6)),
        source=st.just("gateway"),
    ),
)


def envelopes(*happened: AnyEvent) -> list[EventEnvelope]:
    return [
        EventEnvelope(seq=n, at=float(n), worker="w-1", event=event)
        for n, event in enumerate((SPAWNED, *happened), start=1)
    ]


def folded(journal: list[EventEnvelope]) -> WorkerView:
    view = None
    for envelope in journal:
        view = fold_worker(view, envelope)
    assert view
    return view


@given(st.lists(events, max_size=30))
def test_every_journal_has_a_status_and_a_result(happened: list[AnyEvent]) -> None:
    journal = envelopes(TurnStarted(turn=1, prompt="t"), *happened)
    view = folded(journal)
    assert worker_status(view).state == ("waiting" if view.questions else "running")
    assert worker_result(view, journal).usage == view.usage
    ended = folded(
        [
            *journal,
            journal[-1].__class__(
                seq=99, at=99.0, worker="w-1", event=TurnEnded(turn=1, state="completed")
            ),
        ]
    )
    assert (ended.state, ended.questions) == ("completed", ())


@given(st.lists(events, max_size=30), st.integers(1, 60))
def test_the_output_in_pieces_is_the_output(happened: list[AnyEvent], limit: int) -> None:
    journal = envelopes(*happened)
    pieces, rest = "", journal
    while rest:
        text, taken = transcript(rest, "text", limit)
        assert taken > 0
        pieces += text
        rest = rest[taken:]
    whole = "".join(e.text for e in happened if isinstance(e, TextDelta))
    assert pieces.replace("\n", "") == whole.replace("\n", "")


@given(st.lists(events, max_size=30))
def test_merging_words_loses_none(happened: list[AnyEvent]) -> None:
    batch = [("w-1", 0.0, event) for event in happened]
    before = "".join(e.text for e in happened if isinstance(e, TextDelta))
    after = "".join(e.text for _, _, e in merge_speech(batch) if isinstance(e, TextDelta))
    assert before == after
    others = [e for e in happened if not isinstance(e, TextDelta | Thought)]
    assert [
        e for _, _, e in merge_speech(batch) if not isinstance(e, TextDelta | Thought)
    ] == others


def test_an_unknown_price_makes_the_sum_unknown_and_never_zero() -> None:
    known = UsageReported(
        provider="glm", model="a", usage=Usage(input=1), cost_usd=Decimal("0.5"), source="gateway"
    )
    unknown = UsageReported(
        provider="glm", model="b", usage=Usage(input=1), cost_usd=None, source="gateway"
    )
    assert folded(envelopes()).cost_usd is None
    assert folded(envelopes(known)).cost_usd == Decimal("0.5")
    journal = envelopes(known, unknown)
    told = worker_result(folded(journal), journal)
    assert told.cost_usd is None
    assert [(m.model, m.cost_usd) for m in told.models_used] == [("a", 0.5), ("b", None)]
    assert "the known part is $0.5000" in told.notes[0]


def test_a_file_changed_twice_is_listed_once_with_the_sum() -> None:
    calls = [
        ToolCall(id="1", tool="edit", status="running"),
        ToolCall(
            id="1",
            tool="edit",
            status="completed",
            changes=(FileChange(path="a", added=2, removed=1),),
        ),
        ToolCall(
            id="2",
            tool="edit",
            status="completed",
            changes=(FileChange(path="a", added=1, removed=0),),
        ),
        ToolCall(
            id="3",
            tool="edit",
            status="failed",
            changes=(FileChange(path="b", added=1, removed=0),),
        ),
        ToolCall(id="4", tool="bash", status="completed", command=Command(command="make", exit=2)),
    ]
    journal = envelopes(*calls)
    told = worker_result(folded(journal), journal)
    assert told.files == (FileChange(path="a", added=3, removed=1),)
    assert told.commands == (Command(command="make", exit=2),)


def test_the_last_message_of_the_last_turn_is_the_text() -> None:
    journal = envelopes(
        TurnStarted(turn=1, prompt="p"),
        TextDelta(text="old", message="1"),
        TurnEnded(turn=1, state="completed"),
        TurnStarted(turn=2, prompt="p"),
        TextDelta(text="I look.", message="2"),
        TextDelta(text="Do", message="3"),
        TextDelta(text="ne.", message="3"),
        TurnEnded(turn=2, state="completed"),
        WorkerClosed(reason="x"),
    )
    assert worker_result(folded(journal), journal).text == "Done."


def test_no_list_no_figure() -> None:
    done = PlanEntry(text="a", status="completed")
    gone = PlanEntry(text="b", status="cancelled")
    assert plan_progress(()).percent is None
    assert plan_progress((done, gone)).percent == 100


def test_a_refused_command_was_not_run() -> None:
    rejected = ToolCall(
        id="1", tool="bash", status="failed", command=Command(command="rm -rf important")
    )
    journal = envelopes(rejected)
    assert worker_result(folded(journal), journal).commands == ()


def test_a_result_fits_into_a_models_context() -> None:
    long = "x" * 5000
    happened: list[AnyEvent] = [TurnStarted(turn=1, prompt=long)]
    for n in range(60):
        change = FileChange(path=f"src/some/where/module_{n}.py", added=n, removed=n)
        happened += [
            TextDelta(text=long, message="m"),
            ToolCall(id=f"e{n}", tool="edit", status="completed", changes=(change,)),
            ToolCall(
                id=f"b{n}", tool="bash", status="completed", command=Command(command=long, exit=n)
            ),
        ]
    checks = tuple(Check(command=long, exit=n, tail=long) for n in range(9))
    happened.append(Verified(checks=checks))
    journal = envelopes(*happened)
    told = msgspec.json.encode(worker_result(folded(journal), journal))
    assert len(told) < 6000, "about 1,500 tokens"


def test_a_new_turn_has_no_progress_of_the_old_one() -> None:
    plan = PlanUpdated(entries=(PlanEntry(text="old", status="in_progress"),))
    journal = envelopes(
        TurnStarted(turn=1, prompt="p"),
        plan,
        TurnEnded(turn=1, state="completed"),
        TurnStarted(turn=2, prompt="q"),
    )
    now = worker_status(folded(journal))
    assert (now.progress.percent, now.step) == (None, "thinking")


def test_a_worker_ends_with_its_turn_and_not_when_it_is_closed() -> None:
    ended = TurnEnded(turn=1, state="completed")
    view = folded(envelopes(TurnStarted(turn=1, prompt="p"), ended, WorkerClosed(reason="idle")))
    assert (view.ended_at, view.updated_at) == (3.0, 4.0)


def test_with_its_whole_list_done_a_worker_is_finishing() -> None:
    done = PlanUpdated(entries=(PlanEntry(text="only", status="completed"),))
    began, ended = TurnStarted(turn=1, prompt="p"), TurnEnded(turn=1, state="completed")
    called = ToolCall(id="1", tool="bash", status="running", title="make")
    now = worker_status(folded(envelopes(began, done, called)))
    assert (now.progress.percent, now.step) == (100, "finishing")
    assert worker_status(folded(envelopes(began, done, called, ended))).step == "completed"


def test_the_latest_words_are_the_end_of_the_message_under_way() -> None:
    began = TurnStarted(turn=1, prompt="p")
    journal = envelopes(
        began,
        TextDelta(text="An earlier message.", message="1"),
        TextDelta(text="I look at\n  the tests, ", message="2"),
        ToolCall(id="1", tool="bash", status="running"),
        TextDelta(text="then fix them.", message="2"),
        Thought(text="hm"),
    )
    assert latest_words(folded(journal)) == "I look at the tests, then fix them."
    long = folded(envelopes(began, *(TextDelta(text=f"{n} ", message="1") for n in range(500))))
    assert latest_words(long).startswith("…") and latest_words(long).endswith(" 498 499")
    assert len(latest_words(long)) <= 100
    assert latest_words(folded(envelopes(began, began))) == ""
