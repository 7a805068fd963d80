"""Rules of `tool-trajectory`, where go-ent's differ from AgentV's and where they do not."""

import pytest
from rules_stage import call, graded, path, score, steps, trace, trajectory

from goent.evals.suites import GraderSpec
from goent.evals.traces import Trace, TracedCall, TracedMessage

EDITS: dict[str, object] = {"edits": [{"old_string": "x"}]}


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
        unknown = "the calls of the subagent of `task` are unknown"
        assert (unknown in grade.assertions[-1].text) is hidden
    for one in graded(spec, Trace(messages=(own, its)), compat=True).grades:
        assert not any("unknown" in each.text for each in one.assertions)


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


def test_one_call_is_called_once():
    (counted,) = graded(trajectory("any_order", minimums={"a": 2}), path("a")).grades
    assert counted.assertions[0].text.endswith("a: called once, at least 2 wanted")
    limits = GraderSpec(type="execution-metrics", name="m", settings={"max_tool_calls": 1})
    (counted,) = graded(limits, path("a")).grades
    assert counted.assertions[0].text == "1 tool call, at most 1"
