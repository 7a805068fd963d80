"""Somebody watches a swarm at a terminal: the table, questions, Ctrl-C."""

from pathlib import Path

import pytest
from desk import Person
from msgspec.structs import replace
from swarm_daemon import QUESTION, SWARM, SwarmDaemon, result, status, task

from goent.domain.types import Failure

RUNNING = status(task("api", "running", step="edit api.py"), task("docs", "pending"))
ASKING = status(task("api", "waiting", permission="q1"), task("docs", "running"), state="waiting")
DONE = (task("api", "completed", evidence="verified"), task("docs", "completed"))
OVER = status(*DONE, state="completed")
LIMITED = Failure(kind="rate_limited", message="429 three times")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".goent").mkdir(parents=True)
    (folder / "tasks.yaml").write_text("tasks: [{id: api, prompt: x}, {id: docs, prompt: y}]\n")
    return folder


def test_the_table_moves_and_makes_way_for_the_summary(project: Path):
    failing = status(
        task("api", "failed", failure=LIMITED), task("docs", "running", step="read README.md")
    )
    daemon = SwarmDaemon(RUNNING, RUNNING, failing, failing, OVER, result=result(*DONE))
    with daemon.serving(project):
        person = Person("swarm", "tasks.yaml", cwd=project)
        person.sees("edit api.py")
        person.sees("0/2 · $0.5000 of $2.00 · 1m05s")
        person.sees("✗ api failed: rate_limited: 429 three times")
        person.sees("read README.md")
        assert person.leaves() == 0
        assert "go-ent swarm merge" in person.seen
        assert person.seen.count("\x1b[?25l") == person.seen.count("\x1b[?25h") == 1


@pytest.mark.parametrize(("key", "option"), [("y", "allow_once"), ("n", "reject")])
def test_a_question_is_answered_by_one_key(project: Path, key: str, option: str):
    daemon = SwarmDaemon(ASKING, result=result(*DONE))
    with daemon.serving(project):
        person = Person("swarm", "tasks.yaml", cwd=project)
        person.sees("? api (w-api) asks for bash: make test")
        person.sees("[y] yes, once  [n] no")
        person.sees("1 question open")
        assert daemon.question == QUESTION
        person.types(key)
        person.sees(f"api: {option}")
        daemon.statuses = [OVER]
        assert person.leaves() == 0
        asked = daemon.params("worker_answer")
        assert (asked["worker_id"], asked["permission_id"]) == ("w-api", "q1")
        assert asked["option"] == option


def test_a_question_of_a_swarm_is_viewed_whole_and_answered_with_words(project: Path):
    daemon = SwarmDaemon(ASKING, result=result(*DONE))
    detail = "a.py\n" + "\n".join(f"+line {n}" for n in range(200))
    daemon.question = replace(
        QUESTION,
        tool="edit",
        detail=detail,
        reason="a guarded file",
        always='allow edit "a.py" for this worker',
        expires_at="2100-01-01T00:00:00.000Z",
    )
    with daemon.serving(project):
        person = Person("swarm", "tasks.yaml", cwd=project)
        person.sees("? api (w-api) asks for edit: a.py")
        person.sees("more characters; press v to see all")
        person.sees("+line 199")
        person.sees("a guarded file")
        person.sees('always: allow edit "a.py" for this worker')
        person.sees("left  [y] yes, once")
        assert "+line 100\x1b" not in person.seen
        person.types("v")
        person.sees("+line 100\x1b")
        person.types("i")
        person.sees("no, do this instead:")
        person.types("leave it\r")
        person.sees("api: reject")
        daemon.statuses = [OVER]
        assert person.leaves() == 0
        asked = daemon.params("worker_answer")
        assert (asked["option"], asked["message"]) == ("reject", "leave it")


def test_ctrl_c_cancels_the_swarm_and_shows_what_was_done(project: Path):
    stopped = result(task("api", "cancelled"), task("docs", "cancelled"), state="cancelled")
    daemon = SwarmDaemon(RUNNING, result=stopped)
    with daemon.serving(project):
        person = Person("swarm", "tasks.yaml", "--merge", cwd=project)
        person.sees("edit api.py")
        person.types("\x03")
        assert person.leaves() == 130
        assert "cancelling; Ctrl-C again exits immediately" in person.seen
        assert f"■ {SWARM} tidy-up cancelled" in person.seen
        assert "Traceback" not in person.seen
        assert daemon.params("swarm_cancel")["reason"] == "Ctrl-C"


def test_a_second_ctrl_c_leaves_at_once(project: Path):
    daemon = SwarmDaemon(RUNNING, result=result(*DONE))
    daemon.deaf_to_cancel = True
    with daemon.serving(project):
        person = Person("swarm", "tasks.yaml", cwd=project)
        person.sees("edit api.py")
        person.types("\x03")
        person.sees("cancelling")
        person.types("\x03")
        assert person.leaves() == 130
        assert f"may still be running: `go-ent swarm cancel {SWARM}` ends it" in person.seen
        assert "Traceback" not in person.seen


def test_who_only_looks_on_cancels_nothing(project: Path):
    daemon = SwarmDaemon(RUNNING)
    with daemon.serving(project):
        person = Person("swarm", "status", SWARM, "--follow", cwd=project)
        person.sees("edit api.py")
        person.types("\x03")
        assert person.leaves() == 0
        assert daemon.count("swarm_cancel") == 0
        assert "Traceback" not in person.seen


def test_a_swarm_outlives_its_daemon(project: Path):
    first, second = SwarmDaemon(RUNNING), SwarmDaemon(OVER, result=result(*DONE))
    with first.serving(project):
        person = Person("swarm", "tasks.yaml", cwd=project)
        person.sees("edit api.py")
        with second.serving(project):
            first.dies()
            person.sees("the daemon ended; the next one resumes the swarm")
            assert person.leaves() == 0
    assert (first.count("swarm_spawn"), second.count("swarm_spawn")) == (1, 0)
