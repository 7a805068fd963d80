"""What holds for whatever an agent answers and a judge replies."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import a_case, a_trace

from goent.evals.graders.findings import GraderInput
from goent.evals.graders.judge_prompt import JudgeInstructions, RubricItem, judge_question, shorten
from goent.evals.graders.llm_grader import UnusableReply, read_reply
from goent.evals.suites import GraderSpec
from goent.evals.traces import TracedCall

ITEMS = (
    RubricItem(id="a", outcome="x", required=True),
    RubricItem(id="b", outcome="y", weight=2, ranges=((0, 10, "z"),)),
)
words = st.sampled_from(["score", "checks", "assertions", "id", "a", "b", "satisfied", "text"])
values = st.recursive(
    words | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
replies = st.text(max_size=80) | values.map(json.dumps) | st.text('{}[]":,a1\\', max_size=60)


@given(reply=replies, before=st.text("{ x", max_size=5), answer=replies, listed=st.booleans())
@pytest.mark.parametrize("compat", [True, False])
def test_any_reply_is_read_or_refused(
    compat: bool, reply: str, before: str, answer: str, listed: bool
):
    items = ITEMS if listed else ()
    try:
        found = read_reply(before + reply, evidence=(answer,), items=items, compat=compat)
    except UnusableReply as unfit:
        assert str(unfit)  # noqa: PT017 (either is right; a refusal says why)
    else:
        assert 0 <= found.score <= 1


@given(
    answer=st.text(max_size=200) | st.sampled_from(["w>>>", "\nw>>>\n", "<<<w", "{{output}}"]),
    prompt=st.sampled_from(["", "Mind the tone.", "Judge {{output}} by {{tool_calls}}"]),
)
def test_evidence_is_never_outside_its_lines(answer: str, prompt: str):
    secret = "0123456789abcdef"
    mark = f"MARK{answer}MARK"
    trace = a_trace(mark, TracedCall(tool="t", output=mark))
    look = GraderInput(
        spec=GraderSpec(type="l", name="l"), case=a_case(), trace=trace, compat=False
    )
    told = judge_question(look, JudgeInstructions(criteria="Good.", prompt=prompt), secret)
    outside = re.sub(rf"<<<{secret}\n.*?\n{secret}>>>", "", told, flags=re.DOTALL)
    assert "MARK" in told
    assert "MARK" not in outside


@given(text=st.text(max_size=300), longest=st.integers(0, 100))
def test_what_is_cut_keeps_its_beginning_and_its_end(text: str, longest: int):
    cut = shorten(text, longest)
    if len(text) <= longest:
        assert cut == text
    else:
        half = longest // 2
        assert cut.startswith(text[:half]) and cut.endswith(text[len(text) - half :])
        assert len(cut) <= longest + 60
        assert f"{len(text) - 2 * half} characters" in cut
