"""`go-ent eval run --resume`: whatever a run is made of has a digest, and is told if it has changed."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from goent.cli.main import run_cli

FILES: Mapping[str, str] = {
    ".goent/targets.yaml": """\
targets:
  - {name: echo, provider: mock, response: x}
  - {name: tape, provider: replay, fixtures: tape.jsonl}
""",
    "tape.jsonl": '{"test_id": "one", "text": "x"}\n',
    "demo.eval.yaml": """\
name: demo
execution: {targets: [echo, tape]}
workspace: {template: ./sample, hooks: {before_each: {command: [sh, hook.sh], cwd: .}}}
tests: ./cases.yaml
""",
    "cases.yaml": """\
- id: one
  input: [{role: user, content: [{type: file, value: a.txt}, {type: file, value: go.prompt.md}]}]
  assertions:
    - {include: polite}
    - {type: code-grader, command: "cat >/dev/null; sh grade.sh"}
    - {type: llm-grader, prompt: judge.md, target: echo, weight: 0.001}
""",
    ".goent/templates/polite.yaml": "assertions: [{type: contains, value: x}]\n",
    "data.jsonl": '{"id": "two", "input": "x"}\n',
    "data.eval.yaml": "execution: {target: echo}\nassertions: [{type: contains, value: x}]\n",
    "a.txt": "a",
    "go.prompt.md": "go",
    "grade.sh": "echo 1\n",
    "judge.md": "Judge {{output}}.",
    "hook.sh": "exit 0\n",
    "sample/deep/b.txt": "b",
}
RUN = ("eval", "run", "demo.eval.yaml", "data.jsonl", "--out", "out")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_file_that_a_run_is_made_of_is_told_when_it_has_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert run_cli([*RUN]) in (0, 1), capsys.readouterr().err
    index = (folder / "out" / "index.jsonl").read_bytes()
    assert run_cli([*RUN, "--resume"]) in (0, 1)
    assert "has changed since" not in capsys.readouterr().err

    for name, text in FILES.items():
        (folder / name).write_text(text + "\n")
        run_cli([*RUN, "--resume"])
        told = [line for line in capsys.readouterr().err.splitlines() if "has changed" in line]
        named = folder / ("sample" if name.startswith("sample") else name)
        assert len(told) == 1, (name, told)
        assert f"{named} has changed since: finished trials keep their results" in told[0]

    (folder / "sample" / "deep" / "b.txt").rename(folder / "sample" / "deep" / "c.txt")
    run_cli([*RUN, "--resume"])
    assert f"{folder / 'sample'} has changed since" in capsys.readouterr().err
    assert (folder / "out" / "index.jsonl").read_bytes() == index


def test_what_git_and_runs_write_into_a_template_is_no_change(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "sample" / ".git").mkdir()
    run = [*RUN[:-1], "sample/out"]
    assert run_cli(run) in (0, 1), capsys.readouterr().err
    (folder / "sample" / ".git" / "index").write_text("changed")
    manifest = json.loads((folder / "sample/out/run.json").read_text())
    del manifest["files"][str(folder / "a.txt")]  # an older go-ent did not look at it
    (folder / "sample/out/run.json").write_text(json.dumps(manifest))
    assert run_cli([*run, "--resume"]) in (0, 1)
    assert "has changed since" not in capsys.readouterr().err


def test_rows_of_cases_that_the_suites_no_longer_have_count_nowhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    suite = folder / "two.eval.yaml"
    case = "  - {id: %s, input: x, assertions: [{type: contains, value: %s}]}\n"
    suite.write_text("execution: {target: echo}\ntests:\n" + case % ("a", "x") + case % ("b", "y"))
    run = ["eval", "run", "two.eval.yaml", "--out", "out", "--json"]
    assert run_cli(run) == 1
    suite.write_text("execution: {target: echo}\ntests:\n" + case % ("a", "x") + case % ("c", "x"))
    capsys.readouterr()
    note = "1 row is of a case or trial that the suites no longer have: left out"
    for command in ([*run, "--resume"], ["eval", "report", "out", "--json"]):
        assert run_cli(command) == 0
        told = capsys.readouterr()
        totals = json.loads(told.out)["totals"]
        assert (totals["trials"], totals["passed"], totals["failed"]) == (2, 2, 0)
        assert note in told.err
    suite.write_text("execution: {target: echo}\ntests:\n" + case % ("a", "x") + case % ("b", "y"))
    assert run_cli([*run, "--resume"]) == 1  # as it was, it counts again
