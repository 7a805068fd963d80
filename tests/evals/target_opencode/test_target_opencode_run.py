"""`go-ent eval run` with OpenCode as the target: a process of its own, as a person starts it."""

import json
import sys
from pathlib import Path

import anyio
import pytest
import yaml
from eval_opencode import KEY, a_home

from goent.evals.targets.opencode.logs import FOLDER

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SUITE = {
    "name": "demo",
    "execution": {"target": "coder"},
    "tests": [
        {
            "id": "works",
            "input": "work a little",
            "assertions": [
                {
                    "type": "tool-trajectory",
                    "mode": "in_order",
                    "args_match": "ignore",
                    "expected": [{"tool": "write", "status": "ok"}, {"tool": "bash"}],
                },
                {"type": "contains", "value": "All done.", "required": True},
            ],
        },
        {
            "id": "fails",
            "input": "delegate writing",
            "execution": {"target": "timid"},
            "assertions": [{"type": "contains", "value": "Delegated."}],
        },
    ],
}
TARGETS = {
    "targets": [
        {
            "name": "coder",
            "provider": "opencode",
            "model": "moonshot/glm-4",
            "permissionPolicy": "once",
        },
        {"name": "timid", "provider": "opencode", "model": "moonshot/glm-4", "streamLogs": False},
    ]
}


@pytest.mark.spec("E01")
@pytest.mark.spec("E05")
@pytest.mark.spec("E07")
@pytest.mark.spec("E14")
@pytest.mark.spec("E17")
async def test_a_run_shows_its_logs_once_and_keeps_traces_and_decisions(tmp_path: Path) -> None:
    async with a_home(tmp_path) as home:
        (home.project / "demo.eval.yaml").write_text(yaml.safe_dump(SUITE))
        (home.project / ".goent" / "targets.yaml").write_text(yaml.safe_dump(TARGETS))
        done = await anyio.run_process(
            [sys.executable, "-m", "goent", "eval", "run", "demo.eval.yaml", "--out", "out"],
            cwd=home.project,
            env=home.environ,
            check=False,
        )
    said = done.stdout.decode() + done.stderr.decode()
    out = home.project / "out"
    rows = [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]
    by_id = {row["test_id"]: row for row in rows}
    assert (by_id["works"]["score"], by_id["works"]["execution_status"]) == (1.0, "ok"), said
    assert by_id["fails"]["execution_status"] == "execution_error"
    assert done.returncode == 3
    (log,) = (home.project / FOLDER).glob("*.jsonl")
    assert said.replace("\n", "").count(log.name) == 1, said
    trace = json.loads((out / by_id["works"]["trace_path"]).read_text())
    assert trace["log_path"] == str(log)
    assert [
        call["tool"] for message in trace["messages"] for call in message.get("tool_calls", ())
    ] == [
        "write",
        "read",
        "bash",
    ]
    assert [one["permission"] for one in trace["permissions"]] == ["edit", "bash"]
    failed = json.loads((out / by_id["fails"]["trace_path"]).read_text())
    assert [one["decision"] for one in failed["permissions"]] == ["reject"]
    assert "permission 'edit' was refused" in failed["failure"]["message"]
    assert KEY not in said
