"""`go-ent eval run --dry-run`, `--tag` and `validate`: what would be run, and what would be refused, is known before."""

import json
import shlex
from pathlib import Path

import pytest
from desk import Ended

from goent.cli.main import run_cli

SUITE = """\
name: demo
tags: [smoke]
execution: {targets: [echo, other], trials: 2, budget_usd: 2}
tests:
  - {id: one, input: x, tags: [quick, net], assertions: [{type: contains, value: x}]}
  - {id: two, input: x, metadata: {tags: [slow, net]}, assertions: [{type: contains, value: x}]}
  - {id: three, input: x, workspace: {template: ./sample}, assertions: [{type: contains, value: x}]}
"""
TARGETS = """\
targets:
  - {name: echo, provider: cli, command: "touch asked; echo x > {OUTPUT_FILE}", workers: 3}
  - {name: other, provider: mock, response: x, fallback_targets: [echo]}
  - {name: far, provider: azure}
  - {name: tape, provider: replay, fixtures: gone.jsonl}
  - {name: coder, provider: opencode, model: p/m}
"""
JUDGED = """\
name: judged
execution: {target: nobody}
tests: [{id: one, input: x, criteria: good}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("demo.eval.yaml", SUITE),
        ("judged.eval.yaml", JUDGED),
        (".goent/targets.yaml", TARGETS),
        ("sample/a.txt", "a"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


class Desk:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def go_ent(self, *arguments: str) -> Ended:
        code = run_cli(["eval", *arguments])
        said = self._capsys.readouterr()
        return Ended(code, said.out, said.err)

    def planned(self, *options: str) -> list[str]:
        """The cases that would be run."""
        ended = self.go_ent("run", "demo.eval.yaml", "--dry-run", "--json", *options)
        assert ended.code == 0, ended.err
        return [case["test_id"] for case in json.loads(ended.out)["cases"]]


@pytest.fixture
def desk(capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(capsys)


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        ((), ["one", "two", "three"]),
        (("--tag", "net"), ["one", "two"]),
        (("--tag", "net", "--tag", "quick"), ["one"]),
        (("--tag", "smoke", "--exclude-tag", "slow"), ["one", "three"]),
        (("--exclude-tag", "slow", "--exclude-tag", "quick"), ["three"]),
        (("--tag", "net", "--id", "t*"), ["two"]),
    ],
)
def test_cases_are_chosen_by_their_tags_and_those_of_their_suite(
    desk: Desk, options: tuple[str, ...], cases: list[str]
):
    assert desk.planned(*options) == cases


@pytest.mark.parametrize("command", [("run",), ("run", "--dry-run"), ("validate",)])
def test_tags_that_fit_no_case_are_a_mistake_that_names_those_there_are(
    desk: Desk, folder: Path, command: tuple[str, ...]
):
    ended = desk.go_ent(*command, "demo.eval.yaml", "--tag", "smoke", "--exclude-tag", "smoke")
    assert ended.code == 2
    assert "--tag 'smoke' --exclude-tag 'smoke' fits no case" in ended.err
    assert "the tags are net, quick, slow, smoke" in ended.err
    assert not (folder / ".goent" / "evals").exists()


@pytest.mark.parametrize("command", [("run",), ("run", "--dry-run"), ("validate",)])
def test_criteria_that_nobody_reads_are_told(desk: Desk, folder: Path, command: tuple[str, ...]):
    text = "tests: [{id: a, input: x, criteria: c, assertions: [{type: contains, value: x}]}]"
    (folder / "unread.eval.yaml").write_text(text)
    ended = desk.go_ent(*command, "unread.eval.yaml", "--target", "other")
    assert ended.code == 0
    assert "unread.eval.yaml:1: tests[0].criteria: no grader reads it" in ended.out + ended.err


def test_a_run_by_tags_is_gone_on_with_by_the_same(desk: Desk):
    run = ("run", "demo.eval.yaml", "--target", "other", "--out", "out")
    assert desk.go_ent(*run, "--tag", "quick").code == 0
    other = desk.go_ent(*run, "--resume")
    assert other.code == 2
    assert "--tag quick" in other.err
    assert desk.go_ent(*run, "--tag", "quick", "--resume").code == 0


def test_what_would_be_run_is_told_and_nothing_is_started(desk: Desk, folder: Path):
    before = sorted(folder.rglob("*"))
    options = ("--budget-usd", "1", "--workers", "2", "--timeout", "9")
    ended = desk.go_ent("run", "demo.eval.yaml", "--dry-run", "--json", *options)
    assert (ended.code, sorted(folder.rglob("*"))) == (0, before)
    told = json.loads(ended.out)
    assert (told["trials"], told["to_make"], told["out"]) == (12, 12, None)
    assert (told["timeout_s"], told["budget_usd"], told["budgets_usd"]) == (9, 1, {"demo": 2})
    echo, other = told["targets"]
    assert (echo["kind"], echo["to_make"], echo["at_once"]) == ("cli", 6, 2)
    assert (other["kind"], other["fallbacks"]) == ("mock", ["echo"])
    three = told["cases"][2]
    assert (three["targets"], three["trials"], three["graders"]) == (
        ["echo", "other"],
        2,
        ["contains-x"],
    )
    assert three["workspace"] == f"a copy of {folder / 'sample'}"


def test_people_see_a_plan_with_its_judges(desk: Desk):
    ended = desk.go_ent(
        "run", "judged.eval.yaml", "--dry-run", "--target", "other", "--judge", "zai/m"
    )
    assert (ended.code, ended.err) == (0, "")
    assert "llm-grader  zai/m" in ended.out
    assert "zai/m (goent)" in ended.out
    assert "1 trial of 1 case: nothing was started" in ended.out


def test_of_a_run_that_is_there_only_the_rest_would_be_made(desk: Desk, folder: Path):
    run = ("run", "demo.eval.yaml", "--target", "other", "--out", "out")
    assert desk.go_ent(*run).code == 0
    index = folder / "out" / "index.jsonl"
    index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:4]))
    told = json.loads(desk.go_ent(*run, "--resume", "--dry-run", "--json").out)
    assert (told["trials"], told["to_make"]) == (6, 2)
    refused = desk.go_ent(*run, "--dry-run")
    assert refused.code == 2
    assert "--resume" in refused.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "judged.eval.yaml:2: execution.target: there is no target 'nobody'"),
        (("--target", "other"), "case 'one' needs a judge; name one by --judge"),
        (("--target", "other", "--judge", "nobody"), "unknown judge 'nobody'"),
        (
            ("--target", "other", "--judge", "foo/bar"),
            "judge 'foo/bar': unknown provider 'foo'",
        ),
        (("--target", "other", "--judge", "far"), "target 'far': go-ent cannot run 'azure'"),
        (("--target", "tape", "--judge", "other"), "gone.jsonl: cannot be read"),
        (("--target", "other", "--judge", "other", "--targets", "none.yaml"), "none.yaml"),
    ],
)
def test_what_a_run_refuses_is_refused_before_by_whoever_is_asked(
    desk: Desk, folder: Path, options: tuple[str, ...], said: str
):
    run = desk.go_ent("run", "judged.eval.yaml", *options)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    dry = desk.go_ent("run", "judged.eval.yaml", "--dry-run", *options)
    checked = desk.go_ent("validate", "judged.eval.yaml", *options)
    assert (dry.code, dry.err) == (2, run.err)
    assert (checked.code, checked.err) == (2, run.err)
    assert not (folder / ".goent" / "evals").exists()


def test_all_that_is_missing_is_told_at_once(desk: Desk, folder: Path):
    cases = "".join(f"  - {{id: {name}, input: x, criteria: good}}\n" for name in "ab")
    (folder / "two.eval.yaml").write_text(f"tests:\n{cases}")
    for command in ("run", "validate"):
        judges = desk.go_ent(command, "two.eval.yaml", "--target", "tape").err
        assert "case 'a' needs a judge" in judges and "case 'b' needs a judge" in judges
        assert "gone.jsonl: cannot be read" in judges
        assert judges.startswith("go-ent: 3 mistakes\n") and judges.count("go-ent: ") == 1
        targets = desk.go_ent(command, "two.eval.yaml").err
        assert "case 'a' names no target" in targets and "case 'b' names no target" in targets
        unknown = desk.go_ent(command, "two.eval.yaml", "--target", "othr", "--target", "ech").err
        assert unknown.startswith(
            "go-ent: 2 mistakes\n"
            "--target: there is no target 'othr'; did you mean 'other'?\n"
            "--target: there is no target 'ech'; did you mean 'echo'?\n"
        )


def test_settings_that_a_run_refuses_are_refused_before(desk: Desk, folder: Path):
    (folder / ".goent" / "config.yaml").write_text("limits: {workers: many}\n")
    for who in ("coder", "echo"):  # by its gateway, and by a command that must not see keys
        for command in (("validate",), ("run", "--dry-run"), ("run", "--out", "out")):
            refused = desk.go_ent(*command, "demo.eval.yaml", "--target", who)
            assert refused.code == 2
            assert "limits.workers" in refused.err
    assert not (folder / "out").exists()
    (folder / ".goent" / "targets.yaml").write_text("targets: [{name: m, provider: mock}]\n")
    assert desk.go_ent("validate", "demo.eval.yaml", "--target", "m").code == 0


@pytest.mark.parametrize("out", ["demo.eval.yaml", "demo.eval.yaml/below"])
def test_a_folder_that_cannot_be_made_is_refused_before(desk: Desk, out: str):
    run = ("run", "demo.eval.yaml", "--target", "other", "--out", out)
    dry = desk.go_ent(*run, "--dry-run")
    assert dry.code == 2
    assert "cannot hold a run: " in dry.err
    assert desk.go_ent(*run).code == 2


def test_a_run_that_was_stopped_is_gone_on_with_by_a_command_that_can_be_pasted(
    desk: Desk, folder: Path
):
    lines = [f'{{"test_id": "{name}", "text": "x", "cost_usd": 1}}\n' for name in ("one", "two")]
    (folder / "gone.jsonl").write_text("".join(lines))
    run = ("run", "demo.eval.yaml", "--target", "tape", "--id", "one", "--id", "two")
    stopped = desk.go_ent(*run, "--trials", "1", "--out", "out", "--budget-usd", "1.5")
    assert stopped.code == 3
    line = stopped.out.splitlines()[-1]
    assert line.endswith(" --budget-usd 3 --resume  # resume it, for up to $3 in all")
    assert desk.go_ent(*shlex.split(line, comments=True)[2:]).code == 0


def test_whoever_is_asked_next_is_named(desk: Desk, folder: Path):
    (folder / ".goent" / "targets.yaml").write_text(
        "targets:\n"
        "  - name: echo\n    provider: cli\n    command: 'exit 1; : {OUTPUT_FILE}'\n"
        "    fallback_targets: [other]\n"
        "  - {name: other, provider: mock, response: x}\n"
    )
    run = ("run", "demo.eval.yaml", "--target", "echo", "--id", "one", "--trials", "1")
    told = desk.go_ent(*run, "--out", "out")
    assert "↻ demo / one · echo, retrying on other: command_failed" in told.err
    assert " again in " not in told.err
    more = desk.go_ent(*run[:-2], "--out", "out", "--resume")
    assert "(--trials 1 then, none now): use the same options" in more.err
    dry = desk.go_ent(*run, "--out", "out", "--resume", "--dry-run")
    assert "0 trials of 1 case, 1 already made: nothing was started" in dry.out
    assert "a new folder in .goent/evals" in desk.go_ent(*run, "--dry-run").out


def test_what_a_run_takes_is_valid(desk: Desk):
    options = ("--target", "other", "--judge", "other")
    assert desk.go_ent("validate", "judged.eval.yaml", *options).code == 0
    assert desk.go_ent("run", "judged.eval.yaml", *options).code == 1  # no judge says "x"


def test_suites_that_share_their_cases_ask_each_their_own(desk: Desk, folder: Path):
    """Nobody has to be there for a suite that is left out."""
    (folder / "cases.yaml").write_text("- {id: a, input: x, assertions: [{type: is-json}]}\n")
    for name, target in (("here", "other"), ("gone", "nobody")):
        suite = f"tags: [{name}]\nexecution: {{target: {target}}}\ntests: ./cases.yaml\n"
        (folder / f"{name}.eval.yaml").write_text(suite)
    both = ("validate", "here.eval.yaml", "gone.eval.yaml")
    assert "there is no target 'nobody'" in desk.go_ent(*both).err
    assert desk.go_ent(*both, "--tag", "here").code == 0
    assert desk.go_ent(*both, "--tag", "gone").code == 2
