"""Suites of others become ours, load without a mistake, and say what was left behind."""

import json
from pathlib import Path

import pytest
from brought_over import brought

from goent.cli.eval_commands import import_suites
from goent.domain.errors import ConfigError
from goent.evals.files.suite_reader import load_suites
from goent.evals.files.suite_validation import validate
from goent.evals.files.target_reader import load_targets
from goent.evals.importers.suite_importer import ImportKind, import_files, write_import
from goent.evals.suites import Suite

GOLDEN = Path(__file__).parent / "compat" / "suite.eval.yaml"


def graders(suite: Suite) -> list[object]:
    return [
        (case.id, g.type, g.name, g.settings, g.weight, g.required, g.negate, len(g.members))
        for case in suite.cases
        for g in case.graders
    ]


def test_the_golden_suite_comes_over_whole(tmp_path: Path) -> None:
    told, suite = brought("agentv", GOLDEN, tmp_path)
    assert told.notes == ()
    (before,) = load_suites([GOLDEN], {}, compat=True)
    assert graders(suite) == graders(before)
    assert [case.expected for case in suite.cases] == [case.expected for case in before.cases]
    assert [case.targets for case in suite.cases] == [case.targets for case in before.cases]


SEED = """
description: old
target: default
evalcases:
  - id: fix
    expected_outcome: "it works: ${{ NAME }}"
    input_messages:
      - {role: system, content: You fix}
      - role: user
        content: [{type: text, value: Fix it}, {type: file, value: ./notes.md}]
    expected_messages: [{role: assistant, content: done}]
    rubrics: [short]
    execution:
      evaluators:
        - {name: t, type: tool_trajectory, mode: in_order, expected: [{tool: a, args: {x: 1}}]}
        - {name: c, type: code_judge, script: "python check.py", cwd: scripts}
        - {name: n, type: new_kind_of_thing}
  - {id: half, expected_outcome: no input}
  - {id: lonely, expected_outcome: x, input_messages: [{role: user, content: y}], evaluators: [{type: odd}]}
"""
TARGETS = """
targets:
  - {name: default, provider: cli, commandTemplate: "run {PROMPT} > {OUTPUT_FILE}", judge_target: judge, verboze: 1}
  - {name: judge, provider: azure, deployment: d}
  - {name: model, provider: anthropic, model: m, api_key: "${{ KEY }}", fallback_targets: [judge, default]}
  - {name: other, use_target: default}
  - {name: m, provider: mock, response: hi, retry_status_codes: [500]}
"""


def test_a_suite_of_the_first_dialect_and_its_targets(tmp_path: Path) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    for path, text in (
        ("evals/old.yaml", SEED),
        (".agentv/targets.yaml", TARGETS),
        ("evals/notes.md", "n"),
        ("evals/scripts/grade", ""),
    ):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    told, suite = brought("agentv", project / "evals" / "old.yaml", out)
    (case,) = suite.cases
    assert (suite.form, case.id, case.targets) == ("v4", "fix", ("default",))
    assert case.input[-1].files == ((project / "evals" / "notes.md").resolve(),)
    assert [grader.type for grader in case.graders] == ["rubrics", "tool-trajectory", "code-grader"]
    assert case.graders[1].settings["args_match"] == "superset"
    assert case.graders[2].settings["cwd"] == "../project/evals/scripts"
    assert "${{ NAME }}" in told.files["old.eval.yaml"]
    targets = load_targets(out, {})
    assert sorted(targets) == ["default", "m", "model", "other"]
    assert told.files[".goent/targets.yaml"].count("- name: ") == len(targets)
    assert targets["default"].settings == {"command": "run {PROMPT} > {OUTPUT_FILE}"}
    assert targets["model"].settings == {
        "subprovider": "anthropic",
        "method": "api",
        "model": "m",
    }
    assert targets["model"].fallbacks == ("default",)
    assert validate([out / "old.eval.yaml"], {}).mistakes == ()
    for expected in (
        "old.yaml, case 'fix': not carried over: a grader of the type 'new-kind-of-thing'",
        "old.yaml, case 'half': not carried over: the whole case: it has no id, no input",
        "old.yaml, case 'lonely': not carried over: the whole case: none of its graders is known",
        "target 'judge': not carried over: the whole target, of provider 'azure'",
        "target 'default': not carried over: grader_target 'judge', which is not there",
        "target 'default': not carried over: verboze",
        "target 'model': not carried over: api_key; go-ent has keys",
        "target 'm': not carried over: retry_status_codes",
    ):
        assert any(expected in note for note in (*told.notes, *told.lost_checks)), (expected, told)


def test_what_the_fourth_dialect_has_and_go_ent_has_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(
        '{"id": "a", "input": "x", "criteria": "c", "depends_on": ["b"]}\n'
        '{"id": "b", "mode": "conversation", "input": "x", "window_size": 2, "turns": [{"input": "y", '
        '"assertions": [{"type": "contains", "value": "y"}, {"type": "other-kind"}]}]}\n'
    )
    (tmp_path / "new.eval.yaml").write_text(
        """
name: new
preprocessors: [x]
execution: {cache: true, targets: [{name: t, use_target: u, hooks: {}}], threshold: 0.5}
workspace: {isolation: shared, template: ., docker: {image: x}, hooks: {before_each: {command: ls}}}
tests: cases.jsonl
"""
    )
    out = tmp_path / "out"
    told, suite = brought("agentv", tmp_path / "new.eval.yaml", out)
    first, talk = suite.cases
    assert (first.needs, talk.conversation and talk.conversation.window) == (("b",), 2)
    assert [grader.name for grader in talk.all_graders] == ["contains-y"]
    assert (suite.threshold, suite.cases[0].targets) == (0.5, ("t",))
    workspace = suite.cases[0].workspace
    assert workspace and workspace.template == tmp_path.resolve() and workspace.before_each
    left = {
        note.partition("not carried over: ")[2].partition(":")[0]
        for note in (*told.notes, *told.lost_checks)
    }
    assert left == {
        "preprocessors",
        "execution.cache",
        "execution.targets.hooks",
        "workspace.isolation",
        "workspace.docker",
        "a grader of the type 'other-kind'",
    }


def test_a_suite_of_the_fourth_dialect_keeps_what_go_ent_does_as_well(tmp_path: Path) -> None:
    path = tmp_path / "new.eval.yaml"
    path.write_text(
        """
execution: {cache: false, fail_on_error: true, targets: [u, {name: t, use_target: u}]}
workspace: {isolation: per_test, mode: temp, repos: [{repo: "https://h.example/x.git", path: ., commit: v1}]}
tests: [{id: a, input: x, assertions: [{type: is-json}]}]
"""
    )
    told, suite = brought("agentv", path, tmp_path / "out")
    assert (told.notes, told.lost_checks) == ((), ())
    assert (suite.fail_on_error, suite.cases[0].targets) == (True, ("u", "t"))
    workspace = suite.cases[0].workspace
    assert workspace and (workspace.repository, workspace.ref) == ("https://h.example/x.git", "v1")


def test_a_data_set_becomes_a_suite_and_a_data_set_again(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"id": "ä", "input": "1e5", "criteria": "c"}\n')
    (tmp_path / "d.eval.yaml").write_text("name: it\nexecution: {target: t}\n")
    out = tmp_path / "out"
    _, suite = brought("yaml", tmp_path / "d.jsonl", out)
    assert (suite.name, suite.cases[0].id, suite.cases[0].input[0].text) == ("it", "ä", "1e5")
    back = import_files("jsonl", [out / "d.eval.yaml"], tmp_path / "back")
    assert json.loads(back.files["d.jsonl"]) == {"id": "ä", "input": "1e5", "criteria": "c"}
    write_import(back, tmp_path / "back")
    (again,) = load_suites([tmp_path / "back" / "d.jsonl"], {})
    assert (again.name, again.cases[0].targets) == ("it", ("t",))


def test_nothing_is_overwritten_unless_it_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a.eval.yaml"
    path.write_text("tests: [{id: a, input: x, criteria: c}]")
    told = import_files("agentv", [path], tmp_path)
    with pytest.raises(ConfigError, match=r"a\.eval\.yaml: there already; --force overwrites"):
        write_import(told, tmp_path)
    assert path.read_text().startswith("tests: [")
    write_import(told, tmp_path, force=True)
    assert path.read_text().startswith("tests:\n- id: a")


@pytest.mark.parametrize(
    ("kind", "name", "text", "words"),
    [
        ("agentv", "a.yaml", "x: 1", "neither tests nor evalcases"),
        ("agentv", "a.yaml", "tests: [", "a.yaml:2: invalid YAML"),
        ("promptfoo", "a.yaml", "tests: []", "has no prompts"),
        ("promptfoo", "a.yaml", "prompts: [hi]", "none of its tests"),
        (
            "promptfoo",
            "a.yaml",
            "prompts: [x]\ntests: file://t.csv",
            "tests from 'file://t.csv': wr",
        ),
        ("promptfoo", "a.yaml", "prompts: [x]\nscenarios: []", "scenarios; write each of them out"),
        ("yaml", "a.yaml", "tests: []", "name a .jsonl file"),
        ("jsonl", "a.yaml", "tests: x.jsonl", "has no list of `tests`"),
        ("yaml", "a.jsonl", "{", "a.jsonl:1: invalid JSON"),
    ],
)
def test_what_is_nothing_of_the_kind_is_refused(
    tmp_path: Path, kind: ImportKind, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        import_files(kind, [tmp_path / name], tmp_path)


def test_a_judge_that_is_missing_is_told_beside_all_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "promptfooconfig.yaml"
    asserted = "[{type: llm-rubric, value: x}, {type: python, value: x}]"
    path.write_text(f"prompts: [hi]\nproviders: [echo]\ntests: [{{assert: {asserted}}}]")
    assert import_suites("promptfoo", [path], out=tmp_path / "out") == 2
    assert "--judge NAME" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_named_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.eval.yaml"
    path.write_text("tests: [{id: a, input: x, criteria: c}]")
    with pytest.raises(ConfigError, match=r"cannot write .*; name another folder by --out"):
        write_import(import_files("agentv", [path], path), path)


def test_the_command_writes_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(
        "prompts: [hi]\nproviders: [echo]\ntests: [{assert: [{type: contains, value: h}]}]\nx: 1"
    )
    assert import_suites("promptfoo", [path], out=tmp_path / "out") == 0
    said = capsys.readouterr()
    assert "not carried over: x" in said.err
    assert said.out.splitlines() == [
        str(tmp_path / "out" / "promptfoo.eval.yaml"),
        str(tmp_path / "out" / ".goent" / "targets.yaml"),
    ]
    path.write_text(
        path.read_text().replace("value: h}", "value: h}, {type: javascript, value: x}")
    )
    assert import_suites("promptfoo", [path], out=tmp_path / "out", force=True) == 2
    said = capsys.readouterr().err
    assert "to be mended: promptfooconfig.yaml, test 1: not carried over: an assertion of" in said
    assert "when that is mended: go-ent eval run" in said
    broken = tmp_path / "broken.yaml"
    broken.write_text("tests: [{id: a, input: x, assertions: [{type: latency}]}]")
    assert import_suites("agentv", [broken], out=tmp_path / "other", json=True) == 2
    assert "tests[0].assertions[0]" in json.loads(capsys.readouterr().out)["mistakes"][0]
