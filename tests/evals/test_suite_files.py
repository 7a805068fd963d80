"""Suites of both dialects become the same values."""

import subprocess
from pathlib import Path

import pytest

from goent.domain.errors import ConfigError
from goent.evals.files.suite_reader import load_suites
from goent.evals.suites import EvalCase, Suite, Trials

GOLDEN = Path(__file__).parent / "compat" / "suite.eval.yaml"


def load(folder: Path, text: str, **environ: str) -> Suite:
    path = folder / "my.eval.yaml"
    path.write_text(text, encoding="utf-8")
    (suite,) = load_suites([path], environ)
    return suite


def only(suite: Suite) -> EvalCase:
    (case,) = suite.cases
    return case


def test_the_golden_suite_is_read_whole_where_agentv_is_the_measure() -> None:
    (suite,) = load_suites([GOLDEN], {}, compat=True)
    assert (suite.name, suite.form, len(suite.cases)) == ("compat", "v4", 48)
    cases = {case.id: case for case in suite.cases}
    assert {case.targets for case in suite.cases} == {("fixture",)}
    assert cases["txt-contains-any"].graders[0].name == "contains-any-2"
    assert cases["txt-underscore"].graders[0].type == "contains-all"
    assert cases["txt-regex"].graders[0].name == "regex-^H.*d$"
    assert cases["txt-negate-fail"].graders[0].negate
    assert cases["req-num"].graders[0].required == 0.5
    assert cases["threshold-case"].threshold == 0.5
    assert [member.name for member in cases["comp-thr-pass"].graders[0].members] == ["x", "y", "z"]
    assert cases["fa-num"].expected[0].content == {
        "n": 10,
        "d": "2025-01-15",
        "s": "x",
        "l": [{"v": 1}],
    }
    assert cases["in-args-fields"].graders[0].settings["args_match"] == ["a.b"]


def test_cases_of_the_golden_suite_that_prove_nothing_are_mistakes() -> None:
    with pytest.raises(ConfigError) as caught:
        load_suites([GOLDEN], {})
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "suite.eval.yaml:8: tests[0].assertions: no grader" in lines[0]
    assert "suite.eval.yaml:356: tests[39].assertions[0]: Grader 'f'" in lines[2]


def test_words_that_old_yaml_took_for_truths_stay_as_they_were_written(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
tests:
  - id: a
    input: yes
    expected_output: off
    assertions:
      - {type: contains, value: True, required: yes}
      - {type: contains-any, value: [on, off]}
      - {type: tool-trajectory, mode: any_order, minimums: {on: 1}, subagents: yes}
  - {id: b, vars: {v: NO, w: [on]}, input: "{{v}}", criteria: "is it {{v}} {{w}}?"}
  - {id: c, vars: {v: NO}, input: "say {{v}}", criteria: c, execution: {skip_defaults: on}}
""",
    )
    a, b, _ = suite.cases
    contains, some, tools = a.graders
    assert [case.input[0].text for case in suite.cases] == ["yes", "NO", "say NO"]
    assert (a.expected[0].content, b.criteria) == ("off", 'is it NO ["on"]?')
    assert (contains.settings["value"], contains.required) == ("True", True)
    assert some.settings["value"] == ["on", "off"]
    assert tools.settings["minimums"] == {"on": 1}
    assert tools.settings["subagents"] is True


def test_a_suite_of_the_first_dialect(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("n")
    (tmp_path / "go.instructions.md").write_text("g")
    suite = load(
        tmp_path,
        """
description: old
execution: {target: default}
evalcases:
  - id: fix-bug
    expected_outcome: it works
    input_messages:
      - {role: system, content: You fix}
      - role: user
        content:
          - {type: text, value: Fix it}
          - {type: file, value: ./notes.md}
          - {type: file, value: go.instructions.md}
    expected_messages: [{role: assistant, content: done}]
    conversation_id: thread-1
    rubrics: [short, {id: r, description: right, weight: 2, required: true}]
    execution:
      target: other
      evaluators: [{name: t, type: tool_trajectory, mode: in_order, expected: [{tool: a}]}]
  - id: judged
    outcome: well done
    input_messages: [{role: user, content: hi}]
""",
    )
    assert (suite.form, suite.description, suite.name) == ("seed", "old", "my")
    first, second = suite.cases
    assert [said.role for said in first.input] == ["system", "user"]
    assert first.input[1].text == "Fix it"
    assert first.input[1].files == ((tmp_path / "notes.md").resolve(),)
    assert first.guidelines == ((tmp_path / "go.instructions.md").resolve(),)
    assert first.criteria == "it works"
    assert (first.targets, second.targets) == (("other",), ("default",))
    assert [grader.type for grader in first.graders] == ["rubrics", "tool-trajectory"]
    assert [grader.type for grader in second.graders] == ["llm-grader"]
    assert first.expected[0].content == "done"


def test_a_suite_says_what_holds_for_all_its_cases(tmp_path: Path) -> None:
    suite = load(
        tmp_path,
        """
name: demo
tags: [quick]
metadata: {team: a}
input: Be brief.
execution:
  targets: [one, two]
  threshold: 0.5
  workers: 4
  budget_usd: 1.5
  trials: {count: 3, strategy: pass_at_k}
assertions: [{type: is-json}]
tests:
  - id: a
    input: x
    metadata: {n: 1}
    assertions: [{type: contains, value: x, weight: 2}]
  - id: b
    input: y
    execution: {skip_defaults: true, target: three}
    assertions: [it is polite, it is short, {type: equals, value: y}]
""",
    )
    first, second = suite.cases
    assert (suite.threshold, suite.workers, suite.budget_usd) == (0.5, 4, 1.5)
    assert suite.trials == Trials(count=3, strategy="pass_at_k")
    assert [grader.name for grader in first.graders] == ["contains-x", "is-json"]
    assert [said.text for said in first.input] == ["Be brief.", "x"]
    assert first.metadata == {"team": "a", "tags": ["quick"], "n": 1}
    assert [grader.type for grader in second.graders] == ["rubrics", "equals"]
    assert second.graders[0].settings == {"criteria": ["it is polite", "it is short"]}
    assert (first.targets, second.targets) == (("one", "two"), ("three",))


def test_variables_keep_their_type_where_they_stand_alone(tmp_path: Path) -> None:
    case = only(
        load(
            tmp_path,
            """
tests:
  - id: v
    vars: {name: Ann, words: [a, b], n: 3}
    input: "greet {{name}} {{ n }} times"
    expected_output: "{{n}}"
    assertions: [{type: contains-any, value: "{{words}}"}]
""",
        )
    )
    assert case.input[0].text == "greet Ann 3 times"
    assert case.expected[0].content == 3
    assert case.graders[0].settings == {"value": ["a", "b"]}


def test_what_a_text_is_compared_with_is_a_text_as_written(tmp_path: Path) -> None:
    text = """
tests:
  - id: t
    input: 7
    assertions: [{type: equals, value: 1.50}, {type: contains-all, value: [1, true]}]
"""
    first, second = only(load(tmp_path, text)).graders
    assert first.settings == {"value": "1.50"}
    assert second.settings == {"value": ["1", "true"]}


def test_a_command_is_a_list_or_for_the_shell(tmp_path: Path) -> None:
    text = """
tests:
  - id: t
    input: x
    assertions: [{type: code_judge, script: "run | it"}, {type: script, command: [run, 1]}]
"""
    first, second = only(load(tmp_path, text)).graders
    assert (first.type, first.settings) == ("code-grader", {"command": ["sh", "-c", "run | it"]})
    assert (second.type, second.settings) == ("code-grader", {"command": ["run", "1"]})


def test_the_environment_is_filled_in(tmp_path: Path) -> None:
    text = "tests: [{id: e, input: 'say ${{ WORD }}${{NONE}}.', criteria: good}]"
    assert only(load(tmp_path, text, WORD="hi")).input[0].text == "say hi."


def test_a_template_is_a_table_or_the_bare_list(tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text("- {type: contains, value: x}\n- Is it polite?\n")
    (tmp_path / "empty.yaml").write_text("# later\n")
    text = "tests: [{id: i, input: x, assertions: [{include: %s.yaml}]}]"
    names = [grader.type for grader in only(load(tmp_path, text % "bare")).graders]
    assert names == ["contains", "rubrics"]
    with pytest.raises(ConfigError, match=r"the template 'empty\.yaml' is empty; list its graders"):
        load(tmp_path, text % "empty")


def test_templates_are_included_from_the_nearest_folder(tmp_path: Path) -> None:
    for folder, value in ((tmp_path, "far"), (tmp_path / "in", "near")):
        templates = folder / ".agentv" / "templates"
        templates.mkdir(parents=True)
        (templates / "safe.yaml").write_text(f"assertions: [{{type: contains, value: {value}}}]")
    text = "tests: [{id: i, input: x, assertions: [{include: safe}, {type: is-json}]}]"
    case = only(load(tmp_path / "in", text))
    assert [grader.name for grader in case.graders] == ["contains-near", "is-json"]
    assert case.graders[0].place.file.endswith("safe.yaml")


def test_a_data_set_has_a_sidecar(tmp_path: Path) -> None:
    data = tmp_path / "set.jsonl"
    data.write_text('{"id": "1", "input": "x"}\n\n{"id": "2", "input": "y"}\n')
    side = tmp_path / "set.eval.yaml"
    side.write_text("suite: mine\nexecution: {target: t}\nassertions: [{type: is-json}]\n")
    (suite,) = load_suites([data, side, tmp_path], {})
    assert (suite.name, suite.path) == ("mine", data)
    assert [case.place.line for case in suite.cases] == [1, 3]
    assert suite.cases[1].targets == ("t",)
    assert suite.cases[1].graders[0].type == "is-json"


@pytest.mark.parametrize("where", ["cases.jsonl", "cases.yaml", "cases"])
def test_tests_may_be_elsewhere(tmp_path: Path, where: str) -> None:
    (tmp_path / "cases.jsonl").write_text('{"id": "1", "input": "x", "criteria": "c"}')
    (tmp_path / "cases.yaml").write_text("- {id: '1', input: x, criteria: c}")
    (tmp_path / "cases" / "one").mkdir(parents=True)
    (tmp_path / "cases" / "one" / "case.yaml").write_text("{id: '1', input: x, criteria: c}")
    assert only(load(tmp_path, f"tests: ./{where}")).id == "1"


def test_a_case_changes_the_workspace_of_its_suite(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "ws.yaml").write_text(
        "template: start\nhooks: {before_each: {command: [make, it], timeout_ms: 1500}}"
    )
    text = """
workspace: ws.yaml
tests:
  - {id: a, input: x, criteria: c}
  - {id: b, input: x, criteria: c, workspace: {hooks: {before_each: {command: echo hi}}}}
"""
    first, second = load(tmp_path, text).cases
    assert first.workspace
    assert second.workspace
    assert first.workspace.template == second.workspace.template == (tmp_path / "start").resolve()
    assert first.workspace.before_each
    assert first.workspace.before_each.command == ("make", "it")
    assert first.workspace.before_each.timeout_s == 1.5
    assert second.workspace.before_each
    assert second.workspace.before_each.command == ("sh", "-c", "echo hi")


def test_a_workspace_is_a_clone_or_a_template(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    commit = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty")
    for words in (("init", "-q", "repo"), ("-C", "repo", *commit), ("-C", "repo", "tag", "v1")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    suite = load(
        tmp_path,
        """
workspace: {repository: ./repo, ref: v1}
tests:
  - {id: a, input: x, criteria: c}
  - {id: b, input: x, criteria: c, workspace: {template: start}}
  - {id: c, input: x, criteria: c, workspace: {repository: "git@host.example:team/it.git"}}
""",
    )
    a, b, c = (case.workspace for case in suite.cases)
    assert a and b and c
    assert (a.repository, a.ref) == (str((tmp_path / "repo").resolve()), "v1")
    assert (b.repository, b.ref, b.template) == ("", "", (tmp_path / "start").resolve())
    assert (c.repository, c.ref) == ("git@host.example:team/it.git", "")
