"""Nobody takes what `go-ent eval` says: the work is done all the same, and the exit code tells what became of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from goent.evals.runner.run_folder import read_manifest

SUITE = """\
name: demo
tests:
  - {id: a, input: x, assertions: [{type: contains, value: VALUE}]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".goent").mkdir()
    (tmp_path / ".goent/targets.yaml").write_text(
        "targets: [{name: t, provider: mock, response: x}]"
    )
    (tmp_path / "good.eval.yaml").write_text(SUITE.replace("VALUE", "x"))
    (tmp_path / "bad.eval.yaml").write_text(SUITE.replace("VALUE", "y"))
    return tmp_path


def go_ent(line: str) -> "subprocess.CompletedProcess[str]":
    """A line for the shell, behind `go-ent`."""
    return subprocess.run(
        f"exec {sys.executable} -m goent {line}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.parametrize(
    "line", ["eval validate good.eval.yaml", "eval report out --json", "eval list", "--version"]
)
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_what_cannot_be_told_is_no_matter_of_quality(line: str, where: str):
    if "report" in line:
        assert go_ent("eval run good.eval.yaml --out out").returncode == 0
    if "list" in line:
        assert go_ent("eval run good.eval.yaml").returncode == 0
    ended = go_ent(f"{line} {where}")
    assert ended.returncode == 3
    assert ended.stderr.startswith("go-ent: stdout cannot be written: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("where", [">/dev/full", ">&-", "--json >/dev/full", ">/dev/full 2>&-"])
@pytest.mark.parametrize(("suite", "code"), [("good", 3), ("bad", 1)])
def test_a_run_whose_summary_nobody_takes_is_made_and_kept(
    folder: Path, where: str, suite: str, code: int
):
    ended = go_ent(f"eval run {suite}.eval.yaml --out out {where}")
    assert ended.returncode == code
    assert read_manifest(folder / "out").exit_code == (1 if suite == "bad" else 0)
    assert "Traceback" not in ended.stderr
    if "2>&-" not in where:
        last = ended.stderr.splitlines()[-1]
        assert last.startswith("go-ent: the summary cannot be written to stdout: ")
        assert last.endswith("; `go-ent eval report out` shows it")


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_a_run_whose_progress_nobody_takes_ends_as_ever(where: str):
    ended = go_ent(f"eval run bad.eval.yaml --out out {where}")
    assert ended.returncode == 1
    assert "✗ failed: 0 of 1 case passed, 1 failed" in ended.stdout
    assert "1/1" not in ended.stdout and "go-ent: " not in ended.stdout
