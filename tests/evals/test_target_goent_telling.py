"""What a worker's events become in a trace, and what a target's settings may say."""

from decimal import Decimal
from pathlib import Path

import pytest
from eval_stage import case_of

from goent.cli.daemon_link import open_daemon_link
from goent.domain.errors import ConfigError
from goent.domain.events import (
    AnyEvent,
    EventEnvelope,
    FailedOver,
    TextDelta,
    Thought,
    ToolCall,
    TurnEnded,
    TurnStarted,
    UsageReported,
    WorkerSpawned,
)
from goent.domain.types import Usage
from goent.evals.eval_ports import CaseAttempt
from goent.evals.files.target_reader import load_targets
from goent.evals.suites import SuiteLocation, TargetSpec
from goent.evals.targets.goent_attempt import WorkerTranscript
from goent.evals.targets.goent_target import (
    GoentTarget,
    GoentTargetSettings,
    goent_mistakes,
    spawn_request,
)
from goent.evals.targets.target_settings import read_target_settings
from goent.evals.traces import Trace

SPAWNED = WorkerSpawned(
    task="x",
    cwd="/x",
    provider="glm",
    backend="moonshot",
    model="glm-4",
    method="acp",
    reason="",
    permissions="edit",
    isolation="shared",
)
STARTED = TurnStarted(turn=1, prompt="x")
DONE = TurnEnded(turn=1, state="completed")


def told(*events: AnyEvent) -> Trace:
    telling = WorkerTranscript()
    for at, event in enumerate(events):
        telling.add(EventEnvelope(seq=at + 1, at=float(at), worker="w-aaaaa", event=event))
    return telling.trace()


def spent(cost: str | None) -> UsageReported:
    return UsageReported(
        provider="glm",
        model="glm-4",
        usage=Usage(input=10, output=2, cache_read=5, cache_write=3, reasoning=1),
        cost_usd=None if cost is None else Decimal(cost),
        source="gateway",
    )


def test_messages_keep_their_order_and_their_tools():
    trace = told(
        SPAWNED,
        STARTED,
        TextDelta(text="I lo", message="1"),
        TextDelta(text="ok.", message="1"),
        ToolCall(id="a", tool="read", status="pending"),
        ToolCall(id="a", tool="read", status="running", input={"path": "x"}),
        ToolCall(id="a", tool="read", status="completed", output="42"),
        Thought(text="hm", message="2"),
        ToolCall(id="b", tool="bash", status="running", input={"command": "false"}),
        ToolCall(id="b", tool="bash", status="failed", output="no"),
        TextDelta(text="It is 42.", message="3"),
        DONE,
    )
    assert [(m.content, [c.id for c in m.tool_calls]) for m in trace.messages] == [
        ("I look.", ["a"]),
        ("", ["b"]),
        ("It is 42.", []),
    ]
    read, ran = trace.calls
    assert (read.input, read.output, read.status) == ({"path": "x"}, "42", "ok")
    assert (read.start_time, read.end_time) == (
        "1970-01-01T00:00:04.000Z",
        "1970-01-01T00:00:06.000Z",
    )
    assert read.duration_ms == 2000
    assert (ran.output, ran.status) == ("no", "error")
    assert trace.duration_ms == 10_000


def test_an_agent_that_does_not_number_its_messages_begins_anew_after_its_tools():
    trace = told(
        SPAWNED,
        TextDelta(text="First."),
        ToolCall(id="a", tool="read", status="completed"),
        TextDelta(text="Second."),
    )
    assert [m.content for m in trace.messages] == ["First.", "Second."]


def test_a_call_that_is_told_only_at_its_end_has_no_duration():
    (made,) = told(SPAWNED, ToolCall(id="a", tool="read", status="completed")).calls
    assert (made.start_time, made.duration_ms) == (None, None)
    assert made.end_time is not None


def test_a_call_that_never_ended_is_of_unknown_status():
    (made,) = told(SPAWNED, ToolCall(id="a", tool="read", status="running")).calls
    assert (made.status, made.end_time) == ("unknown", None)


def test_tokens_and_money_are_summed():
    trace = told(SPAWNED, STARTED, spent("0.1"), spent("0.2"), DONE)
    assert trace.usage
    assert (trace.usage.input, trace.usage.cached) == (26, 10)
    assert (trace.usage.output, trace.usage.reasoning) == (6, 2)
    assert trace.cost_usd == pytest.approx(0.3)
    assert trace.llm_calls == 2


def test_one_unknown_price_makes_the_cost_unknown():
    assert told(SPAWNED, spent("0.1"), spent(None)).cost_usd is None


def test_nothing_told_of_tokens_is_unknown_and_not_zero():
    trace = told(SPAWNED, STARTED, DONE)
    assert (trace.usage, trace.cost_usd, trace.llm_calls) == (None, None, None)


def test_who_worked_on_it_is_told_unless_several_did():
    trace = told(SPAWNED)
    assert trace.by
    assert (trace.by.provider, trace.by.worker) == ("glm", "w-aaaaa@0.000")
    moved = FailedOver(from_provider="glm", to_provider="kimi", reason="down")
    assert told(SPAWNED, moved).by is None


def spec(**settings: object) -> TargetSpec:
    return TargetSpec(
        name="mine",
        kind="goent",
        settings=settings,
        place=SuiteLocation(file="targets.yaml", line=3),
    )


@pytest.mark.spec("E20")
def test_settings_become_the_task_of_a_worker(tmp_path: Path):
    told = read_target_settings(
        spec(subprovider="glm", method="serve", permissions="auto", budget_usd=1, verify=["make"]),
        GoentTargetSettings,
    )
    attempt = CaseAttempt(case=case_of("do it"), target="mine", cwd=tmp_path)
    asked = spawn_request(attempt, told.candidates[0], told, cwd=str(tmp_path), limit_s=9.0)
    assert (asked.task, asked.provider, asked.method) == ("do it", "glm", "serve")
    assert (asked.isolation, asked.permissions) == ("shared", "auto")
    assert (asked.budget_usd, asked.timeout_s, asked.verify) == (1, 9.0, ("make",))
    assert (asked.cwd, asked.wait_s) == (str(tmp_path), 0.0)


def test_a_racer_has_the_targets_settings_but_not_its_model():
    told = read_target_settings(
        spec(method="api", model="glm-4", race=["kimi", {"method": "agent"}]), GoentTargetSettings
    )
    assert [(c.subprovider, c.model, c.method) for c in told.candidates] == [
        ("kimi", None, "api"),
        (None, "glm-4", "agent"),
    ]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"modell": "x"}, "modell"),
        ({"race": [{"modell": "x"}, "b"]}, "modell"),
        ({"permission_policy": "maybe"}, "permission_policy"),
        ({"budget_usd": 0}, "budget_usd"),
    ],
)
def test_a_mistake_in_the_settings_is_named(settings: dict[str, object], named: str):
    with pytest.raises(ConfigError, match=named) as caught:
        GoentTarget(spec(**settings), lambda: open_daemon_link(Path()))
    assert "targets.yaml" in str(caught.value)


def test_a_misspelt_key_in_the_file_is_told_with_its_line(tmp_path: Path):
    folder = tmp_path / ".goent"
    folder.mkdir()
    (folder / "targets.yaml").write_text("targets:\n  - {name: w, provider: goent, modle: x}\n")
    with pytest.raises(ConfigError, match=r"targets.yaml:2.*modle") as caught:
        load_targets(tmp_path, {})
    assert "'model'" in str(caught.value)


def test_nobody_races_alone():
    ((path, said),) = goent_mistakes({"race": ["alone"]})
    assert (path, said.partition(";")[0]) == ("race", "has one candidate")
    assert not list(goent_mistakes({"race": ["one", {"subprovider": "two"}]}))


def test_a_temperature_is_for_racers_that_are_called_directly():
    race = ["one", {"subprovider": "two", "method": "api"}]
    ((path, said),) = goent_mistakes({"temperature": 0, "race": race})
    assert path == "race[0]" and "add `method: api`" in said
    assert not list(goent_mistakes({"temperature": 0, "method": "api", "race": ["one", "two"]}))
