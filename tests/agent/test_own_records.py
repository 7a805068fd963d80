"""Whatever a session has been through, can a model be sent it, and a client be told it? Pure."""

import itertools
from decimal import Decimal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from goent.agent import session_records
from goent.agent.agent_events import (
    Asked,
    FilePart,
    ImagePart,
    LinkPart,
    PromptPart,
    Said,
    TextPart,
    ToolCalled,
)
from goent.agent.session_records import (
    CUT_OFF_TEXT,
    Answered,
    AnswerPiece,
    AnyRecord,
    Compacted,
    Planned,
    Prompted,
    Ran,
    Set,
    Spent,
    Titled,
    Told,
    conversation,
    history,
)
from goent.domain.types import PlanEntry, Usage
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    ChatMessage,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelRequest,
)

WORDS = st.text(alphabet="ab \n", min_size=1, max_size=8)
GIVEN = st.one_of(
    st.builds(TextPart, text=WORDS),
    st.builds(ImagePart, media_type=st.just("image/png"), data=st.just("aGk=")),
    st.builds(LinkPart, uri=st.just("file:///a.py")),
    st.builds(FilePart, uri=st.just("file:///b.py"), text=st.none() | WORDS),
)
BESIDE = st.sampled_from(
    [
        Planned(entries=(PlanEntry(text="look", status="pending"),)),
        Spent(usage=Usage(input=5), cost_usd=Decimal("0.1")),
        Set(mode="ask", model="auto"),
        Titled(title="a title"),
        Told(text="told"),
    ]
)


def ran(call: str, *, failed: bool) -> Ran:
    status = "failed" if failed else "completed"
    event = ToolCalled(id=call, tool="Read", kind="read", title="Read", status=status)
    return Ran(call=event, text="what was read")


@st.composite
def sessions(draw: st.DrawFn) -> list[AnyRecord]:
    """A session as the agent keeps it, up to any moment in which it could have been killed."""
    kept: list[AnyRecord] = []
    calls = 0
    for turn in range(draw(st.integers(1, 4))):
        prompt: list[PromptPart] = draw(st.lists(GIVEN, min_size=1, max_size=3))
        kept.append(Prompted(message=f"u{turn}", given=tuple(prompt)))
        for step in range(draw(st.integers(0, 3))):
            uses = [f"c{calls + n}" for n in range(draw(st.integers(0, 3)))]
            calls += len(uses)
            said = [AnswerPiece(kind="text", text=draw(WORDS))] if draw(st.booleans()) else []
            pieces = (
                *said,
                *(AnswerPiece(kind="tool", id=c, name="Read", text="{}") for c in uses),
            )
            kept.append(Answered(message=f"a{turn}.{step}", pieces=pieces))
            for call in draw(st.permutations(uses)):
                kept.append(ran(call, failed=draw(st.booleans())))
                kept += draw(st.lists(BESIDE, max_size=1))
        if draw(st.booleans()):
            kept.append(Compacted(summary="all of it"))
    return kept[: draw(st.integers(1, len(kept)))]


@given(sessions())
def test_the_two_sides_take_turns_and_every_call_has_its_result(kept: list[AnyRecord]) -> None:
    messages = conversation(kept)
    assert messages[0].role == "user"
    assert all(one.role != other.role for one, other in itertools.pairwise(messages))
    for said, following in zip(messages, (*messages[1:], None), strict=True):
        wanted = [part.id for part in said.parts if isinstance(part, MessageToolUse)]
        if wanted:
            assert following is not None, "a call is never the last word"
            assert [p.id for p in following.parts if isinstance(p, MessageToolResult)] == wanted


@given(sessions())
def test_both_vendors_can_be_sent_it(kept: list[AnyRecord]) -> None:
    request = ModelRequest(model="m", messages=conversation(kept))
    for dialect in ("anthropic", "openai"):
        there = codec_for(dialect)
        again = there.decode(there.encode(request))
        assert _results(again.messages) == _results(request.messages)


@given(sessions())
def test_what_is_kept_is_read_again_as_it_was(kept: list[AnyRecord]) -> None:
    again = [
        session_records.decode_record(session_records.encode_record(record)) for record in kept
    ]
    assert conversation(again) == conversation(kept)
    assert [msgspec.json.encode(e) for e in history(again)] == [
        msgspec.json.encode(e) for e in history(kept)
    ]


@given(sessions())
def test_a_client_is_told_every_prompt_word_and_call_once(kept: list[AnyRecord]) -> None:
    told = list(history(kept))
    answers = [record for record in kept if isinstance(record, Answered)]
    calls = [p.id for record in answers for p in record.pieces if p.kind == "tool"]
    assert sum(isinstance(e, Asked) for e in told) == sum(isinstance(r, Prompted) for r in kept)
    assert [e.text for e in told if isinstance(e, Said)] == [
        piece.text for record in answers for piece in record.pieces if piece.kind == "text"
    ]
    ends = [event for event in told if isinstance(event, ToolCalled)]
    assert sorted(event.id for event in ends) == sorted(calls)
    finished = {record.call.id for record in kept if isinstance(record, Ran)}
    assert all((e.output == CUT_OFF_TEXT) == (e.id not in finished) for e in ends)


def _results(messages: tuple[ChatMessage, ...]) -> list[tuple[str, str]]:
    return [
        (part.id, "".join(p.text for p in part.parts if isinstance(p, MessageText)))
        for message in messages
        for part in message.parts
        if isinstance(part, MessageToolResult)
    ]
