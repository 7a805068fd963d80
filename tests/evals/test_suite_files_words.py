"""Mistakes are told once, in plain words, where they are."""

from pathlib import Path

import pytest

from goent.domain.errors import ConfigError
from goent.evals.files.suite_reader import load_suites
from goent.evals.files.suite_validation import validate
from goent.evals.files.target_reader import load_targets
from goent.evals.runner.preflight import prepare_checked_run
from goent.evals.runner.trial_plan import RunSelection, safe_file_name
from goent.evals.suites import Suite


def write(folder: Path, text: str, name: str = "my.eval.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str) -> Suite:
    (suite,) = load_suites([write(folder, text)], {})
    return suite


def mistakes(folder: Path, text: str) -> list[str]:
    told = validate([write(folder, text)], {}).mistakes
    return [line.removeprefix(f"{folder}/") for line in told]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "tests:\n\t- id: a\n",
            "my.eval.yaml:2: invalid YAML: a tab, where only spaces may indent",
        ),
        ("name: @me\n", "my.eval.yaml:1: invalid YAML: '@' cannot begin a value; put it in quotes"),
    ],
)
def test_a_character_that_yaml_does_not_take_is_named(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert mistakes(tmp_path, text) == [expected]


def test_a_table_takes_over_what_it_does_not_say_itself(tmp_path: Path) -> None:
    text = """
tests:
  - &first {id: a, input: x, assertions: [{type: contains, value: y}]}
  - {<<: *first, id: b}
  - {<<: [{input: z}, *first], id: c}
"""
    suite = load(tmp_path, text)
    assert [(case.id, case.input[0].text) for case in suite.cases] == [
        ("a", "x"),
        ("b", "x"),
        ("c", "z"),
    ]
    assert mistakes(tmp_path, "tests: [{<<: x, id: a, input: x, criteria: c}]") == [
        "my.eval.yaml:1: tests[0].<<: expected a table to take over, such as *name"
    ]


def test_every_circle_of_dependencies_is_told(tmp_path: Path) -> None:
    case = "  - {{id: {}, input: x, criteria: c, depends_on: [{}]}}\n"
    pairs = (("a", "b"), ("b", "a"), ("c", "c"), ("d", "e"), ("e", "f"), ("f", "d"), ("g", "a"))
    told = mistakes(tmp_path, "tests:\n" + "".join(case.format(*pair) for pair in pairs))
    assert len(told) == 3
    assert all("waits for itself" in line for line in told), told
    assert any("c → c" in line for line in told), told


def test_one_fault_is_one_message(tmp_path: Path) -> None:
    text = """
tests:
  - id: a
    input: x
    criteria: c
    workspace:
      hooks:
        before_all: {command: "", timeout_seconds: 5}
        before_each: {command: [], cwd: .}
        after_each: {command: x, timeout_seconds: -1}
        after_all: {timeout_ms: 0}
"""
    above = "tests[0].workspace.hooks"
    assert mistakes(tmp_path, text) == [
        f"my.eval.yaml:8: {above}.before_all.command: must not be empty",
        f"my.eval.yaml:9: {above}.before_each.command: says nothing to run",
        f"my.eval.yaml:10: {above}.after_each.timeout_seconds: must be more than 0, not -1",
        f"my.eval.yaml:11: {above}.after_all.command: is missing; say what to run",
        f"my.eval.yaml:11: {above}.after_all.timeout_ms: must be more than 0, not 0",
    ]


def test_a_value_that_does_not_fit_is_told_with_its_keys(tmp_path: Path) -> None:
    named = write(
        tmp_path,
        """
targets:
  - {name: a, provider: cli, command: "x > {OUTPUT_FILE}", env: {A: b, C: 3}, timeout_seconds: -1}
  - {name: b, provider: cli, command: " "}
  - {name: c, provider: opencode, permission: {bash: {"rm *": never}}}
  - {name: d, provider: mock, response: 3}
""",
        "targets.yaml",
    )
    with pytest.raises(ConfigError) as caught:
        load_targets(tmp_path, {}, named=named)
    assert [line.removeprefix(f"{named}:") for line in str(caught.value).splitlines()] == [
        "3: targets[0].env.C: expected text, not 3",
        "3: targets[0].timeout_seconds: must be more than 0, not -1",
        "4: targets[1].command: must not be empty",
        "5: targets[2].permission.bash.rm *: unknown value 'never'; one of allow, ask, deny",
        "6: targets[3].response: expected text or a table, not 3",
    ]
    graders = "{type: rubrics, criteria: [3]}, {type: field-accuracy, fields: []}"
    told = mistakes(tmp_path, f"tests: [{{id: a, input: x, assertions: [{graders}]}}]")
    assert "criteria[0]: expected text or a table, not 3" in told[0]
    assert "`fields` names none; list them" in told[1]


def test_what_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "my.eval.yaml"
    path.write_bytes(b"name: a\ntests: \xff\n")
    (told,) = validate([path], {}).mistakes
    assert told.endswith("it is no text in UTF-8 (byte 0xff on line 2)")


def test_who_cannot_be_asked_is_told_with_its_line(tmp_path: Path) -> None:
    suite = write(tmp_path, "\ntests:\n  - {id: a, input: x, assertions: [{type: is-json}]}\n")
    with pytest.raises(ConfigError, match=r"my\.eval\.yaml:3: case 'a' names no target"):
        prepare_checked_run([suite], {}, RunSelection(), project=tmp_path)
    write(tmp_path, "targets:\n  - {name: a, provider: azure}\n", ".goent/targets.yaml")
    with pytest.raises(ConfigError, match=r"targets\.yaml:2: target 'a': go-ent cannot ask"):
        prepare_checked_run([suite], {}, RunSelection(), project=tmp_path)


@pytest.mark.parametrize("name", ["-x", "..", "漢字", "--help", "-", "a/b", ".hidden"])
def test_a_folder_of_an_odd_id_is_a_plain_name(name: str) -> None:
    folder = safe_file_name(name)
    assert folder[0].isalnum()
    assert "/" not in folder
