"""What scripts are told of an attempt, as AgentV would."""

import json
import sys
from typing import Any

import msgspec
import pytest
from judged import ScriptedJudge, a_case, a_trace
from sandboxed import eval_commands

from goent.evals.graders.case_grader import ask_and_grade
from goent.evals.graders.grader_kind import GraderTools
from goent.evals.suites import GraderSpec, SuiteDialect
from goent.evals.traces import TokenUsage, Trace, TracedCall, TracedMessage

pytestmark = pytest.mark.anyio

ECHO = "import json, sys; print(json.dumps({'score': 1, 'details': json.load(sys.stdin)}))"
SCRIPT = GraderSpec(
    type="code-grader", name="echo", settings={"command": [sys.executable, "-I", "-c", ECHO]}
)
CALLS = (
    TracedCall(tool="read", id="1", input={"p": 1}, output="text", status="ok", duration_ms=5),
    TracedCall(tool="bash", id="2", status="error", end_time="2026-01-01T00:00:00Z"),
    TracedCall(tool="read", id="3", duration_ms=7.5),
)


async def told(trace: Trace, form: SuiteDialect = "v4") -> Any:
    found = await ask_and_grade(
        a_case(SCRIPT, form=form),
        trace,
        threshold=0.8,
        compat=False,
        tools=GraderTools(
            commands=eval_commands({"PATH": "/usr/bin:/bin"}), judge=ScriptedJudge("no")
        ),
    )
    return json.loads(msgspec.json.encode(found.grades[0].details))


async def test_a_script_reads_how_often_and_how_long_each_tool_was_called():
    summary = {
        "event_count": 3,
        "tool_calls": {"read": 2, "bash": 1},
        "tool_durations": {"read": [5, 7.5]},
        "error_count": 1,
        "llm_call_count": 1,
    }
    assert (await told(a_trace("Good morning.", *CALLS)))["trace_summary"] == summary


async def test_a_script_reads_the_whole_trace_from_what_was_asked_to_the_answer():
    trace = msgspec.structs.replace(
        a_trace("Good morning.", *CALLS), usage=TokenUsage(input=3), cost_usd=0.5
    )
    given = (await told(trace))["trace"]
    assert [(one["role"], one["content"]) for one in given["messages"]] == [
        ("user", "Greet Ann."),
        ("assistant", "Good morning."),
    ]
    assert (given["schema_version"], given["cost_usd"]) == ("agentv.trajectory.v1", 0.5)
    assert (given["event_count"], given["token_usage"]["input"]) == (3, 3)
    events = given["events"]
    assert [(one["ordinal"], one["type"]) for one in events] == [
        (0, "message"),
        (1, "message"),
        (2, "tool_call"),
        (3, "tool_result"),
        (4, "tool_call"),
        (5, "tool_call"),
        (6, "final_response"),
    ]
    assert events[2]["tool"] == {
        "name": "read",
        "call_id": "1",
        "status": "ok",
        "input": {"p": 1},
        "output": "text",
    }
    assert (events[4]["tool"]["status"], events[5]["duration_ms"]) == ("error", 7.5)
    assert events[3]["parent_event_id"] == events[2]["event_id"]
    assert events[6]["message"]["content"] == "Good morning."


async def test_what_was_said_in_a_conversation_is_told_once():
    messages = (
        TracedMessage(role="user", content="Greet Ann."),
        TracedMessage(role="assistant", content="Good morning."),
    )
    given = await told(Trace(messages=messages))
    assert [one["role"] for one in given["trace"]["messages"]] == ["user", "assistant"]


async def test_the_first_form_has_older_names_in_its_summary():
    summary = (await told(a_trace("x", *CALLS), form="seed"))["trace_summary"]
    assert summary["tool_names"] == ["bash", "read"]
    assert summary["tool_calls_by_name"] == summary["tool_calls"] == {"read": 2, "bash": 1}
    assert (summary["event_count"], summary["cost_usd"]) == (3, None)
