"""`go-ent eval run` as its own process: each attempt in its workspace, and what is left of them."""

import json
import signal
from pathlib import Path

import pytest
from eval_desk import EvalDesk, interrupted

from goent.evals.traces import Trace

# It adds its case's id to a file, and tells all of that file: who sees another's line, leaks.
WRITING = "echo {EVAL_ID} >> notes.txt; cat notes.txt > {OUTPUT_FILE}"


@pytest.fixture
def desk(tmp_path: Path) -> EvalDesk:
    desk = EvalDesk(tmp_path)
    desk.env["ANTHROPIC_API_KEY"] = "sk-of-the-user"
    (desk.folder / "start").mkdir()
    (desk.folder / "start" / "notes.txt").write_text("beginning\n")
    return desk


def a_suite(desk: EvalDesk, hooks: dict[str, object], **expected: str) -> Path:
    tests = [
        {"id": name, "input": "x", "assertions": [{"type": "equals", "value": value}]}
        for name, value in expected.items()
    ]
    workspace = {"template": "./start", "hooks": hooks}
    return desk.write("s.eval.yaml", {"name": "s", "workspace": workspace, "tests": tests})


def trace(desk: EvalDesk, name: str) -> Trace:
    return Trace(**json.loads((desk.out / name / "trace.json").read_bytes()))


def spaces(desk: EvalDesk) -> list[Path]:
    root = Path(desk.env["HOME"]) / ".local/state/go-ent/evals/workspaces"
    return sorted(root.glob("run-*/*/work"))


@pytest.mark.spec("E02")
def test_attempts_see_nothing_of_each_other_and_tell_what_they_changed(desk: EvalDesk) -> None:
    desk.targets(one=WRITING)
    suite = a_suite(desk, {}, a="beginning\na", b="beginning\nb", c="something else")

    said = desk.go_ent("run", suite, "--out", desk.out, "--workers", "2")

    assert said.code == 1, said.err
    assert {row.test_id: row.score for row in desk.rows()} == {"a": 1, "b": 1, "c": 0}
    for name in "abc":
        told = trace(desk, name).file_changes
        assert told.endswith(f" beginning\n+{name}\n"), told
    (kept,) = spaces(desk)
    assert str(kept) == trace(desk, "c").workspace_path
    assert (kept / "notes.txt").read_text() == "beginning\nc\n"
    assert (desk.folder / "start" / "notes.txt").read_text() == "beginning\n"


def test_a_hook_that_fails_costs_its_own_case_and_sees_no_key(desk: EvalDesk) -> None:
    desk.targets(one=WRITING)
    desk.let_scripts_write_here()
    hook = f'env >> {desk.folder}/seen; ! grep -q \'"test_id":"b"\''
    suite = a_suite(desk, {"before_each": {"command": hook}}, a="beginning\na", b="beginning\nb")

    said = desk.go_ent("run", suite, "--out", desk.out)

    assert said.code == 3, said.err
    rows = {row.test_id: row for row in desk.rows()}
    assert rows["a"].score == 1
    assert (rows["b"].error or "").startswith("setup_failed: before_each")
    assert "PATH=" in (desk.folder / "seen").read_text()
    assert "sk-of-the-user" not in (desk.folder / "seen").read_text()
    (kept,) = spaces(desk)
    assert f"see {str(kept)!r}" in (rows["b"].error or ""), "what it failed on can be looked at"
    assert trace(desk, "a").workspace_path is None, "its directory was removed"


def test_what_a_killed_run_left_goes_with_the_next_one(desk: EvalDesk) -> None:
    desk.targets(one=f"echo x >> {desk.folder}/calls; sleep 300; echo late > {{OUTPUT_FILE}}")
    suite = a_suite(desk, {}, a="beginning\na")
    process = desk.start("run", suite, "--out", desk.out)
    desk.until_calls(1)
    assert len(spaces(desk)) == 1

    interrupted(process, signal.SIGKILL)
    desk.targets(one=WRITING)
    said = desk.go_ent("run", suite, "--out", desk.out, "--resume")

    assert said.code == 0, said.err
    assert spaces(desk) == []
    assert desk.left_running() == []
