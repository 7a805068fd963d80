"""`go-ent eval run` as its own process: what it exits with, and what is left when it was killed,
interrupted or out of room."""

import signal
from pathlib import Path

import pytest
from eval_desk import EvalDesk, ended, interrupted, until

from goent.system.project_folders import state_dir

HELLO = "echo hello > {OUTPUT_FILE}"
COUNTED = "echo {EVAL_ID} >> calls; sleep 0.2; echo hello > {OUTPUT_FILE}"
TWELVE = [f"c{number}" for number in range(12)]


@pytest.fixture
def desk(tmp_path: Path) -> EvalDesk:
    return EvalDesk(tmp_path)


@pytest.mark.parametrize(
    ("command", "code"),
    [(HELLO, 0), ("echo bye > {OUTPUT_FILE}", 1), ("exit 7; echo never > {OUTPUT_FILE}", 3)],
    ids=["all pass", "one fails", "one cannot be judged"],
)
@pytest.mark.spec("E20")
def test_the_exit_code_tells_quality_from_trouble(desk: EvalDesk, command: str, code: int) -> None:
    desk.targets(one=command)

    said = desk.go_ent("run", desk.suite(["a"]), "--out", desk.out)

    assert said.code == code, said.err
    assert [row.test_id for row in desk.rows()] == ["a"]


def test_files_with_mistakes_exit_with_2_and_tell_all_of_them(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    tests: list[object] = [
        {"id": "twice", "input": "x", "assertions": [{"type": "contains", "value": "x"}]},
        {"id": "twice", "input": "x", "assertions": [{"type": "contains", "value": "x"}]},
        {"id": "ungraded", "input": "x", "assertions": []},
        {"id": "odd", "input": "x", "assertions": [{"type": "contanis", "value": "x"}]},
    ]
    suite = desk.write("s.eval.yaml", {"name": "s", "tests": tests})

    said = desk.go_ent("run", suite, "--out", desk.out)

    assert said.code == 2
    for mistake in ("s.eval.yaml:8: tests[1]: 'twice'", "tests[2]", "'contanis'"):
        assert mistake in said.err
    assert not desk.out.exists()


def test_kill_9_and_resume_lose_nothing_and_repeat_nothing(desk: EvalDesk) -> None:
    desk.targets(one=COUNTED)
    suite = desk.suite(TWELVE)
    run = ("run", suite, "--out", desk.out, "--workers", "2")
    process = desk.start(*run)
    desk.until_rows(4)

    killed = interrupted(process, signal.SIGKILL)
    before = desk.rows()
    resumed = desk.go_ent(*run, "--resume")

    assert killed.code == -signal.SIGKILL
    assert resumed.code == 0, resumed.err
    after = desk.rows()
    assert after[: len(before)] == before
    assert sorted(row.test_id for row in after) == sorted(TWELVE)
    assert {desk.calls[row.test_id] for row in before} == {1}
    assert desk.left_running() == []


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_what_it_started_and_says_how_to_go_on(
    desk: EvalDesk, by: signal.Signals
) -> None:
    desk.targets(one="echo {EVAL_ID} >> calls; sleep 300 & sleep 300; echo late > {OUTPUT_FILE}")
    process = desk.start("run", desk.suite(TWELVE), "--out", desk.out, "--workers", "2")
    desk.until_calls(2)

    said = interrupted(process, by)

    assert said.code == 128 + by, said.err
    assert desk.left_running() == []
    assert "--resume" in said.out


def test_a_target_that_takes_too_long_ends_with_its_children_and_alone(desk: EvalDesk) -> None:
    desk.targets(
        one="if [ {EVAL_ID} = slow ]; then sleep 300 & setsid sleep 300 & sleep 300; fi; " + HELLO
    )

    said = desk.go_ent("run", desk.suite(["slow", "quick"]), "--out", desk.out, "--timeout", "1")

    assert said.code == 3
    rows = {row.test_id: row for row in desk.rows()}
    assert rows["quick"].execution_status == "ok"
    assert (rows["slow"].error or "").startswith("timeout: ")
    assert desk.left_running() == []


def test_a_full_disk_ends_the_run_and_costs_no_row(desk: EvalDesk) -> None:
    desk.targets(one=f"echo {{EVAL_ID}} >> calls; {HELLO}")
    run = ("run", desk.suite(TWELVE), "--out", desk.out, "--workers", "2")

    full = desk.go_ent(*run, shell="ulimit -f 3")  # no file grows beyond 3 kB

    assert full.code == 3, full.err
    assert "the run cannot be written to" in full.err
    assert "--resume" in full.err
    before = desk.rows()
    assert 0 < len(before) < len(TWELVE)
    assert (desk.out / "index.jsonl").read_bytes().endswith(b"\n")
    assert desk.left_running() == []

    resumed = desk.go_ent(*run, "--resume")

    assert resumed.code == 0, resumed.err
    assert desk.rows()[: len(before)] == before
    assert {desk.calls[row.test_id] for row in before} == {1}


def test_two_runs_do_not_write_to_one_folder(desk: EvalDesk) -> None:
    desk.targets(one="echo {EVAL_ID} >> calls; sleep 300; echo late > {OUTPUT_FILE}")
    run = ("run", desk.suite(["a"]), "--out", desk.out)
    first = desk.start(*run)
    desk.until_calls(1)

    second = desk.go_ent(*run, "--resume")
    interrupted(first, signal.SIGTERM)

    assert second.code == 2
    assert "another `go-ent eval` is writing there" in second.err


def test_a_run_is_not_written_over(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    run = ("run", desk.suite(["a"]), "--out", desk.out)
    assert desk.go_ent(*run).code == 0

    again = desk.go_ent(*run)

    assert again.code == 2
    assert "--resume" in again.err
    assert len(desk.rows()) == 1


def test_what_could_not_be_judged_is_made_again_when_asked(desk: EvalDesk) -> None:
    desk.targets(one=f"test -e {desk.folder}/well || exit 9; {HELLO}")
    run = ("run", desk.suite(["a", "b"]), "--out", desk.out)
    assert desk.go_ent(*run).code == 3
    (desk.folder / "well").touch()
    assert desk.go_ent(*run, "--resume").code == 3

    again = desk.go_ent(*run, "--retry", "errors")

    assert again.code == 0, again.err


def test_without_a_folder_one_is_made_that_git_does_not_see(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    suite = desk.suite(["a"])
    for _ in range(2):
        assert desk.go_ent("run", suite).code == 0

    runs = desk.folder / ".goent" / "evals"
    assert (runs / ".gitignore").read_text() == "*\n"
    assert len([path for path in runs.iterdir() if (path / "index.jsonl").is_file()]) == 2


def test_stored_runs_are_graded_again_without_being_made_again(desk: EvalDesk) -> None:
    desk.targets(one=COUNTED)
    suite = desk.suite(["a", "b"])
    assert desk.go_ent("run", suite, "--out", desk.out).code == 0
    calls = desk.calls
    graders = desk.write("g.yaml", {"assertions": [{"type": "contains", "value": "goodbye"}]})

    beside = desk.go_ent("grade", desk.out, "--graders", graders, "--out", desk.folder / "other")
    assert beside.code == 1, beside.err
    assert {row.execution_status for row in desk.rows()} == {"ok"}
    (one, _) = desk.rows(desk.folder / "other")
    assert (desk.folder / "other" / one.trace_path).samefile(desk.out / one.test_id / "trace.json")

    there = desk.go_ent("grade", desk.out, "--graders", graders)
    assert there.code == 1, there.err
    assert {row.execution_status for row in desk.rows()} == {"quality_failure"}
    assert len(desk.rows()) == 2
    assert (desk.out / "index.1.jsonl").is_file()

    back = desk.go_ent("grade", desk.out)
    assert back.code == 0, back.err
    assert desk.calls == calls


MOCK = {"name": "coder", "provider": "mock", "response": "hello"}
FALLS = {"name": "coder", "provider": "cli", "command": "exit 7; : {OUTPUT_FILE}"}


@pytest.mark.parametrize(
    "answering",
    [[MOCK], [{**FALLS, "fallback_targets": ["gone"]}, {**MOCK, "name": "gone"}]],
    ids=["the target is another by now", "its fallback is gone"],
)
def test_a_grading_teaches_nothing_of_whoever_the_targets_name_by_now(
    desk: EvalDesk, answering: list[object]
) -> None:
    desk.write(".goent/targets.yaml", {"targets": answering})
    run = desk.go_ent("run", desk.suite(["a"]), "--target", "coder", "--out", desk.out)
    assert run.code == 0, run.err
    now = {"name": "coder", "provider": "opencode", "model": "moonshot/glm-4"}
    desk.write(".goent/targets.yaml", {"targets": [now]})
    graders = desk.write("g.yaml", {"assertions": [{"type": "contains", "value": "goodbye"}]})

    said = desk.go_ent("grade", desk.out, "--graders", graders)

    assert said.code == 1, said.err
    assert [row.execution_status for row in desk.rows()] == ["quality_failure"]
    assert not (state_dir(desk.env) / "history.db").exists()


def test_a_trace_that_is_gone_spoils_no_other_grade(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    assert desk.go_ent("run", desk.suite(["a", "b"]), "--out", desk.out).code == 0
    (desk.out / "a" / "trace.json").unlink()

    said = desk.go_ent("grade", desk.out)

    assert said.code == 3
    assert {row.test_id: row.execution_status for row in desk.rows()} == {
        "a": "execution_error",
        "b": "ok",
    }


LONG = "echo x >> calls; setsid sh -c \"trap '' TERM; sleep 300\" & sleep 300"


@pytest.mark.parametrize("command", ["run", "grade"])
def test_nothing_outlives_a_run_that_is_killed(desk: EvalDesk, command: str) -> None:
    desk.let_scripts_write_here()
    slow = {"type": "code-grader", "command": ["sh", "-c", LONG]}
    desk.targets(one=f"{LONG}; {HELLO}", quick=HELLO)
    suite = desk.suite(["a"])
    arguments: tuple[str | Path, ...] = ("run", suite, "--target", "one", "--out", desk.out)
    if command == "grade":
        assert desk.go_ent("run", suite, "--target", "quick", "--out", desk.out).code == 0
        graders = desk.write("g.yaml", {"assertions": [slow]})
        arguments = ("grade", desk.out, "--graders", graders)
    process = desk.start(*arguments)
    desk.until_calls(1)
    assert desk.running()

    process.kill()
    ended(process)

    assert desk.left_running() == []


def test_no_process_of_a_killed_run_outlives_the_next_one(desk: EvalDesk) -> None:
    desk.targets(one="echo {EVAL_ID} >> calls; sleep 300; echo late > {OUTPUT_FILE}", quick=HELLO)
    process = desk.start("run", desk.suite(["a"]), "--out", desk.out, "--target", "one")
    desk.until_calls(1)
    process.kill()
    ended(process)

    said = desk.go_ent("run", desk.suite(["a"]), "--target", "quick")

    assert said.code == 0, said.err
    assert desk.left_running() == []


def test_no_prompt_of_a_killed_run_outlives_the_next_one(desk: EvalDesk) -> None:
    scratch = Path(desk.env["HOME"]) / ".local/state/go-ent/evals/scratch"
    desk.env["TMPDIR"] = str(desk.folder / "tmp")
    (desk.folder / "tmp").mkdir()
    desk.let_scripts_write_here()
    slow = {"type": "code-grader", "command": "touch graded; sleep 300"}
    waiting = "test -s {PROMPT_FILE}; echo {EVAL_ID} >> calls; sleep 300; echo x > {OUTPUT_FILE}"
    desk.targets(one=waiting, quick=HELLO)
    suite = desk.suite(["a"])
    process = desk.start("run", suite, "--out", desk.out, "--target", "one")
    desk.until_calls(1)
    process.kill()
    ended(process)
    assert [path.read_text() for path in scratch.rglob("prompt.txt")] == ["say hello"]
    graded = desk.start("run", desk.suite(["b"], name="g", assertions=[slow]), "--target", "quick")
    until((desk.folder / "graded").exists)
    assert [path.read_text() for path in scratch.rglob("prompt.txt")] == []  # the next one swept
    graded.kill()
    ended(graded)
    assert list(scratch.rglob("goent-grader-*"))

    said = desk.go_ent("run", suite, "--target", "quick")

    assert said.code == 0, said.err
    assert list(scratch.iterdir()) == []
    assert list((desk.folder / "tmp").iterdir()) == []
    assert desk.left_running() == []
