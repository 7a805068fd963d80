"""`go-ent eval validate, compare, report`: real processes and their exit codes."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from desk import Ended

from goent.cli.main import run_cli
from goent.evals.eval_results import Row, RowFile, row_line

SUITE = """\
name: demo
execution: {target: echo, trials: {count: 2}}
tests:
  - {id: says-x, input: say x, assertions: [{type: contains, value: x}]}
  - {id: says-y, input: say y, assertions: [{type: contains, value: y}]}
"""
TWO = ("name: a, provider: mock", "name: b, provider: mock")
TARGETS = "targets: [{name: echo, provider: mock, response: x}]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.eval.yaml").write_text(SUITE)
    (tmp_path / ".goent").mkdir()
    (tmp_path / ".goent" / "targets.yaml").write_text(TARGETS)
    return tmp_path


def go_ent(*arguments: str) -> Ended:
    """A process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "goent", "eval", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def in_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    code = run_cli(["eval", *arguments])
    said = capsys.readouterr()
    return Ended(code, said.out, said.err)


def kept(out: Path, scores: Mapping[str, Sequence[float | None]], target: str = "t") -> Path:
    """A run, by case the scores of its trials; None is a failed attempt."""
    out.mkdir()
    file = RowFile(out / "index.jsonl")
    file.append(
        [
            row_line(
                Row(
                    test_id=case,
                    suite="s",
                    target=target,
                    score=score or 0,
                    execution_status="execution_error"
                    if score is None
                    else ("ok" if score >= 0.8 else "quality_failure"),
                    error="timeout: gone" if score is None else None,
                    trial=trial,
                    trials=len(each),
                    cost_usd=0.01,
                    duration_ms=100,
                )
            )
            for case, each in scores.items()
            for trial, score in enumerate(each, start=1)
        ]
    )
    file.close()
    return out


def test_a_suite_in_order_is_told_in_a_line():
    ended = go_ent("validate", "demo.eval.yaml")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[1].split() == ["demo", "2", "4", "2", "echo", "demo.eval.yaml"]


def test_every_mistake_is_told_and_nothing_is_run(folder: Path):
    (folder / "bad.eval.yaml").write_text(
        "tests:\n  - {id: a, input: x, asertions: []}\n  - {id: a, input: x, criteria: c, tagret: t}\n"
    )
    ended = go_ent("validate", "bad.eval.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert "bad.eval.yaml:2" in ended.err and "bad.eval.yaml:3" in ended.err
    assert "tests[0].asertions" in ended.err and "tests[1].tagret" in ended.err
    first, *mistakes = ended.err.splitlines()
    assert first == f"go-ent: {len(mistakes)} mistakes"
    assert all(
        mistake.startswith(("bad.eval.yaml:2: ", "bad.eval.yaml:3: ")) for mistake in mistakes
    )


def test_mistakes_are_there_for_programs_too(capsys: pytest.CaptureFixture[str], folder: Path):
    (folder / ".goent" / "targets.yaml").write_text("targets: [{name: other, provider: mock}]\n")
    ended = in_here(capsys, "validate", "demo.eval.yaml", "--json")
    told = json.loads(ended.out)
    assert (ended.code, told["valid"]) == (2, False)
    assert any("'echo'" in problem for problem in told["problems"])


def test_a_named_targets_file_takes_the_place_of_the_nearest(
    capsys: pytest.CaptureFixture[str], folder: Path
):
    (folder / "mine.yaml").write_text("targets: [{name: x, provider: nonsense}]\n")
    ended = in_here(capsys, "validate", "demo.eval.yaml", "--targets", "mine.yaml")
    assert ended.code == 2
    assert "mine.yaml:1" in ended.err and "'nonsense'" in ended.err


def test_a_worse_run_is_told_by_the_exit_code(folder: Path):
    kept(folder / "old", {f"c{n}": [1.0] for n in range(10)})
    kept(folder / "new", {f"c{n}": [0.4] for n in range(10)})
    worse = go_ent("compare", "old", "new")
    assert worse.code == 1
    assert "Worse: the mean score changed by -0.600 over 10 cases" in worse.out
    assert "0 won, 10 lost, 0 tied" in worse.out
    assert go_ent("compare", "new", "old/index.jsonl").code == 0


def test_a_difference_that_chance_explains_is_none(
    capsys: pytest.CaptureFixture[str], folder: Path
):
    kept(folder / "old", {"a": [1.0], "b": [1.0], "c": [None], "d": [1.0]})
    kept(folder / "new", {"a": [0.4], "b": [1.0], "c": [1.0]})
    ended = in_here(capsys, "compare", "old", "new")
    assert ended.code == 0
    assert "No difference that the data can show" in ended.out
    assert "1 only in the first run, 1 with failed attempts" in ended.out


def test_several_runs_are_compared_with_the_first(capsys: pytest.CaptureFixture[str], folder: Path):
    for name, score in (("a", 0.5), ("b", 1.0), ("c", 0.1)):
        kept(folder / name, {f"c{n}": [score] for n in range(8)})
    ended = in_here(capsys, "compare", "a", "b", "c", "--json")
    told = json.loads(ended.out)
    assert ended.code == 1
    conclusions = [run["comparison"]["conclusion"] for run in told["after"]]
    assert (told["before"], conclusions) == ("a", ["better", "worse"])
    shown = in_here(capsys, "compare", "a", "b", "c", "--markdown")
    assert shown.out.count("## Comparison") == 2


def test_two_targets_are_compared_in_one_run_or_across_two(
    capsys: pytest.CaptureFixture[str], folder: Path
):
    kept(folder / "a", {f"c{n}": [0.5] for n in range(8)}, target="small")
    kept(folder / "b", {f"c{n}": [1.0] for n in range(8)}, target="large")
    assert "Better" in in_here(capsys, "compare", "a", "b").out
    both = (folder / "a" / "index.jsonl").read_bytes() + (folder / "b" / "index.jsonl").read_bytes()
    (folder / "both").mkdir()
    (folder / "both" / "index.jsonl").write_bytes(both)
    assert in_here(capsys, "compare", "both", "--targets", "large", "small").code == 1
    better = in_here(capsys, "compare", "both", "--targets", "small", "large")
    assert better.code == 0
    assert better.out.startswith("both: small -> large\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "a"), "nothing to compare"),
        (("compare", "a", "gone"), "cannot be read from 'gone/index.jsonl'"),
        (("compare", "a", "b"), "no case of the same target in common"),
        (("compare", "a", "failed"), "of 1 case in both, none was scored in both"),
        (("compare", "a", "--targets", "t", "nobody"), "no target 'nobody' in a; there are 't'"),
        (("report", "begun"), "no trial has ended yet in 'begun'; resume"),
        (("report", "a", "--baseline", "b"), "`go-ent eval compare b a`"),
        (("report", "gone"), "name the folder that a run has written"),
        (("report", "a", "--junit", "a/index.jsonl/x.xml"), "name another file"),
        (
            ("report", "a", "--html", "nowhere/x.html"),
            "the folder 'nowhere' does not exist; create it",
        ),
        (("report", "a", "--junit", "-", "--json"), "stdout takes one report"),
    ],
)
def test_what_cannot_be_done_is_a_mistake_with_a_remedy(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: Sequence[str], said: str
):
    kept(folder / "a", {"x": [1.0]})
    kept(folder / "b", {"y": [1.0]})
    kept(folder / "failed", {"x": [None]})
    (folder / "begun").mkdir()
    manifest: dict[str, object] = {
        "suites": ["demo.eval.yaml"],
        "wanted": {},
        "began": "2026-11-16T10:00:00Z",
    }
    (folder / "begun" / "run.json").write_text(json.dumps(manifest))
    ended = in_here(capsys, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def summary(folder: Path) -> Any:
    ended = go_ent("report", str(folder), "--json")
    assert ended.code == 0
    return json.loads(ended.out)


def test_a_real_run_is_reported_in_every_form(folder: Path):
    suite = SUITE.replace("input: say y,", "input: say y, criteria: it says y,")
    (folder / "demo.eval.yaml").write_text(suite)
    run = go_ent("run", "demo.eval.yaml", "--out", "out")
    assert run.code == 1
    told = summary(folder / "out")
    (target,) = told["targets"]
    assert (told["result"], target["passed"], target["trials"]) == ("failed", 2, 4)
    ended = go_ent(
        "report", "out", "--html", "page.html", "--junit", "junit.xml", "--markdown", "-",
        "--baseline", "out",
    )  # fmt: skip
    assert ended.code == 0
    assert ended.out.startswith("## Evaluation") and "## Comparison" in ended.out
    assert "written: page.html" in ended.err and "written: junit.xml" in ended.err
    root = ET.parse(folder / "junit.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("4", "2")
    page = (folder / "page.html").read_text()
    for words in ("✗ failed", "say y", "it says y", "contains-y", "2 of 4 trials", "Against"):
        assert words in page


def test_a_report_without_options_is_for_people(capsys: pytest.CaptureFixture[str], folder: Path):
    kept(folder / "out", {"good": [1.0], "bad": [0.2], "lost\x1b[2J": [None]})
    ended = in_here(capsys, "report", "out")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "! s / lost[2J · t error"
    assert lines[1] == "    timeout: gone"
    assert "✗ s / bad · t 0.20" in lines
    assert "! some cases had errors: 1 of 3 cases passed, 1 failed, 1 with errors" in lines
    assert "\x1b" not in ended.out


def test_runs_are_listed_and_the_newest_is_reported(
    capsys: pytest.CaptureFixture[str], folder: Path
):
    for command in ("report", "list"):
        assert "no runs in .goent/evals" in in_here(capsys, command).err
    assert in_here(capsys, "run", "demo.eval.yaml", "--id", "says-x").code == 0
    assert in_here(capsys, "run", "demo.eval.yaml").code == 1
    newest, oldest = sorted((folder / ".goent/evals").glob("2*"), reverse=True)
    told = json.loads(in_here(capsys, "list", "--json").out)["runs"]
    assert [run["path"] for run in told] == [str(newest), str(oldest)]
    assert [(run["passed"], run["trials"], run["exit_code"]) for run in told] == [
        (2, 4, 1),
        (2, 2, 0),
    ]
    lines = in_here(capsys, "list").out.splitlines()
    assert lines[0].split()[:2] == ["BEGAN", "(UTC)"]
    assert [line.split()[-1] for line in lines[1:]] == [
        str(run.relative_to(folder)) for run in (newest, oldest)
    ]
    report = in_here(capsys, "report", "--json")
    assert json.loads(report.out)["out"] == str(newest)
    assert f"the newest run: {newest}" in report.err


def test_damaged_lines_are_told_and_the_others_count(
    capsys: pytest.CaptureFixture[str], folder: Path
):
    index = kept(folder / "out", {"a": [1.0]}) / "index.jsonl"
    index.write_bytes(b"rubbish\n" + index.read_bytes())
    ended = in_here(capsys, "report", "out")
    assert "✓ passed: 1 of 1 case" in ended.out
    assert "no row in line 1; it does not count" in ended.err


def test_the_command_line_stays_fast():
    """Nothing of the evaluations is loaded by other commands."""
    program = (
        "import sys; from goent.cli.main import run_cli; run_cli(['--version']); "
        "print([name for name in sys.modules if name.startswith(('goent.evals', 'yaml', 'rich.'))])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.splitlines()[-1] == "[]"


def test_what_was_imported_is_followed_by_what_can_be_done_now(
    capsys: pytest.CaptureFixture[str], folder: Path
):
    data = folder / "data.jsonl"
    data.write_text(
        '{"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "x"}]}\n'
    )
    ended = in_here(capsys, "import", "yaml", "data.jsonl", "-o", "new")
    assert ended.code == 0, ended.err
    assert ended.err.endswith("next: go-ent eval run new/data.eval.yaml\n")
    data.write_text('{"id": "a", "input": "say x", "criteria": "x"}\n')
    for targets, told in (
        (
            [*TWO, "name: default, provider: mock, grader_target: b"],
            "go-ent eval run new/data.eval.yaml",
        ),
        ([*TWO], "go-ent eval run new/data.eval.yaml --target NAME --judge NAME"),
    ):
        rows = ", ".join(f"{{{target}}}" for target in targets)
        (folder / ".goent" / "targets.yaml").write_text(f"targets: [{rows}]")
        ended = in_here(capsys, "import", "yaml", "data.jsonl", "-o", "new", "--force")
        assert ended.err.endswith(f"next: {told}\n"), ended.err
    (folder / ".goent" / "targets.yaml").unlink()
    ended = in_here(capsys, "import", "yaml", "data.jsonl", "-o", "new", "--force")
    assert "next: write a target to .goent/targets.yaml, then go-ent eval run" in ended.err
