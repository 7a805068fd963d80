"""A run that is only told, so that its view can be looked at: `python eval_play.py OUT CASES [SECONDS]`."""

import sys
import time
from pathlib import Path

from goent.cli.eval_display import show_run_summary
from goent.cli.eval_progress import open_progress
from goent.evals.eval_ports import CaseAttempt, StreamLogFile
from goent.evals.eval_results import Row, Rows, Score
from goent.evals.runner.attempt_recorder import RunPlan
from goent.evals.suites import EvalCase
from goent.evals.traces import TargetFailure

TARGETS = ("coder", "echo\x1b[2J")


def attempt(number: int, target: str) -> CaseAttempt:
    case = EvalCase(id=f"case-{number}", suite="demo", form="v4", input=())
    return CaseAttempt(case=case, target=target, cwd=Path())


def row(number: int, target: str) -> Row:
    if number % 7 == 3:
        wrong = Score(name="says-hello", type="contains", score=0.25, verdict="fail")
        return Row(
            test_id=f"case-{number}", suite="demo", target=target, score=0.25,
            execution_status="quality_failure", scores=(wrong,), duration_ms=1200, cost_usd=0.001,
        )  # fmt: skip
    if number % 11 == 5:
        return Row(
            test_id=f"case-{number}", suite="demo", target=target, score=0,
            execution_status="execution_error", error="timeout: not done\nafter \x1b[31m600 s",
        )  # fmt: skip
    return Row(
        test_id=f"case-{number}", suite="demo", target=target, score=1, execution_status="ok",
        duration_ms=340, cost_usd=0.002,
    )  # fmt: skip


def play(out: Path, cases: int, seconds: float) -> None:
    rows: list[Row] = []
    with open_progress() as watcher:
        watcher.planned(RunPlan(total=cases + 2, kept=2, targets=TARGETS, out=out))
        watcher.warned("the log folder cannot be made")
        for number in range(cases):
            now = attempt(number, TARGETS[number % 2])
            watcher.began(now)
            if number in {0, 4}:
                for _ in range(2):
                    watcher.log(
                        StreamLogFile(
                            file_path=f"/logs/{'x' * 120}{number}.jsonl",
                            target_name="coder",
                            eval_case_id=f"case-{number}",
                            attempt=0,
                        )
                    )
            if number == 1:
                failure = TargetFailure(kind="server_died", message="gone", retryable=True)
                watcher.failed(now, failure, again_in_s=2, by=now.target)
                watcher.began(now)
            time.sleep(seconds / cases)
            if number < cases - 3:
                rows.append(row(number, now.target))
                watcher.ended(rows[-1])
        time.sleep(seconds / 10)
        for number in range(cases - 3, cases):
            rows.append(row(number, TARGETS[number % 2]))
            watcher.ended(rows[-1])
    show_run_summary(
        Rows(rows=tuple(rows)), out, next_steps=[("go-ent eval run demo.yaml --resume", "the rest")]
    )


if __name__ == "__main__":
    play(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
