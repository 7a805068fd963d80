"""What a person reads when a swarm is over."""

import pytest
from swarm_daemon import SWARM, merged, result, task

from goent.cli.swarm_display import (
    hunk_text,
    is_complete,
    show_conflicts,
    show_merged,
    show_swarm_summary,
    show_swarms,
    swarm_has_succeeded,
)
from goent.domain.swarm_messages import LeftOver, MergePlan, SwarmLine, SwarmList, Totals
from goent.domain.types import Check, Failure, Usage
from goent.domain.workspace import Conflict

Capture = pytest.CaptureFixture[str]
HUNK = "<<<<<<< api\nreturn 1\n||||||| base\nreturn 0\n=======\nreturn 2\n>>>>>>> docs\n"
LIMITED = Failure(kind="rate_limited", message="429 three times", retry_with="kimi")
API = task(
    "api",
    "completed",
    provider="glm",
    evidence="verified",
    files=3,
    added=120,
    removed=14,
    tokens=41_200,
    cost_usd=0.0213,
    seconds=62.0,
)
LINT = task("lint", "failed", provider="glm", failure=LIMITED, tokens=12, seconds=3.0)


def shown(capsys: Capture) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_each_task_has_a_line_and_each_failure_its_reason(capsys: Capture):
    show_swarm_summary(result(API, LINT, state="failed"))
    assert shown(capsys) == [
        f"✗ {SWARM} tidy-up failed",
        "TASK    STATE      EVIDENCE  FILES  +/-       PROVIDER  TOKENS     COST   TIME  WORKER",
        "✓ api   completed  verified      3  +120 -14  glm          41k  $0.0213  1m02s  w-api",
        "✗ lint  failed                   -            glm           12        ?     3s  w-lint",
        "✗ lint: rate_limited: 429 three times; retry with kimi",
        "",
        "PROVIDER  WORKERS  TOKENS  COST",
        "glm       2        1,200   $0.5000",
        "",
        "merge plan: api",
        "",
        "next:",
        f"  go-ent swarm retry {SWARM} --elsewhere  retry lint on another provider",
        "  go-ent output w-lint                    messages and tool calls of lint",
        f"  go-ent swarm merge {SWARM}              merge the work into a branch, checked",
    ]


def test_totals_are_by_provider_and_never_hide_an_unknown_price(capsys: Capture):
    glm = Totals(workers=1, usage=Usage(input=42_000), cost_usd=0.25)
    kimi = Totals(workers=2, usage=Usage(input=900), cost_usd=None)
    show_swarm_summary(result(API, totals={"glm": glm, "kimi": kimi}, cost_usd=None))
    lines = [line.split() for line in shown(capsys)]
    assert ["glm", "1", "42k", "$0.2500"] in lines
    assert ["kimi", "2", "900", "unknown", "price"] in lines
    assert ["total", "3", "43k", "unknown", "price"] in lines


def test_conflicts_are_told_apart_by_kind_with_their_hunks(capsys: Capture):
    show_conflicts(
        (
            Conflict(kind="file_overlap", path="a.py", tasks=("api", "docs")),
            Conflict(kind="hunk_conflict", path="b.py", tasks=("api", "docs"), hunks=(HUNK,)),
            Conflict(kind="semantic", path="", tasks=("api",), detail="make test exits 2"),
            Conflict(kind="hunk_conflict", path="c.py", tasks=("docs", "lint"), hunks=(HUNK,)),
        )
    )
    lines = shown(capsys)
    assert [line for line in lines if line and not line.startswith("    ")] == [
        "hunk_conflict: the same lines, changed differently",
        "  b.py (api, docs)",
        "  c.py (docs, lint)",
        "semantic: merges, but a verify command fails on the merge",
        "  (all) (api): make test exits 2",
        "file_overlap: the same file, edited by several",
        "  a.py (api, docs)",
    ]
    assert lines[3:10] == [f"    {line}" for line in HUNK.splitlines()]


def test_each_side_of_a_conflict_has_its_colour():
    drawn = hunk_text(HUNK)
    styles = [str(span.style) for span in drawn.spans]
    assert styles == ["bold", "green", "bold", "dim", "bold", "cyan", "bold"]
    assert [str(s.style) for s in hunk_text("@@ -1 +1 @@\n-a\n+b\n c").spans[:3]] == [
        "cyan",
        "red",
        "green",
    ]


def test_a_hunk_cannot_steer_the_terminal():
    assert hunk_text("a\x1b[2J\r").plain == "    a[2J"


def test_what_is_left_out_says_what_to_do(capsys: Capture):
    left = LeftOver(task="docs", reason="conflicts with api", instructions="git switch x\nsolve it")
    show_swarm_summary(result(API, plan=MergePlan(order=("api",), left=(left,))))
    lines = shown(capsys)
    at = lines.index("left out: docs: conflicts with api")
    assert lines[at + 1 : at + 3] == ["    git switch x", "    solve it"]


def test_who_is_left_out_for_the_same_reason_shares_a_line(capsys: Capture):
    left = tuple(LeftOver(task=name, reason="cancelled") for name in ("a", "b"))
    stopped = task("a", "cancelled"), task("b", "cancelled")
    show_swarm_summary(result(*stopped, state="cancelled", plan=MergePlan(order=(), left=left)))
    lines = shown(capsys)
    assert "left out: a, b: cancelled" in lines
    assert lines[-1] == f"  go-ent swarm retry {SWARM}  retry 2 tasks"


def test_a_merge_tells_the_branch_the_checks_and_the_next_step(capsys: Capture):
    passed = Check(command="make test", exit=0, tail="")
    show_merged(merged("api", "docs", verify=(passed,), evidence="verified"))
    assert shown(capsys) == [
        "✓ merged api, docs into go-ent/tidy-up/merged (0123456789), verified",
        "  verify  ✓ make test",
        "",
        "next:",
        "  git diff HEAD...go-ent/tidy-up/merged  review it",
        "  git merge go-ent/tidy-up/merged        merge it",
    ]


def test_a_refuted_merge_is_not_offered(capsys: Capture):
    broken = Check(command="make test", exit=2, tail="1 failed")
    show_merged(merged("api", verify=(broken,), evidence="refuted"))
    out = "\n".join(shown(capsys))
    assert "✗ merged api into go-ent/tidy-up/merged (0123456789), refuted" in out
    assert "✗ make test (exit 2) 1 failed" in out
    assert "git merge" not in out


def test_what_is_applied_needs_no_next_step(capsys: Capture):
    show_merged(merged("api", applied="main"))
    assert shown(capsys) == [
        "~ merged api into go-ent/tidy-up/merged (0123456789), not checked",
        "  applied  main was fast-forwarded",
    ]
    show_merged(merged("api", branch=None, commit=None), dry_run=True)
    assert shown(capsys) == ["✓ would merge api"]
    show_merged(merged())
    assert shown(capsys) == ["✗ merged nothing"]


@pytest.mark.parametrize(
    ("state", "evidence", "done"),
    [
        ("completed", "verified", True),
        ("completed", "claimed", True),
        ("completed", "refuted", False),
        ("failed", None, False),
        ("blocked", None, False),
    ],
)
def test_done_is_completed_and_not_refuted(state: str, evidence: str | None, *, done: bool):
    assert swarm_has_succeeded(result(API, task("b", state, evidence=evidence))) is done


def test_a_merge_is_whole_if_nothing_is_left_or_refuted():
    assert is_complete(merged("api"))
    assert not is_complete(merged("api", evidence="refuted"))
    assert not is_complete(merged("api", left=(LeftOver(task="b", reason="x"),)))


def test_swarms_are_listed(capsys: Capture):
    show_swarms(SwarmList(swarms=()))
    assert shown(capsys) == ["no swarms; `go-ent swarm TASKS.yaml` starts one"]
    one = SwarmLine(
        swarm_id=SWARM,
        swarm="tidy-up",
        state="running",
        done=1,
        total=4,
        cost_usd=0.2,
        started_at="2020-01-01T00:00:00+00:00",
    )
    show_swarms(SwarmList(swarms=(one,)))
    heads, row = shown(capsys)
    assert heads.split() == ["SWARM", "NAME", "STATE", "DONE", "COST", "AGE"]
    assert row.split()[:6] == [SWARM, "tidy-up", "●", "running", "1/4", "$0.2000"]
