"""Somebody watches an evaluation: at a terminal, and in a file."""

import re
import subprocess
import sys
from pathlib import Path

import eval_play
import msgspec
import pytest
from desk import Person
from rich.console import Console

from goent.cli.eval_progress import (
    EvalProgress,
    ProgressCounter,
    ProgressSnapshot,
    RetriedAttempt,
    RunningTrial,
    cost_text,
    draw_progress,
    rate_text,
)
from goent.evals.eval_ports import StreamLogFile
from goent.evals.eval_results import Row
from goent.evals.runner.attempt_recorder import RunPlan
from goent.evals.traces import TargetFailure

PLAY = str(Path(eval_play.__file__))
SUITE = """\
name: demo
execution: {target: slow}
tests:
  - {id: good, input: say x, assertions: [{type: contains, value: x}]}
  - {id: bad, input: say y, assertions: [{type: contains, value: y}]}
"""
SHELL = "import os, sys; os.execv('/bin/sh', ['sh', *sys.argv[1:]])"
MOVES = re.compile(r"\x1b\[\??[\d;]*[ABCDEFGHJKhl]")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_tally(total: int = 10, kept: int = 0) -> tuple[ProgressCounter, Clock]:
    clock = Clock()
    tally = ProgressCounter(clock)
    tally.planned(RunPlan(total=total, kept=kept, targets=("t", "u"), out=Path()))
    return tally, clock


def ended(number: int, target: str = "t", cost: float | None = 0.5) -> Row:
    return Row(
        test_id=f"case-{number}",
        suite="demo",
        target=target,
        score=1,
        execution_status="ok",
        cost_usd=cost,
    )


def drawn(now: ProgressSnapshot, width: int = 100) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(draw_progress(now, width, lambda row: f"because of {row.test_id}"))
    return captured.get()


def test_rate_and_time_left_are_those_of_the_last_seconds():
    tally, clock = a_tally(total=100, kept=20)
    assert tally.snapshot().rate is None
    for number in range(10):
        tally.ended(ended(number))
    clock.now += 5
    now = tally.snapshot()
    assert (now.done, now.ended, now.rate, now.left_s) == (30, 10, 2.0, 35.0)
    clock.now += 60
    tally.snapshot()
    for number in range(10, 20):
        tally.ended(ended(number))
    clock.now += 10
    assert tally.snapshot().rate == pytest.approx(10 / 70)


def test_the_slowest_target_tells_when_all_is_done():
    clock = Clock()
    tally = ProgressCounter(clock)
    plan = RunPlan(total=20, kept=0, targets=("t", "u"), out=Path(), to_make={"t": 10, "u": 10})
    tally.planned(plan)
    tally.snapshot()
    for number in range(9):
        tally.ended(ended(number))
    tally.ended(ended(9, "u"))
    clock.now += 10
    now = tally.snapshot()
    assert (now.rate, now.left_s) == (1.0, 90.0)


def test_what_is_under_way_is_known_until_it_ended_whoever_ended_it():
    tally, _ = a_tally()
    first, second = eval_play.attempt(1, "t"), eval_play.attempt(2, "u")
    tally.began(first)
    tally.began(second)
    tally.failed(RetriedAttempt(first, TargetFailure(kind="x", message="y"), 1.0, first.target))
    assert tally.snapshot().running == (RunningTrial("u", "demo", "case-2", 1),)
    tally.began(eval_play.attempt(1, "fallback"))
    tally.ended(ended(1, "t"))
    tally.ended(ended(2, "u"))
    now = tally.snapshot()
    assert (now.running, now.retries, now.passed) == ((), 1, 2)


def test_a_cost_that_is_not_known_is_not_left_out():
    tally, _ = a_tally()
    assert cost_text(tally.snapshot()) == ""
    tally.ended(ended(1, cost=None))
    assert cost_text(tally.snapshot()) == "cost unknown"
    tally.ended(ended(2))
    assert cost_text(tally.snapshot()) == "at least $0.5000"
    tally.ended(msgspec.structs.replace(ended(3), judge_cost_usd=0.25))
    assert cost_text(tally.snapshot()) == "at least $1.00, judges $0.2500"


@pytest.mark.parametrize(
    ("rate", "said"), [(0.05, "3.0/min"), (1.25, "1.2/s"), (10, "10/s"), (5000, "5,000/s")]
)
def test_a_pace_is_said_so_that_it_tells_something(rate: float, said: str):
    assert rate_text(rate) == said


def test_before_the_plan_is_known_nothing_is_counted():
    assert drawn(ProgressCounter(Clock()).snapshot()) == "preparing · 0s\n"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_board_fits_however_narrow_the_terminal_is(width: int):
    tally, clock = a_tally(total=40, kept=3)
    for number in range(30):
        now = eval_play.attempt(number, "t" if number % 2 else "u\x1b[2J")
        tally.began(now)
        if number < 25:
            tally.ended(eval_play.row(number, now.target))
    clock.now += 2
    lines = drawn(tally.snapshot(), width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert "\x1b" not in "".join(lines)
    assert "28/40" in lines[0]
    assert len(lines[-1]) <= width - 2  # else the ^C of a terminal would begin a line of its own
    if width >= 80:
        assert lines[1].startswith("✓ 19 passed   ✗ 4 failed   ! 2 errors   3 already done")
        assert lines[2].split() == ["t", "3", "running", "case-25,", "case-27,", "case-29"]
        assert "because of case-24" in lines[-1]


@pytest.mark.spec("E07")
def test_a_log_is_shown_when_it_is_chosen_and_once(capsys: pytest.CaptureFixture[str]):
    lines = EvalProgress()
    for path in ("/a.jsonl", "/b\x1b[2J.jsonl", "/a.jsonl"):
        lines.log(
            StreamLogFile(file_path=path, target_name="coder", eval_case_id="greets", attempt=1)
        )
    assert capsys.readouterr().err.splitlines() == [
        "OpenCode logs:",
        "  log 1: /a.jsonl  (coder greets attempt 2)",
        "  log 2: /b[2J.jsonl  (coder greets attempt 2)",
    ]


def test_without_a_terminal_each_case_is_a_line_and_nothing_moves(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, PLAY, str(tmp_path), "20", "0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b" not in done.stderr + done.stdout
    lines = done.stderr.splitlines()
    assert sum(bool(re.match(r"\d+/22 [✓✗!] demo / case-", line)) for line in lines) == 20
    assert "3/22 ✓ demo / case-0 · coder 1.00 (340 ms, $0.0020)" in lines
    assert "6/22 ✗ demo / case-3 · echo[2J 0.25 (1.2 s, $0.0010): says-hello 0.25" in lines
    assert "8/22 ! demo / case-5 · echo[2J error: timeout: not done after [31m600 s" in lines
    assert "↻ demo / case-1 · echo[2J retry in 2 s: server_died: gone" in lines
    assert "go-ent: the log folder cannot be made" in lines
    assert lines.count("OpenCode logs:") == 1
    assert "! some cases had errors: 15 of 20 cases passed, 3 failed, 2 with errors" in done.stdout


@pytest.mark.spec("E07")
def test_a_terminal_has_a_board_that_is_gone_in_the_end(tmp_path: Path):
    person = Person(str(tmp_path), "40", "3", cwd=tmp_path, program=(PLAY,))
    person.sees("OpenCode logs:")
    person.sees("retried")
    person.sees("failed")
    person.sees("says-hello 0.25")
    person.sees("go-ent eval run demo.yaml --resume")
    assert person.leaves() == 0
    assert person.seen.count("x0.jsonl") == person.seen.count("x4.jsonl") == 1
    assert person.seen.count("\x1b[?25l") == person.seen.count("\x1b[?25h") == 1
    assert "\x1b[2J" not in person.seen and "Traceback" not in person.seen


def test_the_summary_can_be_read_on_a_narrow_terminal_and_its_commands_copied(tmp_path: Path):
    person = Person(str(tmp_path), "30", "0", cwd=tmp_path, program=(PLAY,), env={"COLUMNS": "80"})
    assert person.leaves() == 0
    seen = re.sub(r"\x1b\[[\d;]*m", "", person.seen)
    head, *cells = seen[seen.index("TARGET") :].splitlines()[:5]
    assert head.split() == ["TARGET", "PASSED", "RATE", "MEAN", "SCORE", "ERRORS", "COST", "MEDIAN"]
    assert "…" not in "".join(cells) and all(len(line) <= 80 for line in (head, *cells))
    assert cells[0].split()[:3] == ["coder", "12/14", "86%"]
    assert "  go-ent eval run demo.yaml --resume  # the rest" in seen


def test_an_interrupted_board_is_cleared_and_numbers_alone_go_to_stdout(tmp_path: Path):
    (tmp_path / ".goent").mkdir()
    (tmp_path / ".goent" / "targets.yaml").write_text(
        "targets: [{name: slow, provider: mock, response: x, delay_ms: 60000}]\n"
    )
    (tmp_path / "demo.eval.yaml").write_text(SUITE)
    line = f"exec {sys.executable} -m goent eval run demo.eval.yaml --json --out out > told.json"
    person = Person("-c", line, cwd=tmp_path, program=("-c", SHELL))
    person.sees("2 running")
    person.types("\x03")
    assert person.leaves() == 130
    assert person.seen.count("\x1b[?25l") == person.seen.count("\x1b[?25h") == 1
    told = msgspec.json.decode((tmp_path / "told.json").read_bytes())
    assert (told["planned"], told["unrun"], told["result"]) == (2, 2, "empty")


def test_ten_thousand_cases_are_not_drawn_one_by_one(tmp_path: Path):
    person = Person(str(tmp_path), "10000", "0", cwd=tmp_path, program=(PLAY,))
    assert person.leaves() == 0
    assert person.seen.count("retried") < 300  # at most ten a second
    assert "of 10,000 cases passed" in person.seen


def test_a_dumb_terminal_gets_lines(tmp_path: Path):
    person = Person(str(tmp_path), "5", "0", cwd=tmp_path, program=(PLAY,), env={"TERM": "dumb"})
    assert person.leaves() == 0
    assert "7/7" in person.seen
    assert not MOVES.search(person.seen)


def test_a_real_run_at_a_terminal(tmp_path: Path):
    (tmp_path / ".goent").mkdir()
    (tmp_path / ".goent" / "targets.yaml").write_text(
        "targets: [{name: slow, provider: mock, response: x, delay_ms: 700, workers: 1}]\n"
    )
    (tmp_path / "demo.eval.yaml").write_text(SUITE)
    person = Person("eval", "run", "demo.eval.yaml", "--out", "out", cwd=tmp_path)
    person.sees("1 running")
    person.sees("1/2 · 50 %")
    assert person.leaves() == 1
    assert "✗ demo / bad · slow 0.00" in person.seen
    assert "contains-y: The answer lacks 'y'; it is '" in person.seen
    assert "out/bad/trace.json" in person.seen
    assert "✗ failed: 1 of 2 cases passed, 1 failed" in person.seen
    assert "go-ent eval report out --html report.html" in person.seen
