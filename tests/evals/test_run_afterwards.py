"""What is told when a run is over, and what is left of one that was cut off: processes and their words."""

import json
import shlex
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from eval_desk import EvalDesk, interrupted, until

from goent.evals.runner.run_folder import read_manifest

HELLO = "echo {EVAL_ID} >> calls; echo hello > {OUTPUT_FILE}"
SLOW = "echo {EVAL_ID} >> calls; sleep 300 & sleep 300; echo late > {OUTPUT_FILE}"


@pytest.fixture
def desk(tmp_path: Path) -> EvalDesk:
    return EvalDesk(tmp_path)


def summary(desk: EvalDesk) -> Any:
    return json.loads(desk.go_ent("report", desk.out, "--json").out)


def test_whoever_could_not_judge_is_asked_again_and_no_agent_is(desk: EvalDesk) -> None:
    judge = f"test -e {desk.folder}/well || exit 9; echo '{{\"score\": 1}}' > {{OUTPUT_FILE}}"
    desk.targets(one=HELLO, judge=judge)
    suite = desk.suite(["a"], assertions=[{"type": "llm-grader", "criteria": "polite"}])
    run = ("run", suite, "--target", "one", "--judge", "judge", "--out", desk.out)

    said = desk.go_ent(*run)

    assert said.code == 3, said.err
    line = said.out.splitlines()[-1]
    assert line.endswith("  # once the judge answers, or with another one by --judge NAME: grade "
                         "again, without running an agent")  # fmt: skip
    assert "--retry" not in said.out
    (desk.folder / "well").touch()
    again = desk.go_ent(*shlex.split(line, comments=True)[2:])
    assert again.code in (0, 1), again.err
    assert desk.calls == {"a": 1}


def test_what_failed_is_made_again_after_what_could_not_be_graded_was(desk: EvalDesk) -> None:
    desk.targets(one=f"test {{EVAL_ID}} = a || exit 9; {HELLO}")
    nowhere = {"type": "code-grader", "command": ["no-such-program"]}
    suite = desk.suite(["a", "b"], assertions=[nowhere])

    said = desk.go_ent("run", suite, "--out", desk.out)

    assert said.code == 3, said.err
    first, second = said.out.splitlines()[-2:]
    assert "go-ent eval grade " in first
    assert "# once the grader's program can be started: grade again" in first
    assert second.endswith(" --retry errors  # then retry the attempts with errors")


def test_an_interrupted_run_tells_how_much_is_missing(desk: EvalDesk) -> None:
    desk.targets(one=f"test {{EVAL_ID}} = a || sleep 300; {HELLO}")
    run = desk.start("run", desk.suite(["a", "b", "c"]), "--out", desk.out)
    desk.until_rows(1)

    said = interrupted(run, signal.SIGTERM)

    assert said.code == 143
    assert "! not finished: 1 of 3 trials: 1 passed" in said.out
    told = summary(desk)
    assert (told["planned"], told["unrun"], told["result"]) == (3, 2, "unfinished")
    reported = desk.go_ent("report", desk.out, "--junit", "-")
    error = ET.fromstring(reported.out).find(".//error")
    assert error is not None and error.get("message") == "2 of 3 trials were not made"
    assert "2 of 3 trials were not made" in desk.go_ent("report", desk.out, "--markdown", "-").out
    assert "2 of 3 trials were not made" in desk.go_ent("report", desk.out, "--html", "-").out


def test_the_reason_of_a_failure_reaches_the_build_server(desk: EvalDesk) -> None:
    desk.targets(one="echo bye > {OUTPUT_FILE}")
    assert desk.go_ent("run", desk.suite(["a"]), "--out", desk.out).code == 1

    failure = ET.fromstring(desk.go_ent("report", desk.out, "--junit", "-").out).find(".//failure")

    message = (failure.get("message") if failure is not None else "") or ""
    assert message.startswith("score 0: contains-hello: The answer lacks 'hello'")


def test_trials_that_a_cases_own_limit_spares_are_told_and_stay_so_when_graded(
    desk: EvalDesk,
) -> None:
    answer = json.dumps({"text": "hello", "cost_usd": 1})
    desk.targets(one=f"echo {shlex.quote(answer)} > {{OUTPUT_FILE}}")
    suite = desk.write(
        "s.eval.yaml",
        {
            "execution": {"trials": {"count": 3, "cost_limit_usd": 1.5}},
            "tests": [
                {"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "hello"}]}
            ],
        },
    )

    said = desk.go_ent("run", suite, "--out", desk.out)

    assert said.code == 0, said.err
    assert "! 2 trials were left out: their cases have cost as much as cost_limit_usd" in said.out
    graded = desk.go_ent("grade", desk.out)
    assert graded.code == 0, graded.err
    told = summary(desk)
    assert (told["unrun"], told["spared"]) == (0, 2)


@pytest.mark.parametrize(("budget", "advised"), [("0", ""), ("0.001", " --budget-usd 0.02")])
def test_more_is_advised_than_was_spent(desk: EvalDesk, budget: str, advised: str) -> None:
    answer = json.dumps({"text": "hello", "cost_usd": 0.01})
    desk.targets(one=f"echo {shlex.quote(answer)} > {{OUTPUT_FILE}}")

    said = desk.go_ent("run", desk.suite(["a", "b"]), "--out", desk.out, "--budget-usd", budget)

    assert said.code == 3
    line = said.out.splitlines()[-1]
    assert f" --out {desk.out}{advised} --resume  # resume it" in line
    assert desk.go_ent(*shlex.split(line, comments=True)[2:]).code == 0


def test_dice_that_are_thrown_again_stay_told_when_graded_again(desk: EvalDesk) -> None:
    desk.targets(
        one=f"if test -e {desk.folder}/well; then {HELLO}; else echo bye > {{OUTPUT_FILE}}; fi"
    )
    run = ("run", desk.suite(["a", "b"]), "--out", desk.out)
    assert desk.go_ent(*run).code == 1
    (desk.folder / "well").touch()

    again = desk.go_ent(*run, "--retry", "failed")

    assert again.code == 0, again.err
    assert "! 2 trials were made again after a failure" in again.out
    assert desk.go_ent("grade", desk.out).code == 0
    assert summary(desk)["remade"] == 2


def test_an_interrupted_grading_leaves_the_grades_from_before(desk: EvalDesk) -> None:
    desk.targets(one=HELLO)
    assert desk.go_ent("run", desk.suite(["a", "b"]), "--out", desk.out).code == 0
    desk.let_scripts_write_here()
    before = {path.relative_to(desk.out) for path in desk.out.rglob("*")}
    script = f'cat >/dev/null; touch {desk.folder}/begun; test "$GO" || sleep 300; echo 0'
    slow = [{"type": "code-grader", "command": ["sh", "-c", script]}]
    graders = desk.write("g.yaml", slow)
    for options in ((), ("--out", desk.folder / "other")):
        (desk.folder / "begun").unlink(missing_ok=True)
        grading = desk.start("grade", desk.out, "--graders", graders, *options)
        until((desk.folder / "begun").exists)

        said = interrupted(grading, signal.SIGINT)

        assert (said.code, said.out) == (130, "")
        assert "interrupted: the new grades are discarded; the earlier ones still count" in said.err
        assert {path.relative_to(desk.out) for path in desk.out.rglob("*")} == before
        assert {row.execution_status for row in desk.rows()} == {"ok"}
    desk.env["GO"] = "1"
    again = desk.go_ent("grade", desk.out, "--graders", graders, "--out", desk.folder / "other")
    assert again.code == 1, again.err


def test_a_second_interruption_leaves_no_process(desk: EvalDesk) -> None:
    """The first one waits for a hook that tidies up, and takes its time."""
    desk.let_scripts_write_here()
    desk.targets(one=SLOW)
    tidy = {
        "command": ["sh", "-c", f"touch {desk.folder}/tidying; sleep 300"],
        "timeout_seconds": 300,
    }
    suite = desk.write(
        "s.eval.yaml",
        {
            "workspace": {"hooks": {"after_each": tidy}},
            "tests": [
                {"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "hello"}]}
            ],
        },
    )
    process = desk.start("run", suite, "--out", desk.out)
    until(lambda: any(desk.folder.parent.rglob("calls")))
    process.send_signal(signal.SIGINT)
    until((desk.folder / "tidying").exists)

    said = interrupted(process, signal.SIGINT)

    assert said.code == 130
    assert desk.left_running() == []


def test_the_threshold_of_a_grading_is_kept_and_asked_for_when_the_run_goes_on(
    desk: EvalDesk,
) -> None:
    desk.targets(one=HELLO)
    half = [{"type": "contains", "value": "hello"}, {"type": "contains", "value": "bye"}]
    run = ("run", desk.suite(["a"], assertions=half), "--out", desk.out)
    assert desk.go_ent(*run).code == 1

    graded = desk.go_ent("grade", desk.out, "--threshold", "0.5")

    assert graded.code == 0, graded.err
    assert read_manifest(desk.out).wanted.threshold == 0.5
    assert "--threshold 0.5 then, none now" in desk.go_ent(*run, "--resume").err
    assert desk.go_ent(*run, "--resume", "--threshold", "0.5").code == 0


def test_a_failure_tells_where_it_can_be_looked_at(desk: EvalDesk) -> None:
    desk.targets(one="echo mine > made.txt; echo bye > {OUTPUT_FILE}")
    case = {"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "hello"}]}
    suite = desk.write("s.eval.yaml", {"workspace": {}, "tests": [case]})
    assert desk.go_ent("run", suite, "--out", desk.out).code == 1

    said = desk.go_ent("grade", desk.out, "--out", desk.folder / "other")

    assert said.code == 1, said.err
    place = next(line for line in said.out.splitlines() if "workspace: " in line).split(": ")[1]
    home = Path(desk.env["HOME"])
    assert (home / place.removeprefix("~/") / "made.txt").read_text() == "mine\n"
    assert f"    {desk.out / 'a' / 'trace.json'}\n" in said.out


def test_a_locale_without_our_signs_gets_words(desk: EvalDesk) -> None:
    desk.targets(one="echo bye > {OUTPUT_FILE}", two=HELLO)
    desk.env["PYTHONIOENCODING"] = "ascii"
    options = ("--target", "one", "--target", "two", "--out", desk.out)

    said = desk.go_ent("run", desk.suite(["a"]), *options)

    assert "FAIL demo / a - one 0.00" in said.out and "FAIL failed: 1 of 2" in said.out
    assert " ok demo / a - two 1.00" in said.err
    assert "?" not in said.out + said.err
