"""`go-ent eval run` with OpenCode as the target: a process of its own, as a person starts it."""

import json
import signal
import sys
from pathlib import Path

import anyio
import pytest
import yaml
from eval_opencode import KEY, Evaluation, a_home

from goent.evals.targets.opencode_transcript import LOG_FOLDER

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

RUN = [sys.executable, "-m", "goent", "eval", "run", "demo.eval.yaml", "--out", "out"]


@pytest.mark.spec("E01")
@pytest.mark.spec("E05")
@pytest.mark.spec("E07")
@pytest.mark.spec("E14")
@pytest.mark.spec("E17")
async def test_a_run_shows_its_logs_once_and_keeps_traces_and_decisions(tmp_path: Path) -> None:
    async with a_home(tmp_path) as home:
        (home.project / "demo.eval.yaml").write_text(yaml.safe_dump(SUITE))
        (home.project / ".goent" / "targets.yaml").write_text(yaml.safe_dump(TARGETS))
        done = await anyio.run_process(RUN, cwd=home.project, env=home.environ, check=False)
    said = done.stdout.decode() + done.stderr.decode()
    out = home.project / "out"
    rows = [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]
    by_id = {row["test_id"]: row for row in rows}
    assert (by_id["works"]["score"], by_id["works"]["execution_status"]) == (1.0, "ok"), said
    assert by_id["fails"]["execution_status"] == "execution_error"
    assert done.returncode == 3
    (log,) = (home.project / LOG_FOLDER).glob("*.jsonl")
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


@pytest.mark.spec("E08", "E12", "E14")
async def test_a_run_that_was_killed_goes_on_and_asks_nobody_twice(tmp_path: Path) -> None:
    """What the killed attempt had told is kept; logs that were switched off meanwhile stay off."""
    tests = [
        {"id": name, "input": text, "assertions": [{"type": "contains", "value": said}]}
        for name, text, said in (
            ("hello", "say hello", "Hello"),
            ("waits", "work and wait", "I waited."),
        )
    ]
    suite = {"name": "demo", "execution": {"target": "coder"}, "tests": tests}
    async with a_home(tmp_path) as home:
        (home.project / "demo.eval.yaml").write_text(yaml.safe_dump(suite))
        (home.project / ".goent" / "targets.yaml").write_text(yaml.safe_dump(TARGETS))
        out = home.project / "out"
        await _killed_in_the_middle(home, out)
        told = (out / "waits" / "trace.jsonl").read_text()
        logs = set((home.project / LOG_FOLDER).iterdir())
        home.models.open_gate("later")
        off = {**home.environ, "GOENT_OPENCODE_STREAM_LOGS": "0"}
        done = await anyio.run_process([*RUN, "--resume"], cwd=home.project, env=off, check=False)
        asked = [call.request.prompt for call in home.models.calls if call.request]
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]
    assert [(row["test_id"], row["score"]) for row in rows] == [("hello", 1.0), ("waits", 1.0)]
    assert sum("say hello" in prompt for prompt in asked) == 1, asked
    assert "So far. " in told
    assert (out / "waits" / "earlier-1" / "trace.jsonl").read_text() == told
    assert set((home.project / LOG_FOLDER).iterdir()) == logs


async def _killed_in_the_middle(home: Evaluation, out: Path) -> None:
    """With one case told and the other one at its gate, after it has said something."""
    stream = out / "waits" / "trace.jsonl"
    async with await anyio.open_process(RUN, cwd=home.project, env=home.environ) as run:
        await home.models.at_gate("later", 1, timeout=120)
        with anyio.fail_after(60):
            while not (_has_told(out / "index.jsonl", "\n") and _has_told(stream, "So far. ")):  # noqa: ASYNC110 (files tell nobody)
                await anyio.sleep(0.05)
        run.send_signal(signal.SIGKILL)


def _has_told(file: Path, words: str) -> bool:
    return file.exists() and words in file.read_text()
