"""`go-ent eval grade`: what it refuses, by whose rules it judges, and how many judges are asked at once."""

from pathlib import Path

import pytest
from eval_desk import EvalDesk

pytestmark = pytest.mark.timeout(120)

HELLO = "echo hello > {OUTPUT_FILE}"


@pytest.fixture
def desk(tmp_path: Path) -> EvalDesk:
    return EvalDesk(tmp_path)


def kept(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("graders", "told"),
    [
        ('- {type: regex, value: "("}', "g.yaml:1: [0]: '(' is not a regular expression"),
        (
            "assertions:\n- {type: tool-trajectory, mode: in_order}",
            "g.yaml:2: assertions[0]: A trajectory 'in_order' without `expected` checks nothing",
        ),
        (
            "- {type: code-grader, command: [./gone.sh]}",
            "g.yaml:1: [0]: Grader 'code-grader': there",
        ),
        (
            "- {type: field-accuracy, fields: [{path: a}]}",
            "expected output of case 'b' has no 'a'",
        ),
        (
            "- {type: tool-trajectory, mode: exact, expected: [{tool: a, statuss: ok}]}",
            "g.yaml:1: [0].expected[0].statuss: unknown key; did you mean 'status'?",
        ),
        (
            "- {type: llm-grader, criteria: c, target: noone}",
            "g.yaml:1: [0].target: there is no target 'noone'; did you mean 'one'?",
        ),
        ("- {type: llm-grader, criteria: c}", "case 'a' needs a judge; name one by --judge"),
    ],
)
def test_graders_that_no_attempt_could_pass_are_refused_before_anything_is_written(
    desk: EvalDesk, graders: str, told: str
) -> None:
    desk.targets(one=HELLO)
    assert desk.go_ent("run", desk.suite(["a", "b"]), "--out", desk.out).code == 0
    file = desk.folder / "g.yaml"
    file.write_text(graders)
    before = kept(desk.folder)

    for more in ((), ("--out", desk.folder / "other")):
        said = desk.go_ent("grade", desk.out, "--graders", file, *more)
        assert (said.code, told in said.err) == (2, True), said.err
    assert kept(desk.folder) == before
    assert not (desk.folder / "other").exists()


def test_a_run_by_agentvs_rules_can_be_graded_by_ours_and_back(desk: EvalDesk) -> None:
    trace = [{"role": "assistant", "content": "hello", "tool_calls": [{"tool": "Bash"}]}]
    target = {"name": "one", "provider": "mock", "response": {"output": trace}}
    desk.write(".goent/targets.yaml", {"targets": [target]})
    grader = {"type": "tool-trajectory", "mode": "in_order", "expected": [{"tool": "bash"}]}
    suite = desk.suite(["a"], assertions=[grader])
    assert desk.go_ent("run", suite, "--compat", "agentv", "--out", desk.out).code == 1

    def graded(*options: str) -> tuple[int, list[float]]:
        code = desk.go_ent("grade", desk.out, *options).code
        return code, [row.score for row in desk.rows()]

    assert graded() == (1, [0])
    assert graded("--compat", "none") == (0, [1])
    assert graded("--compat", "agentv") == (1, [0])


def test_a_judge_is_asked_no_more_often_at_once_than_he_stands(desk: EvalDesk) -> None:
    verdict = """echo '{"score": 1}' > {OUTPUT_FILE}"""
    busy = f"mkdir {desk.folder}/busy || touch {desk.folder}/clash"
    busy = f"{busy}; sleep 0.1; rmdir {desk.folder}/busy; {verdict}"
    judge = {"name": "judge", "provider": "cli", "command": busy, "workers": 1}
    answers = {"name": "one", "provider": "mock", "response": "hello"}
    desk.write(".goent/targets.yaml", {"targets": [answers, judge]})
    suite = desk.suite([f"c{number}" for number in range(6)])
    assert desk.go_ent("run", suite, "--target", "one", "--out", desk.out).code == 0
    graders = desk.write("g.yaml", [{"type": "llm-grader", "criteria": "c", "target": "judge"}])

    said = desk.go_ent("grade", desk.out, "--graders", graders)

    assert said.code == 0, said.err
    assert [row.score for row in desk.rows()] == [1] * 6
    assert not (desk.folder / "clash").exists()
