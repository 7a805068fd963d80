"""What the commands about routing say to a person."""

import json
import time
from pathlib import Path

import pytest
from desk import OpenDesk

from goent.domain.events import ToolCall
from goent.testing.driver import ScriptedMove, say

TASK = "Refactor the parser so that errors are values"


def test_an_explanation_shows_every_step_and_every_provider(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: []) as desk:
        ended = desk.go_ent("routes", "explain", TASK, "-v")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == "glm (glm-4) by acp"
    assert "the configured default; the task is refactor" in lines[1]
    assert any("▶" in line and "default_provider" in line for line in lines)
    assert any(
        line.startswith("deepseek/deepseek-coder") and "can take it" in line for line in lines
    )
    assert "price unknown" in ended.out and " to $" in ended.out


def test_rules_are_listed_with_what_comes_after_them(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: []) as desk:
        ended = desk.go_ent("routes")
    assert (ended.code, ended.out.splitlines()) == (
        0,
        [
            "no rules; .goent/routing.yaml holds them",
            "then default_provider: glm",
            'then the built-in policy; `go-ent routes explain "a task"` shows all of it at work',
        ],
    )


@pytest.mark.spec("P28")
def test_a_recommendation_tells_why_what_it_costs_and_what_else(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: []) as desk:
        ended = desk.go_ent("recommend", TASK)
        empty = desk.go_ent("recommend", "  ")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("glm (glm-4) by acp\n  why       the configured default")
    assert "  estimate  $" in ended.out and "ELSE" in ended.out
    assert (empty.code, "the task is empty" in empty.err) == (2, True)


def test_a_day_is_replayed_task_by_task_and_in_sum(open_desk: OpenDesk, tmp_path: Path) -> None:
    day = tmp_path / "day.jsonl"
    day.write_text('{"text": "fix it"}\n\n{"text": "read it", "context_tokens": 90000}\n')
    with open_desk(lambda _: []) as desk:
        ended = desk.go_ent("routes", "replay", str(day))
        unknown = desk.go_ent("routes", "replay", str(day), "--best", "gpt")
        day.write_text('{"text": "fix it"}\n{"txt": 1}\n')
        broken = desk.go_ent("routes", "replay", str(day))
    assert ended.code == 0, ended.err
    assert "ALWAYS glm" in ended.out and "total" in ended.out
    assert "the router saves 0% of $" in ended.out, "there is one provider with a price"
    assert (unknown.code, "no provider 'gpt'; there are: glm" in unknown.err) == (2, True)
    assert (broken.code, "line 2" in broken.err) == (2, True)


def test_what_was_learned_is_shown_with_how_little_it_may_be(open_desk: OpenDesk) -> None:
    def work(_: object) -> list[ScriptedMove]:
        return [ToolCall(id="1", tool="edit", status="completed"), say("Done.")]

    with open_desk(work) as desk:
        nothing = desk.go_ent("routes", "learned")
        assert desk.go_ent("run", TASK, "--verify", "true").code == 0
        deadline = time.monotonic() + 20
        while "refactor" not in (told := desk.go_ent("routes", "learned")).out:
            assert time.monotonic() < deadline, told.out  # the lesson is written beside the worker
        figures = json.loads(desk.go_ent("routes", "learned", "--json").out)
    assert nothing.out.splitlines() == [
        "0 outcomes; 0 tasks tell nothing of a worker",
        "note: no outcomes yet: finished tasks give some, best of all with verify commands",
    ]
    assert told.out.startswith("1 outcome; 0 tasks tell nothing of a worker")
    assert "refactor, simple" in told.out and "too few" in told.out
    assert "of 1 task, 1 would have gone where they went" in told.out
    assert "that takes 8 outcomes of a type, with at least two providers" in told.out
    (line,) = figures["classes"]
    assert (line["provider"], line["verified"], line["enough"]) == ("glm", 1, False)
