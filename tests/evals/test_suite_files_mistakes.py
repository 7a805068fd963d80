"""Whatever is wrong with suites is told at once, with its place; nothing else is ever raised."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goent.domain.errors import ConfigError
from goent.evals.files.suite_reader import load_suites
from goent.evals.files.target_reader import load_targets


def mistakes(folder: Path, text: str, name: str = "my.eval.yaml") -> list[str]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_suites([path], {})
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def test_one_mistake_of_a_case_hides_no_other(tmp_path: Path) -> None:
    text = """
assertions: [{type: regex, value: "(suite"}, {type: contains, valeu: x}]
tests:
  - id: a
    inputt: y
    input: x
    assertions:
      - {type: contains, valeu: x}
      - {type: regex, value: "(case"}
      - {type: composite, wieght: 1, assertions: [{type: regex, value: "(member"}]}
  - id: b
    input: x
    execution: {skip_defaults: true}
    assertions: [{type: contains, valeu: x}, {type: is-json, weight: 0}]
"""
    told = mistakes(tmp_path, text)
    expected = ("(suite", "[1].valeu", "tests[0].inputt", "[0].valeu", "(case", "wieght", "(member")
    assert all(any(part in line for line in told) for part in expected), told
    assert not any("weight above 0" in line for line in told), "nobody knows yet"


def test_conversations_and_needs_that_cannot_be_are_told(tmp_path: Path) -> None:
    text = """
tests:
  - {id: talk, mode: conversation, criteria: c, expected_output: x, turns: [{assertions: []}]}
  - {id: mute, mode: conversation, criteria: c, window_size: 0, on_turn_failure: skip}
  - {id: plain, input: x, criteria: c, aggregation: mean, mode: chat}
  - {id: other, input: x, criteria: c, window_size: 2}
  - id: a
    depends_on:
      - b
    input: x
    criteria: c
  - {id: b, depends_on: a, input: x, criteria: c}
  - {id: c, depends_on: [tolk], on_dependency_failure: halt, input: x, criteria: c}
"""
    assert mistakes(tmp_path, text) == [
        "my.eval.yaml:3: tests[0].turns[0].input: is missing; say what the agent is told in this turn",
        "my.eval.yaml:3: tests[0].expected_output: a conversation has none of its own; write it to the turn",
        "my.eval.yaml:4: tests[1].turns: a conversation has at least one; write turns: [{input: …}]",
        "my.eval.yaml:4: tests[1].on_turn_failure: unknown on_turn_failure 'skip'; one of continue, stop",
        "my.eval.yaml:4: tests[1].window_size: must be at least 1, not 0",
        "my.eval.yaml:5: tests[2].mode: unknown mode 'chat'; one of conversation",
        "my.eval.yaml:6: tests[3].window_size: belongs to a conversation; say `mode: conversation` beside it",
        "my.eval.yaml:9: tests[4].depends_on[0]: waits for itself: a → b → a; take one of them away",
        "my.eval.yaml:13: tests[6].on_dependency_failure: unknown on_dependency_failure 'halt'; one of skip, fail, run",
        "my.eval.yaml:13: tests[6].depends_on[0]: no case of this suite has the id 'tolk'; did you mean 'talk'?",
    ]


PLACEHOLDERS = """
tests:
  - id: a
    vars: {who: Ann, odd: "{{odd}} {{left}}"}
    input: "hello {{whoo}}, {{who}}, {{odd}}"
    assertions:
      - {type: contains_all, value: ["{{who}}", "{{zzz}}"]}
      - {type: composite, assertions: [{type: regex, value: "{{hwo}}"}]}
      - {type: llm-grader, prompt: "{{output}}", criteria: "good for {{input}}"}
  - {id: b, input: "{{whoo}}", criteria: c}
"""


def test_a_placeholder_that_nobody_fills_in_is_a_mistake_beside_vars(tmp_path: Path) -> None:
    assert mistakes(tmp_path, PLACEHOLDERS) == [
        "my.eval.yaml:5: tests[0].input: {{whoo}} is none of its vars; did you mean 'who'?",
        "my.eval.yaml:7: tests[0].assertions[0].value[1]: {{zzz}} is none of its vars; one of who, odd",
        "my.eval.yaml:8: tests[0].assertions[1].assertions[0].value: {{hwo}} is none of its vars; did you mean 'who'?",
    ]
    (suite,) = load_suites([tmp_path / "my.eval.yaml"], {}, compat=True)
    assert suite.cases[0].input[0].text == "hello {{whoo}}, Ann, {{odd}} {{left}}"


def test_what_is_not_there_is_told_in_true_words(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "input": "x", "criteria": "c"}')
    with pytest.raises(ConfigError, match=r"no \*\.eval\.yaml; name a \*\.jsonl of cases itself"):
        load_suites([tmp_path], {})
    text = "tests: [{id: a, input: x, criteria: c, input_files: [gone.md]}]"
    (told,) = mistakes(tmp_path, text)
    assert told.endswith(f"there is no file 'gone.md', in {tmp_path}")


def test_trials_may_be_a_number(tmp_path: Path) -> None:
    text = "execution: {trials: 3}\ntests: [{id: a, input: x, criteria: c}]"
    (tmp_path / "my.eval.yaml").write_text(text)
    (suite,) = load_suites([tmp_path], {})
    assert suite.trials.count == 3
    (told,) = mistakes(tmp_path, text.replace("3", "1001"))
    assert told == "my.eval.yaml:1: execution.trials: must be at most 1000, not 1001"


def test_every_mistake_is_told_with_line_and_path(tmp_path: Path) -> None:
    (tmp_path / "other.eval.yaml").write_text("tests: [")
    text = """
nmae: demo
execution: {threshold: 1.5, workers: 99, cache: true}
tests:
  - id: a
    input: x
    assertions:
      - {type: contians, value: x}
      - {type: contains, valeu: x}
      - {type: contains, value: x, weight: -1}
      - {type: tool-trajectory, mode: sideways, expected: []}
      - {type: composite, assertions: []}
      - {include: nothing}
  - id: a
    input: [{role: usr, content: x}]
    criteria: c
    required: true
  - id: b
    input: x
  - input: x
    turns: []
    criteria: c
"""
    path = tmp_path / "my.eval.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_suites([path, tmp_path / "other.eval.yaml", tmp_path / "none.yaml"], {})
    told = str(caught.value)
    for expected in (
        "my.eval.yaml:2: nmae: unknown key; did you mean 'name'?",
        "my.eval.yaml:3: execution.threshold: must be from 0 to 1, not 1.5",
        "my.eval.yaml:3: execution.workers: must be at most 50, not 99",
        "my.eval.yaml:3: execution.cache: is not supported",
        "my.eval.yaml:8: tests[0].assertions[0].type: 'contians' is no grader, or not supported",
        "did you mean 'contains'?",
        "my.eval.yaml:9: tests[0].assertions[1].value: is missing",
        "my.eval.yaml:9: tests[0].assertions[1].valeu: unknown key; did you mean 'value'?",
        "my.eval.yaml:10: tests[0].assertions[2].weight: must be at least 0",
        "my.eval.yaml:11: tests[0].assertions[3].mode: unknown mode 'sideways'",
        "my.eval.yaml:12: tests[0].assertions[4].assertions: a composite needs members",
        "my.eval.yaml:13: tests[0].assertions[5].include: there is no template 'nothing'",
        "my.eval.yaml:14: tests[1]: 'a' is the id of another case too",
        "my.eval.yaml:15: tests[1].input[0].role: unknown role 'usr'",
        "my.eval.yaml:17: tests[1].required: unknown key",
        "my.eval.yaml:18: tests[2].assertions: no grader of this case has a say",
        "my.eval.yaml:20: tests[3].id: is missing",
        "my.eval.yaml:21: tests[3].turns: belongs to a conversation",
        "other.eval.yaml:2: invalid YAML",
        "none.yaml: cannot be read: No such file",
    ):
        assert expected in told, told
    assert len(told.splitlines()) == 19  # and no other


@pytest.mark.parametrize(
    "assertions",
    [
        "[]",
        "[{type: contains, value: x, weight: 0}]",
        "[{type: tool-trajectory, mode: any_order}]",
        "[{type: composite, assertions: [{type: is-json, weight: 0}]}]",
    ],
)
def test_a_case_in_which_no_grader_has_a_say_is_a_mistake(tmp_path: Path, assertions: str) -> None:
    (line,) = mistakes(tmp_path, f"tests: [{{id: a, input: x, assertions: {assertions}}}]")
    assert "no grader of this case has a say" in line


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize(
    ("grader", "told"),
    [
        (
            "type: tool-trajectory, mode: in_order, expected: [{tool: a}, {tool: read, argz: {p: 1}}]",
            "expected[1].argz: unknown key; did you mean 'args'?",
        ),
        (
            "type: tool-trajectory, mode: in_order, expected: [{tool: read, statuss: error}]",
            "expected[0].statuss: unknown key; did you mean 'status'?",
        ),
        (
            "type: field-accuracy, fields: [{path: a, tolerence: 1}]",
            "fields[0].tolerence: unknown key; did you mean 'tolerance'?",
        ),
        (
            "type: rubrics, criteria: [x, {outcome: y, requird: true}]",
            "criteria[1].requird: unknown key; did you mean 'required'?",
        ),
        (
            "type: llm-grader, rubrics: [{id: a, score_ranges: [{score_range: [0, 10], outcme: x}]}]",
            "rubrics[0].score_ranges[0].outcme: unknown key; did you mean 'outcome'?",
        ),
        (
            "type: composite, assertions: [{type: is-json, name: form}], aggregator: {weights: {from: 2}}",
            "aggregator.weights.from: unknown key; did you mean 'form'?",
        ),
        (
            "type: composite, assertions: [{type: is-json, name: form}], aggregator: {weights: {form: x}}",
            "aggregator.weights.form: expected a number, not 'x'",
        ),
    ],
)
def test_what_is_misspelt_inside_of_a_grader_is_a_mistake_too(
    tmp_path: Path, grader: str, told: str, compat: bool
) -> None:
    case = "{id: a, input: x, expected_output: {a: 1}"
    path = tmp_path / "my.eval.yaml"
    path.write_text(f"tests:\n  - {case},\n    assertions: [{{{grader}}}]}}")
    with pytest.raises(ConfigError) as caught:
        load_suites([path], {}, compat=compat)
    assert str(caught.value) == f"{path}:3: tests[0].assertions[0].{told}"


def test_a_weight_is_not_doubted_where_its_member_cannot_be_read(tmp_path: Path) -> None:
    members = "[{type: is-json}, {type: contians, name: other, value: x}]"
    grader = f"{{type: composite, assertions: {members}, aggregator: {{weights: {{other: 2}}}}}}"
    (line,) = mistakes(tmp_path, f"tests: [{{id: a, input: x, assertions: [{grader}]}}]")
    assert "'contians' is no grader" in line


def test_the_rubrics_of_a_case_are_looked_at_once(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, "tests: [{id: a, input: x, rubrics: [{outcme: y}]}]")
    assert line.startswith("my.eval.yaml:1: tests[0].rubrics[0].outcme: unknown key")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id": "1", "input": "x", "criteria": "c"}\n{"id": 2', "set.jsonl:2: invalid JSON"),
        ('\n["x"]', "set.jsonl:2: expected a JSON object"),
        ('{"id": "1", "id": "1", "input": "x", "criteria": "c"}', "set.jsonl:1: id: given twice"),
        ('{"id": "\\ud800", "input": "x"}', "set.jsonl:1: invalid JSON: half a surrogate"),
        ("[" * 100_000, "set.jsonl:1: nested too deeply"),
        ('{"id": "1", "input": "x", "criteria": "c", "n": NaN}', "set.jsonl:1: invalid JSON"),
    ],
)
def test_a_bad_line_of_a_data_set(tmp_path: Path, text: str, expected: str) -> None:
    assert mistakes(tmp_path, text, "set.jsonl")[0].startswith(expected)


def test_a_file_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    told = mistakes(tmp_path, "\n".join([*lines, "tests: *a39"]))
    assert "holds more than 1000000 values" in told[0]


def test_includes_that_include_themselves_end(tmp_path: Path) -> None:
    templates = tmp_path / ".goent" / "templates"
    templates.mkdir(parents=True)
    (templates / "loop.yaml").write_text("assertions: [{include: loop}]")
    told = mistakes(tmp_path, "tests: [{id: a, input: x, assertions: [{include: loop}]}]")
    assert any("more than 3 levels deep" in line for line in told)


def test_two_suites_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.eval.yaml").write_text("tests: [{id: a, input: x, criteria: c}]")
    with pytest.raises(ConfigError, match="is called 'x' as well"):
        load_suites([tmp_path], {})


def test_a_missing_file_of_a_message_is_a_mistake(tmp_path: Path) -> None:
    text = "tests: [{id: a, criteria: c, input: x, input_files: [gone.md]}]"
    (line,) = mistakes(tmp_path, text)
    assert "tests[0].input_files[0]: there is no file 'gone.md'" in line


@pytest.mark.parametrize(
    ("workspace", "expected"),
    [
        ("{repository: ./gone}", "repository: './gone' is no address, and there is no folder"),
        ("{repository: --upload-pack=x}", "repository: '--upload-pack=x' is no address"),
        ("{repository: ., ref: --force}", "ref: '--force' is no name of a commit"),
        ("{ref: main}", "ref: says nothing without a repository"),
        ("{repository: 'git@h:x', template: .}", "repository: there is a template as well"),
        ("{repository: .}", "is in no git repository; use `template` for a folder that is none"),
    ],
)
def test_a_workspace_that_cannot_be_made_is_a_mistake(
    tmp_path: Path, workspace: str, expected: str
) -> None:
    text = f"tests: [{{id: a, criteria: c, input: x, workspace: {workspace}}}]"
    (line,) = mistakes(tmp_path, text)
    assert expected in line


words = st.sampled_from(
    [
        "id",
        "input",
        "tests",
        "evalcases",
        "assertions",
        "type",
        "contains",
        "composite",
        "include",
        "value",
        "execution",
        "targets",
        "name",
        "provider",
        "cli",
        "use_target",
        "workspace",
        "hooks",
        "vars",
        "criteria",
        "metadata",
        "expected_output",
        "role",
        "content",
        "user",
        "file",
        "text",
        "{{id}}",
        "${{X}}",
        "required",
        "weight",
        "threshold",
    ]
)
scalars = words | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5),
    max_leaves=25,
)


def only_config_errors(folder: Path, text: str) -> None:
    for name in ("any.eval.yaml", "any.jsonl"):
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    for name in ("any.eval.yaml", "any.jsonl"):
        with suppress(ConfigError):
            load_suites([folder / name], {"X": "\0"})
    with suppress(ConfigError):
        load_targets(folder, {}, named=folder / "any.eval.yaml")


quick = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    only_config_errors(tmp_path, text)


@quick
@given(cases=values, more=st.dictionaries(words, values, max_size=4))
def test_any_values_are_read_or_refused(
    tmp_path: Path, cases: object, more: dict[str, object]
) -> None:

    for key in ("tests", "evalcases", "targets"):
        only_config_errors(tmp_path, json.dumps({**more, key: cases}))
    case = {"id": "a", "input": "x", **more}
    only_config_errors(tmp_path, json.dumps({"tests": [case], "targets": [{"name": "n", **more}]}))
