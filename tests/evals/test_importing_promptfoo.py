"""Suites of promptfoo come over with all that go-ent can check; the rest is named."""

from pathlib import Path

from brought_over import brought

from goent.evals.files.suite_validation import validate
from goent.evals.files.target_reader import load_targets

PROMPTFOO = """
description: Greetings
prompts:
  - "Greet {{who}} in {{tongue}}"
  - file://prompt.txt
  - {raw: "Say hi to {{who | upper}}", label: loud}
providers:
  - echo
  - "exec: python answer.py"
  - {id: "openai:chat:gpt-x", label: The Model, config: {temperature: 0}}
  - {"anthropic:messages:claude-x": {config: {}}}
  - {id: opencode:sdk, config: {provider_id: p, model: m, working_dir: w}}
  - file://provider.py
defaultTest:
  assert: [{type: latency, threshold: 5000}]
tests:
  - description: Hello, Ann!
    vars: {who: Ann, tongue: [German, French]}
    assert:
      - {type: icontains, value: ann, metric: named}
      - {type: not-contains, value: Bob, weight: 2}
      - {type: javascript, value: "output.length > 3"}
      - {type: llm-rubric, value: is polite, threshold: 0.7, provider: x}
      - {type: is-json, value: {type: object}}
      - {type: contains-any, value: "a, b"}
      - {type: equals, value: {a: 1}}
      - {type: cost, threshold: 0.01}
      - {type: "trajectory:tool-sequence", value: {steps: [read, {name: edit}]}}
  - vars: {who: Bob, tongue: Dutch}
    threshold: 0.5
    assert: [{type: assert-set, threshold: 0.5, assert: [{type: regex, value: "^a"}, {type: contains, value: b}]}]
  - {description: Only a program, assert: [{type: python, value: x}]}
evaluateOptions: {repeat: 3, maxConcurrency: 2, cache: true}
"""


def test_a_configuration_of_promptfoo(tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(PROMPTFOO)
    (tmp_path / "prompt.txt").write_text("Dear {{who}},\n")
    told, suite = brought("promptfoo", path, tmp_path)
    assert (suite.name, suite.trials.count, suite.workers) == ("promptfoo", 3, 2)
    assert len(suite.cases) == 3 * (2 + 1) + 3, (
        "for each prompt two tongues and Bob, and the one with latency alone"
    )
    first = suite.cases[0]
    assert (first.id, first.input[0].text) == ("hello-ann", "Greet Ann in German")
    assert suite.cases[1].input[0].text == "Greet Ann in French"
    assert [(g.type, g.required, g.negate) for g in first.graders] == [
        ("icontains", True, False),
        ("contains", True, True),
        ("llm-grader", True, False),
        ("is-json", True, False),
        ("contains-any", True, False),
        ("equals", True, False),
        ("cost", True, False),
        ("tool-trajectory", True, False),
        ("latency", True, False),
    ]
    assert (first.graders[0].name, first.graders[1].weight) == ("named", 2)
    assert first.graders[4].settings["value"] == ["a", "b"]
    loose = next(case for case in suite.cases if case.threshold == 0.5)
    assert [(g.type, g.required) for g in loose.graders] == [
        ("composite", False),
        ("latency", False),
    ]
    targets = load_targets(tmp_path, {})
    assert {name: target.kind for name, target in targets.items()} == {
        "echo": "cli",
        "exec-python-answer-py": "cli",
        "the-model": "goent",
        "anthropic-messages-claude-x": "goent",
        "opencode-sdk": "opencode",
    }
    assert targets["the-model"].settings["model"] == "gpt-x"
    assert targets["opencode-sdk"].settings == {"model": "p/m"}
    assert validate([tmp_path / "promptfoo.eval.yaml"], {}).mistakes == ()
    for expected in (
        "an assertion of the type 'javascript'",
        "an assertion of the type 'python'",
        "the schema of is-json",
        "provider of an assertion of the type 'llm-rubric'",
        "more than {{name}} in the prompt 'Say hi to",
        "provider 'file://provider.py': not carried over: the whole provider",
        "provider 'openai:chat:gpt-x': not carried over: config.temperature",
        "evaluateOptions.cache",
    ):
        assert any(expected in note for note in (*told.notes, *told.lost_checks)), (expected, told)


def test_what_changes_a_verdict_is_lost_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(
        """
prompts: ["Say {{q}}", "Shout {{ q | upper }}"]
providers: [{id: echo, transform: output.trim(), delay: 3}]
tests:
  - vars: {q: x, r: "{{q}}!"}
    options: {transform: output.x, provider: y}
    assert:
      - {type: contains, value: "{{ q | upper }}"}
      - {type: contains-any, value: [a, "{% if q %}b{% endif %}"]}
      - {type: equals, value: "{{q}}", transform: output.y}
  - file://more.csv
scenarios: [{config: [], tests: []}]
"""
    )
    told, suite = brought("promptfoo", path, tmp_path / "out")
    assert [grader.settings["value"] for grader in suite.cases[0].graders] == ["x"]
    for expected in (
        "an assertion of the type 'contains': '{{ q | upper }}' is more than {{name}}",
        "an assertion of the type 'contains-any': '{% if q %}b{% endif %}' is more",
        "transform of an assertion of the type 'equals'",
        "test 1: options.transform",
        "test 1: what is to be filled in in the variable '{{q}}!'",
        "more than {{name}} in the prompt 'Shout {{ q | upper }}'",
        "provider 'echo': not carried over: transform",
        "tests from 'file://more.csv': write them as YAML, JSON or JSONL",
        "scenarios; write each of them out as tests",
    ):
        assert any(expected in line for line in told.lost_checks), (expected, told.lost_checks)
    assert {note.rpartition(" ")[2] for note in told.notes} == {"delay", "options.provider"}
