"""What holds for every trace: bounds, and that order counts only where it should."""

import json

from hypothesis import given
from hypothesis import strategies as st

from goent.evals.graders.case_grader import grade
from goent.evals.suites import EvalCase, GraderSpec, InputMessage
from goent.evals.traces import Trace, TracedCall, TracedMessage

tools = st.sampled_from(["a", "b", "c"])
given_args = st.fixed_dictionaries({}, optional={"x": st.integers(0, 1), "y": st.booleans()})
calls = st.lists(
    st.builds(
        TracedCall,
        tool=tools,
        input=given_args,
        duration_ms=st.none() | st.floats(0, 200),
    ),
    max_size=6,
)
needed: dict[str, st.SearchStrategy[object]] = {"tool": tools}
optional: dict[str, st.SearchStrategy[object]] = {
    "args": given_args,
    "args_match": st.sampled_from(["exact", "superset", "subset", "ignore", ["x"]]),
    "max_duration_ms": st.floats(0, 200),
}
items = st.lists(st.fixed_dictionaries(needed, optional=optional), max_size=5)
modes = st.sampled_from(["any_order", "in_order", "exact", "superset", "subset"])


def score(
    mode: str,
    expected: list[dict[str, object]],
    done: list[TracedCall],
    *,
    compat: bool,
    **bounds: object,
) -> float:
    settings = {"mode": mode, "expected": expected, **bounds}
    spec = GraderSpec(type="tool-trajectory", name="t", settings=settings)
    said = (InputMessage(role="user", text="x"),)
    case = EvalCase(id="c", suite="s", form="v4", input=said, graders=(spec,))
    message = TracedMessage(role="assistant", content="x", tool_calls=tuple(done))
    return grade(case, Trace(messages=(message,)), threshold=0.8, compat=compat).score


@given(mode=modes, expected=items, done=calls, compat=st.booleans())
def test_a_score_stays_between_nothing_and_all(
    mode: str, expected: list[dict[str, object]], done: list[TracedCall], compat: bool
):
    assert 0 <= score(mode, expected, done, compat=compat) <= 1


@given(data=st.data(), mode=st.sampled_from(["superset", "subset"]), expected=items, done=calls)
def test_order_does_not_count_where_it_is_not_asked_for(
    data: st.DataObject, mode: str, expected: list[dict[str, object]], done: list[TracedCall]
):
    expected = [{k: v for k, v in item.items() if k != "max_duration_ms"} for item in expected]
    mixed = data.draw(st.permutations(done))
    other = data.draw(st.permutations(expected))
    assert score(mode, expected, done, compat=False) == score(mode, other, mixed, compat=False)


def without_limits(item: dict[str, object]) -> dict[str, object]:
    """And without a path that its arguments lack, which is a mistake of the suite."""
    args = item.get("args")
    lost = item.get("args_match") == ["x"] and isinstance(args, dict) and "x" not in args
    left_out = {"max_duration_ms", "args_match"} if lost else {"max_duration_ms"}
    return {key: value for key, value in item.items() if key not in left_out}


@given(expected=items, done=calls)
def test_ours_finds_no_less_in_order_than_agentvs_one_pass(
    expected: list[dict[str, object]], done: list[TracedCall]
):
    plain = [without_limits(item) for item in expected]
    if plain:
        ours, theirs = (score("in_order", plain, done, compat=compat) for compat in (False, True))
        assert ours >= theirs


@given(
    weights=st.lists(st.floats(-1, 1e6), min_size=1, max_size=4),
    words=st.lists(st.sampled_from(["x", "zz"]), min_size=4, max_size=4),
    negate=st.booleans(),
    nested=st.booleans(),
    threshold=st.floats(0, 1),
)
def test_a_case_stays_between_nothing_and_all_whatever_its_weights(
    weights: list[float], words: list[str], negate: bool, nested: bool, threshold: float
):
    graders = tuple(
        GraderSpec(
            type="contains", name=str(i), settings={"value": words[i]}, weight=w, negate=negate
        )
        for i, w in enumerate(weights)
    )
    if nested:
        graders = (GraderSpec(type="composite", name="all", members=graders),)
    case = EvalCase(id="c", suite="s", form="v4", input=(), graders=graders)
    done = Trace(messages=(TracedMessage(role="assistant", content="x"),))
    for compat in (True, False):
        found = grade(case, done, threshold=threshold, compat=compat)
        assert 0 <= found.score <= 1
        assert all(0 <= one.score <= 1 for one in found.grades)


def longest(left: str, right: str) -> int:
    if not left or not right:
        return 0
    both = 1 + longest(left[1:], right[1:]) if left[0] == right[0] else 0
    return max(both, longest(left[1:], right), longest(left, right[1:]))


@given(wanted=st.text("abc", min_size=1, max_size=4), done=st.text("abc", max_size=5))
def test_in_order_finds_as_much_as_can_be_found(wanted: str, done: str):
    expected: list[dict[str, object]] = [{"tool": name} for name in wanted]
    found = score("in_order", expected, [TracedCall(tool=name) for name in done], compat=False)
    assert found == longest(wanted, done) / len(wanted)


def untimed(expected: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{k: v for k, v in item.items() if k != "max_duration_ms"} for item in expected]


@given(data=st.data(), mode=st.sampled_from(["in_order", "superset"]), expected=items, done=calls)
def test_one_more_call_never_costs_anything_where_more_is_allowed(
    data: st.DataObject, mode: str, expected: list[dict[str, object]], done: list[TracedCall]
):
    place = data.draw(st.integers(0, len(done)))
    (more,) = data.draw(calls.filter(lambda drawn: len(drawn) == 1))
    longer = [*done[:place], more, *done[place:]]
    plain = untimed(expected)
    assert score(mode, plain, longer, compat=False) >= score(mode, plain, done, compat=False)


@given(expected=items.filter(bool), done=calls)
def test_exact_is_all_if_and_only_if_it_is_the_same(
    expected: list[dict[str, object]], done: list[TracedCall]
):
    plain = [{"tool": item["tool"], "args": item.get("args", {})} for item in expected]
    told = [{"tool": call.tool, "args": call.input} for call in done]
    same = json.dumps(plain, sort_keys=True) == json.dumps(told, sort_keys=True)
    assert (score("exact", plain, done, compat=False) == 1) == same


@given(expected=items.filter(bool), done=calls)
def test_the_stricter_the_mode_the_lower_the_score(
    expected: list[dict[str, object]], done: list[TracedCall]
):
    plain = untimed(expected)
    exact, in_order, superset = (
        score(mode, plain, done, compat=False) for mode in ("exact", "in_order", "superset")
    )
    assert exact <= in_order <= superset


@given(expected=items, done=calls)
def test_what_is_allowed_stays_allowed_with_fewer_calls(
    expected: list[dict[str, object]], done: list[TracedCall]
):
    if score("subset", expected, done, compat=False) == 1:
        assert score("subset", expected, done[1:], compat=False) == 1


@given(expected=items.filter(bool), done=calls, tool=tools)
def test_what_is_forbidden_spoils_all_and_nothing_else_changes(
    expected: list[dict[str, object]], done: list[TracedCall], tool: str
):
    without = score("in_order", expected, done, compat=False)
    bounded = score("in_order", expected, done, compat=False, forbidden=[tool])
    called = any(call.tool == tool for call in done)
    assert bounded == (0 if called else without)
