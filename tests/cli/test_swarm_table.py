"""The table of a swarm that runs: everything in its place, at any width."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console
from swarm_daemon import status, task

from goent.cli.swarm_display import DrawingSize, swarm_table
from goent.domain.swarm_messages import SwarmStatus, TaskLine
from goent.domain.types import Failure

LIMITED = Failure(kind="rate_limited", message="glm-4 answered 429 three times", retryable=True)
TASKS = (
    task(
        "api",
        "completed",
        provider="moonshot/glm-4",
        evidence="verified",
        files=3,
        added=120,
        removed=14,
        tokens=41_200,
        cost_usd=0.0213,
        seconds=62.0,
    ),
    task(
        "docs",
        "running",
        provider="moonshot/kimi-k2",
        step="edit docs/interfaces.md",
        tokens=3201,
        cost_usd=0.0011,
        seconds=32.0,
        attempts=2,
    ),
    task(
        "tests",
        "waiting",
        provider="deepseek/coder",
        step="asks for bash: make test",
        tokens=800,
        seconds=12.0,
        permission="q1",
    ),
    task("lint", "failed", provider="moonshot/glm-4", failure=LIMITED, seconds=3.0),
    task("site", "pending"),
    task("news", "blocked"),
)


def drawn(now: SwarmStatus, width: int, height: int | None = None, keys: str = "") -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(swarm_table(now, DrawingSize(width=width, height=height), keys))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return [line.rstrip() for line in lines]


def test_all_is_told_in_80_columns():
    assert drawn(status(*TASKS), 80, 24, "[y] yes, once  [n] no") == [
        "task     state       provider  step                       tokens     cost   time",
        "✓ api    completed   glm-4     verified, +120 -14, 3 fi…     41k  $0.0213  1m02s",
        "● docs   running x2  kimi-k2   edit docs/interfaces.md     3,201  $0.0011    32s",
        "? tests  waiting     coder     asks for bash: make test      800        ?    12s",
        "✗ lint   failed      glm-4     rate_limited: glm-4 answ…                      3s",
        "· site   pending",
        "- news   blocked",
        "███████████████▒▒▒▒▒▒▒▒▒▒░░░░░  3/6 · $0.5000 of $2.00 · 1m05s · 1 question open",
        "[y] yes, once  [n] no",
    ]


def test_140_columns_have_room_for_whole_names():
    heads, api, _, _, lint, *_ = drawn(status(*TASKS), 140)
    assert heads.split() == ["task", "state", "provider", "step", "tokens", "cost", "time"]
    assert "moonshot/glm-4    verified, +120 -14, 3 files" in api
    assert "rate_limited: glm-4 answered 429 three times" in lint


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 70])
def test_a_narrow_terminal_loses_columns_but_never_a_state(width: int):
    lines = drawn(status(*TASKS), width)
    assert len(lines) == 8
    assert [line.split()[2] for line in lines[1:7]] == [one.state for one in TASKS]


@pytest.mark.parametrize("height", [8, 10, 24])
def test_many_tasks_fit_the_screen_and_none_is_forgotten(height: int):
    states = ["completed"] * 14 + ["running"] * 2 + ["pending"] * 12 + ["failed", "waiting"]
    tasks = [task(f"t{n}", state) for n, state in enumerate(states)]
    lines = drawn(status(*tasks), 80, height, "[y] yes")
    assert len(lines) <= height
    shown = [line.split()[1] for line in lines[1:-3]]
    assert {"t14", "t15", "t28", "t29"} <= set(shown)
    assert shown == sorted(shown, key=lambda name: int(name[1:]))
    assert lines[-3].startswith("  … and ")
    hidden = sum(int(word) for word in lines[-3].replace(",", "").split() if word.isdigit())
    assert hidden + len(shown) == len(tasks)


@pytest.mark.parametrize(
    ("tasks", "bar"),
    [
        ([task("a", "pending")], "░" * 30),
        ([task("a", "running")], "▒" * 30),
        ([task("a", "completed")], "█" * 30),
        ([task("a", "completed"), task("b", "running"), task("c", "pending")], "█▒░"),
    ],
)
def test_the_bar_is_as_long_as_the_work(tasks: Sequence[TaskLine], bar: str):
    foot = drawn(status(*tasks), 120)[-1]
    assert foot.startswith(bar if len(bar) > 3 else "".join(sign * 10 for sign in bar))


def test_only_verified_work_is_green():
    tasks = [task("a", "completed", evidence="claimed"), task("b", "completed")]
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system="standard")
    console.print(swarm_table(status(*tasks), DrawingSize(width=90)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "~ a" in text
    assert "✓" not in text
    assert "\x1b[32m" not in text


def test_what_went_wrong_is_red_in_the_bar():
    tasks = [
        task("a", "completed", evidence="verified"),
        task("b", "completed", evidence="refuted"),
        task("c", "failed"),
    ]
    console = Console(file=io.StringIO(), width=90, force_terminal=True, color_system="standard")
    console.print(swarm_table(status(*tasks), DrawingSize(width=90)))
    assert isinstance(console.file, io.StringIO)
    assert f"\x1b[32m{'█' * 10}\x1b[0m\x1b[31m{'█' * 20}" in console.file.getvalue()


def test_a_price_that_is_not_known_is_no_zero():
    foot = drawn(status(task("a", "running"), cost_usd=None, budget_usd=None), 80)[-1]
    assert foot.endswith("0/1 · cost unknown · 1m05s")


def test_a_task_that_runs_again_has_not_failed():
    lines = drawn(status(task("a", "running", failure=LIMITED), cost_usd=None), 80)
    assert lines[1].split() == ["●", "a", "running", "retry", "after", "rate_limited"]
    assert lines[-1].endswith("cost unknown, budget $2.00 · 1m05s")


def test_a_worker_cannot_steer_the_terminal():
    lines = drawn(status(task("a", "running", step="\x1b[2Jgone\nand\tmore")), 80)
    assert lines[1] == "● a   running              [2Jgone and more"
