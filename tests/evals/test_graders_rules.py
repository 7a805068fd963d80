"""Each grader's own rules, where go-ent's differ from AgentV's and where they do not."""

from typing import Any

import pytest

from goent.evals.graders.grading import grade, mistakes
from goent.evals.grades import Graded
from goent.evals.suites import Case, Form, GraderSpec, Said
from goent.evals.traces import CallStatus, TokenUsage, Trace, TracedCall, TracedMessage


def case(*graders: GraderSpec, form: Form = "v4", threshold: float | None = None) -> Case:
    said = (Said(role="user", text="do it"),)
    return Case(id="c", suite="s", form=form, input=said, graders=graders, threshold=threshold)


def trace(*calls: TracedCall, answer: str = "Hello World") -> Trace:
    return Trace(messages=(TracedMessage(role="assistant", content=answer, tool_calls=calls),))


def call(
    tool: str, status: CallStatus = "ok", ms: float | None = None, **given: object
) -> TracedCall:
    return TracedCall(tool=tool, input=given, status=status, duration_ms=ms)


def path(*names: str) -> Trace:
    return trace(*map(call, names))


def steps(*names: str) -> list[dict[str, str]]:
    return [{"tool": name} for name in names]


def trajectory(mode: str, **settings: object) -> GraderSpec:
    return GraderSpec(type="tool-trajectory", name="tt", settings={"mode": mode, **settings})


EDITS: dict[str, object] = {"edits": [{"old_string": "x"}]}


def text(kind: str, value: object, **more: Any) -> GraderSpec:
    return GraderSpec(type=kind, name=kind, settings={"value": value}, **more)


def graded(
    spec: GraderSpec | Case, done: Trace, *, compat: bool = False, form: Form = "v4"
) -> Graded:
    whole = spec if isinstance(spec, Case) else case(spec, form=form)
    return grade(whole, done, threshold=0.8, compat=compat)


def score(
    spec: GraderSpec | Case, done: Trace, *, compat: bool = False, form: Form = "v4"
) -> float:
    return graded(spec, done, compat=compat, form=form).score


@pytest.mark.parametrize(
    ("spec", "done", "agentv", "ours"),
    [
        (trajectory("exact", expected=steps("a", "b")), path("a", "b", "c"), 1, 2 / 3),
        (trajectory("in_order", expected=steps("a", "b", "c")), path("a", "c"), 1 / 3, 2 / 3),
        (
            trajectory("in_order", expected=[{"tool": "read", "args": {"p": 2}}]),
            trace(call("read", p=1), call("read", p=2)),
            0,
            1,
        ),
        (
            trajectory("superset", expected=[{"tool": "r"}, {"tool": "r", "args": {"p": 1}}]),
            trace(call("r", p=1), call("r", p=2)),
            0.5,
            1,
        ),
        (trajectory("in_order", expected=steps("bash")), path("Bash"), 0, 1),
        (trajectory("subset", expected=[]), path("a"), 0, 0),
        (trajectory("subset", expected=[]), path(), 1, 1),
        (trajectory("subset", expected=steps("a")), path("a", "a", "b"), 2 / 3, 2 / 3),
        (trajectory("any_order", minimums={"a": 2, "b": 1}), path("a", "b"), 0.5, 0.5),
        (trajectory("exact", expected=steps("a")), Trace(), 0, 0),
    ],
)
def test_a_trajectory_by_both_rules(spec: GraderSpec, done: Trace, agentv: float, ours: float):
    assert score(spec, done, compat=True) == pytest.approx(agentv)
    assert score(spec, done) == pytest.approx(ours)


@pytest.mark.parametrize("compat", [True, False])
def test_arguments_are_exact_in_tests_and_partial_in_evalcases(compat: bool):
    spec = trajectory("in_order", expected=[{"tool": "a", "args": {"x": 1}}])
    done = trace(call("a", x=1, y=2))
    assert score(spec, done, compat=compat, form="v4") == 0
    assert score(spec, done, compat=compat, form="seed") == 1


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (text("contains", "BOB"), "The answer lacks 'BOB'; it is 'HELLO, ANN!'"),
        (text("equals", "yes"), "Expected 'yes', got 'HELLO, ANN!'"),
        (text("ends-with", "."), "The answer does not end with '.'; it is 'HELLO, ANN!'"),
        (text("regex", "^A"), "The answer does not match /^A/; it is 'HELLO, ANN!'"),
        (
            text("contains-all", ["ANN", "BOB"]),
            "Of ['ANN', 'BOB'] the answer lacks ['BOB']; it is 'HELLO, ANN!'",
        ),
        (text("contains", "ANN", negate=True), "The answer contains 'ANN'"),
    ],
)
def test_a_text_that_does_not_fit_is_told_with_the_answer(spec: GraderSpec, told: str):
    found = grade(case(spec), trace(answer="HELLO, ANN!\n"), threshold=0.8, compat=False)
    assert [(one.text, one.passed) for one in found.grades[0].assertions] == [(told, False)]


def test_of_a_long_answer_the_end_that_was_looked_at_is_told():
    long = trace(answer="<" + "x" * 5000 + ">")
    specs = (text("starts-with", "y"), text("ends-with", "y"))
    found = grade(case(*specs), long, threshold=0.8, compat=False)
    start, end = (one.assertions[0].text for one in found.grades)
    assert start == f"The answer does not start with 'y'; it is '<{'x' * 99}'…"
    assert end == f"The answer does not end with 'y'; it is …'{'x' * 99}>'"


def test_true_is_not_one():
    spec = trajectory("exact", expected=[{"tool": "a", "args": {"x": [1]}}])
    assert score(spec, trace(call("a", x=[True]))) == 0


@pytest.mark.parametrize(("ms", "agentv", "ours"), [(50, 1, 1), (200, 0.5, 0.5), (None, 1, 0.5)])
def test_a_slow_call_is_half_a_call_and_so_is_one_of_unknown_time(
    ms: float | None, agentv: float, ours: float
):
    spec = trajectory("exact", expected=[{"tool": "a", "max_duration_ms": 100}])
    assert score(spec, trace(call("a", ms=ms)), compat=True) == agentv
    assert score(spec, trace(call("a", ms=ms))) == ours


def test_a_forbidden_tool_spoils_everything():
    spec = trajectory("in_order", expected=steps("read"), forbidden=["web*"])
    assert score(spec, path("read")) == 1
    assert score(spec, path("read", "WebFetch")) == 0
    assert score(spec, path("read", "WebFetch"), compat=True) == 1


def test_a_tool_may_be_called_so_often_and_no_more():
    spec = trajectory("any_order", max={"bash": 2})
    assert score(spec, path("bash", "bash")) == 1
    assert score(spec, path("bash", "bash", "bash")) == 0


def test_the_last_edit_is_followed_by_a_test():
    spec = trajectory("any_order", followed_by={"edit": "bash"})
    assert score(spec, path("edit", "bash")) == 1
    assert score(spec, path("edit", "bash", "edit")) == 0
    assert score(spec, path("read")) == 1


def test_what_a_subagent_calls_is_not_the_agents_and_still_forbidden():
    task = TracedCall(tool="task", id="c1")
    ran = TracedMessage(role="assistant", content="ran", tool_calls=(call("bash"),), parent="c1")
    told = TracedMessage(role="assistant", tool_calls=(task, call("read")))
    done = Trace(messages=(told, ran), llm_calls=2)
    assert done.answer == ""
    own = trajectory("exact", expected=steps("task", "read"))
    assert score(own, done) == score(own, done, compat=True) == 1
    every = trajectory("exact", expected=steps("task", "bash", "read"), subagents=True)
    assert score(every, done) == 1
    assert score(trajectory("any_order", minimums={"bash": 1}), done) == 0
    assert score(trajectory("any_order", forbidden=["bash"]), done) == 0
    assert score(trajectory("any_order", followed_by={"bash": "read"}), done) == 1
    most = GraderSpec(type="execution-metrics", name="m", settings={"max_tool_calls": 2})
    assert (score(most, done), score(most, done, compat=True)) == (0, 1)
    asked = GraderSpec(type="execution-metrics", name="m", settings={"max_llm_calls": 1})
    assert (score(asked, done), score(asked, done, compat=True)) == (0, 1)


@pytest.mark.parametrize(
    "spec",
    [
        trajectory("any_order", forbidden=["bash"]),
        GraderSpec(type="execution-metrics", name="m", settings={"target_exploration_ratio": 0}),
        GraderSpec(type="execution-metrics", name="m", settings={"max_tool_calls": 2}),
        GraderSpec(
            type="skill-trigger", name="s", settings={"skill": "x", "should_trigger": False}
        ),
    ],
)
def test_a_count_says_that_a_subagents_calls_are_not_known(spec: GraderSpec):
    """Not every target tells of them."""
    own = TracedMessage(role="assistant", tool_calls=(TracedCall(tool="task", id="c1"),))
    its = TracedMessage(role="assistant", parent="c1")
    for messages, hidden in (((own,), True), ((own, its), False)):
        (grade,) = graded(spec, Trace(messages=messages)).grades
        assert grade.score == 1
        unknown = "what the subagent of `task` called is not known"
        assert (unknown in grade.assertions[-1].text) is hidden
    for one in graded(spec, Trace(messages=(own, its)), compat=True).grades:
        assert not any("not known" in each.text for each in one.assertions)


def test_a_subagents_calls_belong_to_the_last_call_of_that_id_before_them():
    """Some models number their calls anew in each message."""
    task = TracedCall(tool="task", id="task:0")
    done = Trace(
        messages=tuple(
            TracedMessage(role="assistant", tool_calls=(each,), parent=parent)
            for each, parent in (
                (task, None),
                (call("read"), "task:0"),
                (call("edit"), None),
                (task, None),
                (call("bash"), "task:0"),
            )
        )
    )
    found = [(depth, each.tool) for depth, each in done.all_calls]
    assert found == [(0, "task"), (1, "read"), (0, "edit"), (0, "task"), (1, "bash")]


def test_calls_of_a_subagent_that_nobody_made_come_last():
    """A trace that was cut off may lack the call itself."""
    lost = TracedMessage(role="assistant", tool_calls=(call("bash"),), parent="c9")
    done = Trace(messages=(lost, *path("read").messages))
    assert [(depth, each.tool) for depth, each in done.all_calls] == [(0, "read"), (1, "bash")]


def test_a_call_that_failed_is_not_the_one_that_should_succeed():
    spec = trajectory("in_order", expected=[{"tool": "bash", "status": "ok"}])
    assert score(spec, trace(call("bash", "error"))) == 0
    assert score(spec, trace(call("bash", "error"), call("bash"))) == 1


def test_only_calls_that_end_as_asked_for_are_counted():
    spec = trajectory("any_order", minimums={"bash": 2}, status="ok")
    one, two = call("bash"), call("bash", "error")
    assert (score(spec, trace(one, two)), score(spec, trace(one, one))) == (0, 1)
    assert score(spec, trace(one, two), compat=True) == 1
    (told,) = graded(spec, trace(one, two)).grades
    assert told.assertions[0].text == "bash: called once with status ok, at least 2 wanted"
    both = trajectory("any_order", minimums={"a": 1}, expected=steps("b"), status="error")
    assert score(both, trace(call("a", "error"), call("b"))) == 0.5


@pytest.mark.parametrize(
    ("bound", "names"),
    [
        ({"forbidden": ["bash"]}, ("bash",)),
        ({"max": {"bash": 1}}, ("bash", "bash")),
        ({"followed_by": {"edit": "bash"}}, ("bash", "edit")),
    ],
)
def test_a_bound_looks_at_calls_of_every_status(bound: dict[str, object], names: tuple[str, ...]):
    spec = trajectory("any_order", expected=steps("read"), status="ok", **bound)
    failed = [call(name, "error") for name in names]
    assert score(spec, trace(call("read"), *failed)) == 0


@pytest.mark.parametrize(
    ("expected", "called", "fits"),
    [
        ("edit", "patch", 1),
        ("Edit", "apply_patch", 1),
        ("edit", "MultiEdit", 1),
        ("bash", "shell", 1),
        ("patch", "patch", 1),
        ("patch", "edit", 0),
        ("shell", "bash", 0),
        ("edit", "write", 0),
    ],
)
def test_who_edits_in_another_way_edits(expected: str, called: str, fits: int):
    spec = trajectory("in_order", expected=steps(expected))
    assert score(spec, path(called)) == fits
    assert score(spec, path(called), compat=True) == float(expected == called)
    assert score(trajectory("any_order", forbidden=[expected]), path(called)) == 1 - fits


@pytest.mark.parametrize(
    ("how", "args", "given", "fits"),
    [
        ("exact", {"file_path": "a"}, {"filePath": "a"}, 1),
        ("exact", {"filePath": "a"}, {"file_path": "a"}, 1),
        ("superset", {"file_path": "a"}, {"FilePath": "a", "limit": 1}, 1),
        ("subset", {"file_path": "a", "limit": 1}, {"filePath": "a"}, 1),
        ("glob", {"file_path": "src/*"}, {"filePath": "src/a.py"}, 1),
        (["edits[0].old_string"], EDITS, {"edits": [{"oldString": "x"}]}, 1),
        ("exact", {"file_path": "a"}, {"path": "a"}, 0),
        ("exact", {"file_path": "a"}, {"filePath": "a", "FilePath": "a"}, 0),
        ("superset", {"file_path": "a"}, {"file_path": "b", "filePath": "a"}, 0),
        ("superset", {"file_path": "a", "filePath": "a"}, {"filePath": "a"}, 0),
    ],
)
def test_how_a_key_of_arguments_is_spelt_does_not_count_where_the_spelt_one_is_not_there(
    how: object, args: dict[str, object], given: dict[str, object], fits: int
):
    items = [{"tool": "t", "args": args, "args_match": how}]
    spec = trajectory("in_order", expected=items)
    done = trace(TracedCall(tool="t", input=given))
    assert (score(spec, done), score(spec, done, compat=True)) == (fits, 0)


@pytest.mark.parametrize(
    ("how", "pattern", "fits"),
    [("glob", "src/*.py", 1), ("glob", "*.js", 0), ("regex", r"a\.py$", 1), ("regex", "(", 0)],
)
def test_arguments_can_be_patterns(how: str, pattern: str, fits: int):
    items = [{"tool": "read", "args": {"path": pattern}}]
    spec = trajectory("in_order", expected=items, args_match=how)
    assert score(spec, trace(call("read", path="src/a.py", limit=3))) == fits


@pytest.mark.parametrize(
    ("spec", "answer", "fits"),
    [
        (text("equals", " a "), "a\n", True),
        (text("starts-with", "a"), "  ab", True),
        (text("icontains", "ÄB"), "xäb", True),
        (text("icontains-all", ["A", "c"]), "ab", False),
        (text("regex", "a$"), "a\n", False),
        (text("regex", r"(?<n>a)\k"), "a", False),
        (text("regex", "(?<n>[$]+)$"), "a$$", True),
        (text("regex", r"^\d$"), "٣", False),
        (text("regex", r"^[\d]$"), "٣", False),
        (text("regex", r"^\w+$"), "ä", False),
        (text("regex", r"^[\W]$"), "ä", True),
        (text("regex", r"^[^\W]$"), "ä", False),
        (text("regex", r"^\D[\D]$"), "٣x", True),
        (text("regex", r"(?<q>['\"]).*\k<q>"), "say 'a'", True),
        (text("regex", r"^\u{41}[\u{42}]$"), "AB", True),
        (text("regex", "a[^]b"), "a\nb", True),
        (text("regex", "a[]|b"), "a", False),
        (text("regex", "a.b"), "a\rb", False),
        (text("regex", "^[[&&]$"), "[", True),
        (text("contains_any", ["x", "b"]), "ab", True),
        (text("contains", 5), "5", False),
        (GraderSpec(type="is-json", name="j"), "[1", False),
    ],
)
def test_a_text_fits_or_not(spec: GraderSpec, answer: str, fits: bool):
    for compat in (True, False):
        assert score(spec, trace(answer=answer), compat=compat) == float(fits)


def test_what_is_unknown_is_not_within_a_limit():
    for kind, settings in [("latency", {"threshold": 9}), ("cost", {"budget": 9.0})]:
        assert score(GraderSpec(type=kind, name="l", settings=settings), trace()) == 0


def test_tokens_are_counted_in_one_way():
    usage = TokenUsage(input=100, output=50, cached=25)
    done = Trace(messages=trace().messages, usage=usage)
    metrics = GraderSpec(type="execution-metrics", name="m", settings={"max_tokens": 160})
    total = GraderSpec(type="token-usage", name="t", settings={"max_total": 160})
    assert (score(metrics, done, compat=True), score(total, done, compat=True)) == (1, 0)
    assert (score(metrics, done), score(total, done)) == (0, 0)


@pytest.mark.parametrize("compat", [True, False])
def test_a_required_grader_that_fails_fails_the_case(compat: bool):
    good, bad = text("contains", "Hello", weight=9.0), text("contains", "zz", required=True)
    assert score(case(good, bad), trace(), compat=compat) == 0
    lenient = text("contains", "zz", required=True, min_score=0.0)
    assert score(case(good, lenient), trace(), compat=compat) == pytest.approx(0.9)


def test_a_required_member_fails_its_composite():
    members = (text("contains", "Hello", weight=9.0), text("contains", "zz", required=True))
    spec = GraderSpec(type="composite", name="c", members=members)
    assert (score(spec, trace()), score(spec, trace(), compat=True)) == (0, 0.5)


def test_a_seed_suite_knows_the_borderline():
    spec = trajectory("in_order", expected=steps("a", "b", "c"))
    found = graded(spec, path("a", "b"), compat=True, form="seed")
    assert found.grades[0].verdict == "borderline"
    assert graded(spec, path("a", "b"), compat=True).grades[0].verdict == "fail"


def test_negation_turns_score_and_assertions():
    found = graded(text("contains", "zz", negate=True), trace()).grades[0]
    assert (found.score, found.verdict, found.assertions[0].passed) == (1, "pass", True)


def test_a_grader_that_cannot_look_does_not_pass_by_negation():
    found = graded(text("regex", "(", negate=True), trace())
    assert (found.score, found.grades[0].verdict) == (0, "fail")


def test_a_days_spelling_does_not_count():
    expected = (TracedMessage(role="assistant", content={"d": "2025-01-15"}),)
    fields = {"fields": [{"path": "d", "match": "date"}]}
    spec = GraderSpec(type="field-accuracy", name="f", settings=fields)
    said = (Said(role="user", text="x"),)
    whole = Case(id="c", suite="s", form="v4", input=said, graders=(spec,), expected=expected)
    assert score(whole, trace(answer='so: ```json\n{"d": "15-JAN-2025"}\n```')) == 1
    assert score(whole, trace(answer='it is {"d": "2025-01-16"}')) == 0
    assert score(whole, trace(answer="no {json")) == 0
    assert score(whole, trace(answer="[" * 100_000)) == 0
    assert score(whole, trace(answer='so {"d":' + "[" * 100_000)) == 0


@pytest.mark.parametrize(
    ("one", "used"),
    [
        (call("skill", name="s"), 1),
        (call("Read", file_path="/x/skills/s/SKILL.md"), 1),
        (TracedCall(tool="bash", output="cat skills/s/SKILL.md"), 1),
        (call("skill", name="t"), 0),
    ],
)
def test_a_skill_is_used_by_name_file_or_output(one: TracedCall, used: int):
    spec = GraderSpec(type="skill-trigger", name="k", settings={"skill": "s"})
    assert score(spec, trace(one)) == used


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (text("contains", "x", weight=0.0), "weight above 0"),
        (text("magic", "x"), "'magic'"),
        (text("regex", "("), "regular expression"),
        (trajectory("any_order"), "checks nothing"),
        (trajectory("sideways"), "sideways"),
        (trajectory("any_order", max={"edit": -1}), "`max` of ['edit'] must be 0 or more"),
        (trajectory("any_order", max={"edit": 1}, status="ok"), "bounds look at calls of every"),
        (GraderSpec(type="token-usage", name="t"), "no limit"),
        (GraderSpec(type="composite", name="c"), "without members"),
        (
            GraderSpec(type="field-accuracy", name="f", settings={"fields": [{"path": "zz"}]}),
            "'zz'",
        ),
    ],
)
def test_a_grader_that_can_say_nothing_is_a_mistake_of_the_suite(spec: GraderSpec, word: str):
    (found,) = mistakes(case(spec))
    assert word in found.text


def test_a_sound_case_has_no_mistakes():
    script = GraderSpec(type="code-grader", name="s", settings={"command": ["true"]})
    assert mistakes(case(text("contains", "x"), script)) == ()


def test_one_call_is_called_once():
    (counted,) = graded(trajectory("any_order", minimums={"a": 2}), path("a")).grades
    assert counted.assertions[0].text.endswith("a: called once, at least 2 wanted")
    limits = GraderSpec(type="execution-metrics", name="m", settings={"max_tool_calls": 1})
    (counted,) = graded(limits, path("a")).grades
    assert counted.assertions[0].text == "1 tool call, at most 1"
