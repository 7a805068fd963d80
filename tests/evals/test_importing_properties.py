"""Whatever a file of others says, it comes over as it was, or is refused."""

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goent.config.file_syntax import parse_document
from goent.config.settings_tree import Problems, SettingPlace
from goent.domain.errors import ConfigError
from goent.evals.files.file_source import plain_value
from goent.evals.files.suite_reader import load_suites
from goent.evals.importers.import_documents import as_yaml
from goent.evals.importers.suite_importer import ImportKind, import_files, write_import

leaves = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20)
trees = st.recursive(
    leaves | st.sampled_from(["1e5", "yes", "~", "null", "0x1", "2025-01-01", "a: b", "# x", "<<"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=8), trees, max_size=4))
def test_what_is_written_is_what_is_read(value: dict[str, object]) -> None:
    problems = Problems()
    node = parse_document(as_yaml(value), SettingPlace(file="x"), problems)
    problems.raise_all()
    assert (plain_value(node) or {}) == value


words = st.sampled_from(
    (
        *("id", "input", "tests", "evalcases", "assertions", "type", "contains", "value"),
        *("execution", "targets", "name", "provider", "cli", "workspace", "hooks", "vars"),
        *("prompts", "assert", "providers", "equals", "defaultTest", "role", "content"),
        *("rubrics", "composite", "threshold"),
    )
)
anything = st.recursive(
    leaves | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5),
    max_leaves=25,
)


said = st.text(min_size=1, max_size=60).filter(lambda text: text.strip() and "{{" not in text)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(said, said, said), min_size=1, max_size=4), st.booleans())
def test_whatever_is_said_comes_over_as_it_was(
    tmp_path: Path, cases: list[tuple[str, str, str]], seed: bool
) -> None:
    grader = {"type": "contains_any", "required": True}
    tests = [
        {
            "id": f"case-{number}",
            ("expected_outcome" if seed else "criteria"): criteria,
            ("input_messages" if seed else "input"): [{"role": "user", "content": asked}],
            ("evaluators" if seed else "assertions"): [{**grader, "value": [value, "x"]}],
        }
        for number, (asked, criteria, value) in enumerate(cases)
    ]
    path = tmp_path / "said.yaml"
    path.write_text(as_yaml({"evalcases" if seed else "tests": tests}), encoding="utf-8")
    told = import_files("agentv", [path], tmp_path)
    write_import(told, tmp_path, force=True)
    (suite,) = load_suites([tmp_path / "said.eval.yaml"], {})
    told_apart = [(asked, criteria.strip(), value) for asked, criteria, value in cases]
    assert told_apart == [
        (case.input[0].text, case.criteria, case.graders[0].settings["value"][0])  # pyright: ignore[reportIndexIssue] (a list, as written)
        for case in suite.cases
    ]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(words, anything, max_size=4), anything)
def test_any_values_are_imported_or_refused(
    tmp_path: Path, value: dict[str, object], more: object
) -> None:
    path = tmp_path / "any.yaml"
    for key in ("tests", "evalcases", "targets"):
        path.write_text(json.dumps({**value, key: more}))
        refused_or_yaml("agentv", path)
    path.write_text(json.dumps({"prompts": ["x"], "tests": more, **value}))
    refused_or_yaml("promptfoo", path)


def refused_or_yaml(kind: ImportKind, path: Path) -> None:
    try:
        told = import_files(kind, [path], path.parent)
    except ConfigError:
        return
    for text in told.files.values():
        problems = Problems()
        parse_document(text, SettingPlace(file="x"), problems)
        problems.raise_all()
