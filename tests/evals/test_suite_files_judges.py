"""How suites say who judges, and by what."""

from pathlib import Path

import pytest

from goent.domain.errors import ConfigError
from goent.evals.files.suite_reader import load_suites
from goent.evals.suites import GraderSpec

SEED = """
evalcases:
  - id: a
    expected_outcome: o
    input_messages: [{role: user, content: x}]
    rubrics: [one, {id: b, description: two, required: true}]
"""


def graders(folder: Path, text: str) -> tuple[GraderSpec, ...]:
    path = folder / "x.eval.yaml"
    path.write_text(text)
    (suite,) = load_suites([path], {})
    return suite.cases[0].graders


def listed(folder: Path, grader: str) -> GraderSpec:
    (found,) = graders(folder, f"tests: [{{id: a, input: x, assertions: [{grader}]}}]")
    return found


@pytest.mark.parametrize(
    ("text", "kind", "criteria"),
    [
        ("tests: [{id: a, input: x, criteria: good}]", "llm-grader", None),
        ("tests: [{id: a, input: x, assertions: [one, two]}]", "rubrics", ["one", "two"]),
        (
            SEED,
            "rubrics",
            ["one", {"id": "b", "description": "two", "required": True}],
        ),
    ],
)
def test_a_judge_can_be_asked_for_in_a_few_words(
    tmp_path: Path, text: str, kind: str, criteria: object
):
    (found,) = graders(tmp_path, text)
    assert (found.type, found.settings.get("criteria")) == (kind, criteria)


@pytest.mark.parametrize("name", ["llm_judge", "llm-judge", "llm-grader", "llm_grader"])
def test_a_judge_has_many_names(tmp_path: Path, name: str):
    found = listed(tmp_path, f"{{type: {name}, prompt: 'Is it {{{{output}}}}?', model: a/b}}")
    assert found.type == "llm-grader"
    assert found.settings == {"prompt": "Is it {{output}}?", "model": "a/b"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{type: weighted_average, weights: {c: 2}}", {"weights": {"c": 2}}),
        ("{type: threshold, threshold: 0.5}", {"threshold": 0.5}),
        ("{type: code_judge, path: ./one.sh}", {"command": ["sh", "-c", "./one.sh"]}),
        ("{type: code, command: [python3, one.py]}", {"command": ["python3", "one.py"]}),
        ("{type: llm, target: chair, prompt: sum up}", {"target": "chair", "prompt": "sum up"}),
    ],
)
def test_an_aggregator_is_a_rule_a_script_or_a_judge(
    tmp_path: Path, written: str, read: dict[str, object]
):
    member = "{type: contains, name: c, value: x}"
    found = listed(tmp_path, f"{{type: composite, assertions: [{member}], aggregator: {written}}}")
    settings = found.settings["aggregator"]
    assert isinstance(settings, dict)
    assert {key: value for key, value in settings.items() if key != "type"} == read  # pyright: ignore[reportUnknownVariableType] (from a file)


@pytest.mark.parametrize(
    ("grader", "told"),
    [
        (
            "{type: llm-grader, prompt: p, temperature: 0}",
            ".temperature: is a setting of who judges",
        ),
        ("{type: llm-grader, prompt: p, max_steps: 3}", ".max_steps: unknown key"),
        ("{type: code-grader, command: [a], target: t}", ".target: unknown key"),
        ("{type: llm-grader, prompt: gone.md}", "there is no prompt"),
        ("{type: llm-grader, rubrics: [{outcome: x, weigth: 2}]}", "weigth"),
        ("{type: rubrics, criteria: [{id: a, outcome: x}, {id: a, outcome: y}]}", "['a'] are ids"),
        ("{type: rubrics, criteria: [{id: a, score_ranges: {low: x}}]}", "['low'] are no scores"),
        (
            "{type: composite, assertions: [{type: is-json}], aggregator: {type: majority}}",
            ".aggregator.type: unknown type 'majority'",
        ),
        (
            "{type: composite, assertions: [{type: is-json}], aggregator: {type: llm, weights: {}}}",
            ".aggregator.weights: unknown key",
        ),
    ],
)
def test_what_a_judge_cannot_use_is_refused(tmp_path: Path, grader: str, told: str):
    with pytest.raises(ConfigError) as caught:
        listed(tmp_path, grader)
    (line,) = str(caught.value).splitlines()
    assert "x.eval.yaml:1: tests[0].assertions[0]" in line
    assert told in line


def test_no_prompt_is_so_odd_that_it_cannot_be_read(tmp_path: Path):
    for prompt in ("file://\\0.md", "\\0.md", "x" * 10_000):
        assert listed(tmp_path, f'{{type: llm-grader, prompt: "{prompt}"}}').settings["prompt"]


def test_expected_calls_in_any_order_are_something_to_look_at(tmp_path: Path):
    found = listed(tmp_path, "{type: tool-trajectory, mode: any_order, expected: [{tool: a}]}")
    assert found.settings["mode"] == "any_order"
