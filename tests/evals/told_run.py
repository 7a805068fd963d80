"""The folder of a run that nobody made: rows, traces and grades that look like those of one.

`python told_run.py OUT TRIALS SEED SHIFT` writes one to look at.
"""

import random
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from goent.evals.eval_results import Assertion, CaseGrade, Grade, Row, RowFile, Score, row_line
from goent.evals.traces import (
    PermissionDecision,
    TargetFailure,
    TokenUsage,
    Trace,
    TracedCall,
    TracedMessage,
)

TARGETS: Mapping[str, tuple[float, float, float]] = {  # skill, cost, seconds
    "opencode-glm": (0.80, 0.012, 38),
    "opencode-kimi": (0.88, 0.021, 52),
    "goent-race": (0.94, 0.034, 41),
}
CASES: Mapping[str, float] = {  # how hard
    "fix-off-by-one": 0.1, "rename-across-modules": 0.45, "add-cli-flag": 0.2, "flaky-test": 0.75,
    "write-migration": 0.4, "explain-stack-trace": 0.05, "bump-dependency": 0.3, "split-module": 0.55,
    "fix-race-condition": 0.8, "typed-config": 0.35, "parse-csv-dialect": 0.25, "dead-code": 0.15,
    "sql-injection": 0.5, "unicode-paths": 0.6, "retry-with-backoff": 0.3, "docs-from-code": 0.1,
    "merge-conflict": 0.65, "memory-leak": 0.7, "json-schema": 0.2, "timezone-bug": 0.5,
}  # fmt: skip
DIFF = """diff --git a/src/pages.py b/src/pages.py
--- a/src/pages.py
+++ b/src/pages.py
@@ -12,7 +12,7 @@ def pages(items, size):
     if size < 1:
         raise ValueError(f"{size!r} is no size of a page")
-    count = len(items) // size
+    count = -(-len(items) // size)
     return [items[at * size : (at + 1) * size] for at in range(count)]
"""


def write_run(out: Path, *, trials: int = 3, seed: int = 1, shift: float = 0.0) -> list[Row]:
    """`shift` makes every target so much better."""
    source = random.Random(seed)
    rows = [
        _trial(out, source, case, target, (trial, trials), shift)
        for trial in range(1, trials + 1)
        for case in CASES
        for target in TARGETS
    ]
    file = RowFile(out / "index.jsonl")
    file.append(map(row_line, rows))
    file.close()
    return rows


def _trial(
    out: Path, source: random.Random, case: str, target: str, which: tuple[int, int], shift: float
) -> Row:
    trial, trials = which
    skill, cost, seconds = TARGETS[target]
    ease = min(0.99, max(0.03, skill + shift + 0.22 - CASES[case]))
    well = source.random() < ease
    lost = source.random() < 0.008
    folder = "/".join([case, target, *([f"trial-{trial}"] if trial > 1 else [])])
    taken = seconds * source.lognormvariate(0, 0.5) * (0.5 + CASES[case])
    trace = _trace(source, case, taken, cost, well=well, lost=lost)
    graded = CaseGrade(score=0, status="execution_error") if lost else _graded(source, well=well)
    where = out / folder
    where.mkdir(parents=True)
    (where / "trace.json").write_bytes(msgspec.json.encode(trace))
    (where / "grades.json").write_bytes(msgspec.json.encode(graded))
    failure = trace.failure
    return Row(
        test_id=case,
        suite="repairs",
        target=target,
        score=graded.score,
        execution_status=graded.status,
        scores=tuple(
            Score(name=g.name, type=g.type, score=g.score, verdict=g.verdict, weight=g.weight)
            for g in graded.grades
        ),
        token_usage=trace.usage,
        cost_usd=trace.cost_usd,
        duration_ms=trace.duration_ms,
        trial=trial,
        trials=trials,
        error=f"{failure.kind}: {failure.message}" if failure else None,
        trace_path=f"{folder}/trace.json",
        grades_path=f"{folder}/grades.json",
    )


def _graded(source: random.Random, *, well: bool) -> CaseGrade:
    broken = None if well else source.choice(["tests-pass", "right-files", "no-web"])
    polite = round(source.uniform(0.7, 1), 2)
    grades = [
        _grade("tests-pass", "code-grader", "pytest -q ends with 0", "1 failed, 13 passed in 0.52s", 2, broken),
        _grade("right-files", "tool-trajectory", "edit src/pages.py", "edit src/page.py", 1, broken),
        _grade("no-web", "tool-trajectory", "no call of webfetch", "webfetch was called", 1, broken),
        Grade(
            name="explains-itself", type="llm-grader", score=polite, verdict="pass",
            assertions=(Assertion(text="says what was wrong and why", passed=True),),
        ),
    ]  # fmt: skip
    score = sum(g.score * g.weight for g in grades) / sum(g.weight for g in grades)
    return CaseGrade(
        score=round(score if well else score * source.random(), 4),
        status="ok" if well else "quality_failure",
        grades=tuple(grades),
    )


def _grade(
    name: str, kind: str, text: str, evidence: str, weight: float, broken: str | None
) -> Grade:
    passed = broken != name
    return Grade(
        name=name,
        type=kind,
        score=float(passed),
        verdict="pass" if passed else "fail",
        weight=weight,
        assertions=(Assertion(text=text, passed=passed, evidence="" if passed else evidence),),
    )


def _trace(
    source: random.Random, case: str, taken: float, cost: float, *, well: bool, lost: bool
) -> Trace:
    calls: list[TracedCall] = []
    at = 2.0
    steps = [
        "glob",
        "read",
        "read",
        "edit",
        "bash",
        *(["read", "edit", "bash"] if not well else []),
    ]
    for number, tool in enumerate(steps):
        lasted = source.lognormvariate(0, 0.7) * taken / 14
        given = {
            "glob": {"pattern": "src/**/*.py"},
            "read": {"filePath": "src/pages.py"},
            "edit": {"filePath": "src/pages.py", "oldString": "//", "newString": "-(-…)"},
            "bash": {"command": "pytest -q", "description": "runs the tests"},
        }[tool]
        failing = tool == "bash" and number == 4 and not well
        calls.append(
            TracedCall(
                tool=tool,
                id=f"call_{number}",
                input=given,
                output="1 failed, 13 passed" if failing else "14 passed in 0.41s",
                status="error" if failing else "ok",
                start_time=_moment(at),
                end_time=_moment(at + lasted),
                duration_ms=lasted * 1000,
            )
        )
        at += lasted + source.uniform(0.5, 2.5)
    answer = f"The last page was lost: `//` rounds down. It rounds up now, and {case} has a test."
    return Trace(
        messages=(
            TracedMessage(role="assistant", content="", tool_calls=tuple(calls)),
            TracedMessage(role="assistant", content="" if lost else answer),
        ),
        usage=TokenUsage(
            input=source.randint(4000, 30000), output=source.randint(400, 3000), cached=9000
        ),
        cost_usd=round(cost * source.lognormvariate(0, 0.4), 5),
        duration_ms=taken * 1000,
        llm_calls=len(calls) + 1,
        file_changes=DIFF,
        permissions=(
            PermissionDecision(permission="bash", patterns=("pytest *",), decision="once"),
        ),
        failure=TargetFailure(kind="timeout", message="not done after 300 s") if lost else None,
        partial=lost,
    )


def _moment(seconds: float) -> str:
    return f"2026-11-16T10:{int(seconds // 60):02}:{seconds % 60:06.3f}+00:00"


if __name__ == "__main__":
    write_run(
        Path(sys.argv[1]),
        trials=int(sys.argv[2]),
        seed=int(sys.argv[3]),
        shift=float(sys.argv[4]),
    )
