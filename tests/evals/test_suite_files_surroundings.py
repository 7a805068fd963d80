"""What lies around a suite: variables, guidelines, and the targets that it names."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.evals.files.file_source import Guidelines, parse_dotenv
from goent.evals.files.suite_reader import load_suites
from goent.evals.files.suite_validation import validate
from goent.evals.files.target_reader import load_targets
from goent.evals.suites import EvalCase, Suite


def load(folder: Path, text: str, **environ: str) -> Suite:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "my.eval.yaml"
    path.write_text(text, encoding="utf-8")
    (suite,) = load_suites([path], environ)
    return suite


def asked(case: EvalCase) -> str:
    return case.input[-1].text


def test_env_files_fill_in_what_the_environment_does_not_say(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (tmp_path / ".env").write_text("OUTSIDE=of the project\n")
    (project / ".env").write_text("FAR=far\nNEAR=hidden\nSET=hidden\n")
    (project / "evals").mkdir()
    (project / "evals" / ".env").write_text("NEAR=near\n")
    text = 'tests: [{id: a, criteria: c, input: "${{FAR}}, ${{NEAR}}, ${{SET}}, [${{OUTSIDE}}]"}]'
    suite = load(project / "evals", text, SET="set")
    assert asked(suite.cases[0]) == "far, near, set, []"
    assert "FAR" not in os.environ


def test_a_target_finds_the_variables_of_its_file(tmp_path: Path) -> None:
    (tmp_path / ".goent").mkdir()
    (tmp_path / ".env").write_text("MODEL='a/b'\nWIDTH=3\n")
    (tmp_path / ".goent" / "targets.yaml").write_text(
        'targets: [{name: t, provider: opencode, model: "${{MODEL}}", port: "${{WIDTH}}"}]'
    )
    assert load_targets(tmp_path, {})["t"].settings == {"model": "a/b", "port": "3"}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=plain", "plain"),
        ("export A = spaced # said", "spaced"),
        ('A="quoted # no comment\\n" # said', "quoted # no comment\n"),
        ("A='as it is \\n'", "as it is \\n"),
        ("A=", ""),
        ("A=a=b", "a=b"),
        ("A=one\r\nB=two\r\n", "one"),
    ],
)
def test_a_line_of_an_env_file(line: str, value: str) -> None:
    assert parse_dotenv(f"# first\n{line}\nOTHER=x\n")["A"] == value
    assert parse_dotenv(f"{line}\nOTHER=x\n")["OTHER"] == "x"


@pytest.mark.timeout(20)
def test_a_long_line_takes_no_longer_to_read_than_it_is():
    spaces = " " * 500_000
    assert parse_dotenv(f"A=x{spaces}y{spaces}\nB=1") == {"A": f"x{spaces}y", "B": "1"}


@given(st.text(max_size=300))
def test_any_env_file_can_be_read(text: str) -> None:
    assert all(name.isidentifier() for name in parse_dotenv(text))


@given(st.text(alphabet="a*?/.[", max_size=12), st.text(alphabet="a/.b", max_size=12))
def test_any_pattern_can_be_asked(pattern: str, path: str) -> None:
    Guidelines(Path("/top"), (pattern,)).matches(Path("/top") / path)


@pytest.mark.parametrize(
    ("config", "guidelines"),
    [
        (None, ["go.instructions.md"]),
        (".goent/config.yaml: {evals: {guideline_patterns: [docs/**/*.md]}}", ["docs/a/rules.md"]),
        (".agentv/config.yaml: {guideline_patterns: ['*rules.md'], other: 1}", ["docs/a/rules.md"]),
    ],
)
def test_settings_say_which_files_are_guidelines(
    tmp_path: Path, config: str | None, guidelines: list[str]
) -> None:
    for name in ("go.instructions.md", "docs/a/rules.md", ".git/HEAD"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    if config:
        file, _, text = config.partition(": ")
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    named = "[../go.instructions.md, ../docs/a/rules.md]"
    text = f"tests: [{{id: a, criteria: c, input: x, input_files: {named}}}]"
    (case,) = load(tmp_path / "evals", text).cases
    assert [str(path.relative_to(tmp_path.resolve())) for path in case.guidelines] == guidelines
    assert len(case.input[-1].files) == 1


def test_validation_tells_all_mistakes_of_suites_and_targets(tmp_path: Path) -> None:
    (tmp_path / ".goent").mkdir()
    targets = tmp_path / ".goent" / "targets.yaml"
    targets.write_text("targets: [{name: coder, provider: mock}, {name: judge, provider: mock}]")
    suite = tmp_path / "my.eval.yaml"
    suite.write_text(
        """
execution: {targets: [{name: codr}, {name: coder}]}
tests:
  - {id: a, input: x, criteria: c}
  - {id: b, input: x, assertions: [{type: contains, value: x}], execution: {targets: [{name: zzz}]}}
  - {id: c, input: x, criteria: c, assertions: [{type: llm-grader, target: jugde}]}
"""
    )
    found = validate([suite], {})
    assert found.cases == 3
    assert [line.removeprefix(f"{suite}:") for line in found.mistakes] == [
        "2: execution.targets[0].name: there is no target 'codr'; did you mean 'coder'?",
        "5: tests[1].execution.targets[0].name: there is no target 'zzz'; one of coder, judge",
        "6: tests[2].assertions[0].target: there is no target 'jugde'; did you mean 'judge'?",
    ]
    targets.write_text("targets: [{name: coder, provider: mok}]")
    assert [line.partition(" ")[2] for line in validate([suite], {}).mistakes] == [
        "targets[0].provider: 'mok' is not a provider, or not supported; did you mean 'mock'?"
    ]
    targets.unlink()
    assert "add it to .goent/targets.yaml" in validate([suite], {}).mistakes[0]
    suite.write_text("tests: [{id: a, input: x, criteria: c, target: t}]")
    targets.write_text("targets: [{name: t, provider: mock}]")
    assert validate([tmp_path], {}).mistakes == ()


def test_a_matrix_of_targets_and_what_is_not_supported_of_it(tmp_path: Path) -> None:
    suite = load(
        tmp_path, "execution: {targets: [a, b, a]}\ntests: [{id: i, input: x, criteria: c}]"
    )
    assert suite.cases[0].targets == ("a", "b")
    suite_file = tmp_path / "my.eval.yaml"
    suite_file.write_text(
        "execution: {targets: [b, {name: a, use_target: b}, {name: c, use_target: a}]}\n"
        "tests: [{id: i, input: x, criteria: c}]"
    )
    (tmp_path / ".goent").mkdir()
    targets = tmp_path / ".goent" / "targets.yaml"
    targets.write_text("targets: [{name: b, provider: mock, response: hi}]")
    found = validate([suite_file], {})
    assert found.mistakes == ()
    assert found.suites[0].cases[0].targets == ("b", "a", "c")
    assert {
        (name, spec.name, spec.settings["response"]) for name, spec in found.targets.items()
    } == {(name, name, "hi") for name in "abc"}
    suite_file.write_text(
        "execution: {targets: [{name: a, use_target: bb}, {name: b, hooks: {}}, {use_target: b}]}\n"
        "tests: [{id: i, input: x, criteria: c}]"
    )
    told = validate([suite_file], {}).mistakes
    for expected in (
        "targets[0].use_target: there is no target 'bb'; did you mean 'b'?",
        "targets[1].hooks: is not supported for a target; move them to `workspace`",
        "targets[2].name: is missing",
    ):
        assert any(expected in line for line in told), told


def test_a_suite_beside_a_data_set_of_its_name_is_no_sidecar(tmp_path: Path) -> None:
    data, beside = tmp_path / "d.jsonl", tmp_path / "d.eval.yaml"
    data.write_text('{"id": "line", "input": "x", "criteria": "c"}\n')
    beside.write_text("tests: [{id: own, input: x, criteria: c}]")
    assert [case.id for case in load_suites([data], {})[0].cases] == ["line"]
    assert [case.id for case in load_suites([beside], {})[0].cases] == ["own"]
    beside.write_text("name: both")
    assert [suite.name for suite in load_suites([data, beside], {})] == ["both"]


def test_criteria_that_nobody_reads_are_warned_of_once_a_suite(tmp_path: Path) -> None:
    suite = tmp_path / "my.eval.yaml"
    suite.write_text("""\
assertions: [{type: contains, value: x}]
tests:
  - {id: judged, input: x, criteria: c, execution: {skip_defaults: true}}
  - {id: by-name, input: x, criteria: c, assertions: [{type: llm-grader}]}
  - {id: by-script, input: x, criteria: c, assertions: [{type: code-grader, command: [cat]}]}
  - {id: lost, input: x, criteria: c}
  - {id: other, input: x, criteria: c, assertions: [{type: llm-grader, criteria: its own}]}
""")
    (warning,) = validate([suite], {}).warnings
    assert warning == (
        f"{suite}:6: tests[3].criteria: no grader reads it, nor that of 1 other case: with assertions "
        "there is no implicit judge; add {type: llm-grader} to them, or drop the suite's by "
        "`execution: {skip_defaults: true}`"
    )
    (warning,) = validate([suite], {}, chosen=lambda case: case.id in {"judged", "other"}).warnings
    assert warning.startswith(f"{suite}:7: tests[4].criteria: no grader reads it: ")
    assert validate([suite], {}, compat=True).warnings == ()


def test_each_suite_is_held_against_the_targets_of_its_own_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".goent").mkdir(parents=True)
        targets = f"targets: [{{name: {name}, provider: mock}}]"
        (tmp_path / name / ".goent" / "targets.yaml").write_text(targets)
        suite = f"tests: [{{id: a, input: x, criteria: c, target: {name}}}]"
        (tmp_path / name / f"{name}.eval.yaml").write_text(suite)
    assert validate([tmp_path], {}).mistakes == ()
    named = tmp_path / "one" / ".goent" / "targets.yaml"
    (line,) = validate([tmp_path], {}, named=named).mistakes
    assert "there is no target 'two'" in line
    named.write_text("targets: [{name: one, provider: mok}]")
    (line,) = validate([tmp_path], {}, named=named).mistakes
    assert "'mok' is not a provider" in line, "whose names are not known is not asked for names"
