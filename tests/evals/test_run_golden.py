"""All of AgentV's recorded verdicts, by the same files and a real run."""

import json
import shutil
from pathlib import Path

import pytest
from eval_desk import EvalDesk

HERE = Path(__file__).parent / "compat"
GOLDEN = {
    row["id"]: row for row in map(json.loads, (HERE / "golden.jsonl").read_text().splitlines())
}


@pytest.mark.spec("E20")
def test_a_run_in_compat_mode_says_what_agentv_says_of_every_case(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    shutil.copytree(HERE, desk.folder, dirs_exist_ok=True)
    desk.targets(fixture="cat fixtures/{EVAL_ID}.json > {OUTPUT_FILE}")

    said = desk.go_ent("run", "suite.eval.yaml", "--out", desk.out, "--compat", "agentv")

    assert said.code == 3, said.err
    rows = {row.test_id: row for row in desk.rows()}
    assert rows.keys() == GOLDEN.keys()
    for name, golden in GOLDEN.items():
        row, scores = rows[name], golden["scores"]
        assert (row.execution_status, row.score) == (
            golden["status"],
            pytest.approx(golden["score"], abs=1e-6),
        ), name
        assert [(one.name, one.type, one.verdict, one.weight) for one in row.scores] == [
            (one["name"], one["type"], one["verdict"], one["weight"]) for one in scores
        ], name
        assert [one.score for one in row.scores] == pytest.approx([one["score"] for one in scores])


def test_conversations_and_dependencies_come_to_what_agentv_says(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    shutil.copy(HERE / "talks.eval.yaml", desk.folder)
    mock = {"name": "fixed", "provider": "mock", "response": "hello Ann"}
    broken = {"name": "bad", "provider": "cli", "command": "false > {OUTPUT_FILE}"}
    desk.write(".goent/targets.yaml", {"targets": [mock, broken]})

    said = desk.go_ent("run", "talks.eval.yaml", "--out", desk.out, "--compat", "agentv")

    assert said.code == 3, said.err
    rows = {row.test_id: row for row in desk.rows()}
    lines = (HERE / "talks.jsonl").read_text().splitlines()
    for golden in map(json.loads, lines):
        row = rows.pop(golden["id"])
        assert (row.execution_status, row.score) == (golden["status"], golden["score"]), row
        assert [(one.name, one.score, one.verdict) for one in row.scores] == [
            (one["name"], one["score"], one["verdict"]) for one in golden["scores"]
        ], row
    assert not rows
