"""The commands about workers, against a project whose workers are scripted."""

import io
import json

import pytest
from desk import OpenDesk

from goent.domain.errors import RateLimited
from goent.domain.events import Noticed, PlanUpdated, ToolCall, UsageReported
from goent.domain.types import Command, FileChange, PlanEntry, Prompt, Usage
from goent.testing.driver import Pause, ScriptedMove, question, say

USAGE = UsageReported(
    provider="glm", model="glm-4", usage=Usage(input=1000), cost_usd=None, source="gateway"
)


def busy_work(_: Prompt) -> list[ScriptedMove]:
    return [
        say("I begin.\n"),
        PlanUpdated(entries=(PlanEntry(text="write it", status="in_progress"),)),
        ToolCall(
            id="1",
            tool="write",
            status="completed",
            title="a.py",
            changes=(FileChange(path="a.py", added=3, removed=1),),
        ),
        ToolCall(
            id="2",
            tool="bash",
            status="completed",
            title="make",
            command=Command(command="make", exit=0),
        ),
        Noticed(text="the provider is slow"),
        USAGE,
        say("Done.", "m2"),
    ]


def test_run_tells_the_work_as_it_happens_and_what_came_of_it(open_desk: OpenDesk) -> None:
    with open_desk(busy_work) as desk:
        ended = desk.go_ent("run", "do it", "--verify", "true")
        assert ended.code == 0, ended.err
        lines = ended.out.splitlines()
        assert "on glm (the configured default; the task is " in lines[0]
        assert lines[1:7] == [
            "I begin.",
            "☰ 0/1 write it",
            "● write: a.py",
            "● bash: make",
            "! the provider is slow",
            "Done.",
        ]
        assert lines[7] == "✓ true"
        assert "  evidence  verified" in lines
        assert "  files     a.py  +3 -1" in lines
        assert "  commands  make  (exit 0)" in lines
        assert any("unknown price" in line for line in lines)
        assert "\x1b" not in ended.out
        worker = json.loads(desk.go_ent("ps", "--json").out)["workers"][0]
        assert not worker["open"]


def test_run_json_is_the_result_and_nothing_else(open_desk: OpenDesk) -> None:
    with open_desk(busy_work) as desk:
        ended = desk.go_ent("run", "do it", "--json")
        result = json.loads(ended.out)
        assert (ended.code, result["state"], result["evidence"]) == (0, "completed", "claimed")
        assert result["files"] == [{"path": "a.py", "added": 3, "removed": 1}]
        assert result["cost_usd"] is None


def test_a_claim_without_any_work_is_failed_work_that_says_why(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("Fixed.")]) as desk:
        ended = desk.go_ent("run", "Fix the crash in src/app.py")
    assert ended.code == 1
    assert "evidence  refuted" in ended.out
    assert "neither edited a file nor used a tool" in ended.out


def test_refuted_work_is_failed_work(open_desk: OpenDesk) -> None:
    with open_desk(busy_work) as desk:
        ended = desk.go_ent("run", "do it", "--verify", "echo broken; false")
        assert ended.code == 1
        assert "evidence  refuted" in ended.out
        assert "verify_failed" in ended.out


def test_a_failure_exits_1_and_says_what_may_help(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [RateLimited("glm says 429: too many")]) as desk:
        ended = desk.go_ent("run", "do it")
        assert ended.code == 1
        assert "rate_limited: glm says 429: too many; retry with deepseek" in ended.out


def test_a_workers_words_cannot_steer_the_terminal(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("a\x1b]0;title\x07b\x1b[2Jc\r\u202e\n")]) as desk:
        ended = desk.go_ent("run", "do it")
        assert "a]0;titleb[2Jc" in ended.out
        assert not set(ended.out) & {"\x1b", "\x07", "\r", "\u202e"}


@pytest.mark.spec("P21")
def test_a_detached_run_prints_the_id_at_once(open_desk: OpenDesk) -> None:
    pause = Pause()
    with open_desk(lambda _: [pause, say("done")]) as desk:
        worker = desk.detached()
        assert worker.startswith("w-")
        told = json.loads(desk.go_ent("run", "do it", "-d", "--json").out)
        assert (told["provider"], told["result"]) == ("glm", None)
        desk.portal.call(pause.go_on.set)
        desk.until(worker, "completed")


def test_the_task_may_come_from_stdin(open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_desk(lambda prompt: [say(f"you said {prompt.text}")]) as desk:
        monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
        assert "you said from a pipe" in desk.go_ent("run", "-").out


def test_a_kept_worker_takes_a_further_prompt(open_desk: OpenDesk) -> None:
    with open_desk(lambda prompt: [say(f"heard {prompt.text}")]) as desk:
        desk.go_ent("run", "first", "--keep")
        ended = desk.go_ent("prompt", "last", "second")
        assert ended.code == 0
        assert "heard second" in ended.out
        assert "heard first" not in ended.out
        told = json.loads(desk.go_ent("prompt", "last", "third", "--json").out)
        assert (told["state"], told["text"]) == ("completed", "heard third")


@pytest.mark.spec("P26")
def test_ps_lists_the_workers_newest_first(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        assert "no workers" in desk.go_ent("ps").out
        first, second = desk.detached("one"), desk.detached("two")
        desk.until(second, "completed")
        listed = json.loads(desk.go_ent("ps", "--json").out)
        assert [w["worker_id"] for w in listed["workers"]] == [second, first]
        assert listed["total"] == 2
        desk.until(first, "completed")
        rows = desk.go_ent("ps", "--state", "completed").out.splitlines()
        assert rows[0].split() == [
            "WORKER",
            "STATE",
            "MODEL",
            "STEP",
            "TOKENS",
            "COST",
            "AGE",
            "TASK",
        ]
        assert [row.split()[0] for row in rows[1:]] == [second, first]
        assert json.loads(desk.go_ent("ps", "--state", "failed", "--json").out)["total"] == 0


def test_an_id_may_be_shortened_but_not_guessed(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        worker = desk.detached()
        for part in (worker[:6], worker[2:]):
            told = json.loads(desk.go_ent("status", part, "--json").out)
            assert told["worker_id"] == worker
        desk.detached()
        ended = desk.go_ent("status", "w-")
        assert ended.code == 2
        assert "may be any of" in ended.err


@pytest.mark.parametrize("command", ["status", "result", "output", "cancel", "wait"])
def test_an_unknown_worker_is_named(open_desk: OpenDesk, command: str) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        ended = desk.go_ent(command, "w-zzzzz")
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("go-ent: no worker 'w-zzzzz'")


def test_there_is_no_last_worker_in_an_empty_project(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        ended = desk.go_ent("status", "last")
        assert (ended.code, ended.err.count("\n")) == (2, 1)


@pytest.mark.spec("P23")
def test_status_tells_progress_and_who_says_so(open_desk: OpenDesk) -> None:
    pause = Pause()
    plan = PlanUpdated(
        entries=(
            PlanEntry(text="one", status="completed"),
            PlanEntry(text="two", status="in_progress"),
        )
    )
    with open_desk(lambda _: [plan, question("q1"), pause, say("done")]) as desk:
        worker = desk.detached()
        desk.until(worker, "waiting")
        told = json.loads(desk.go_ent("status", worker, "--json").out)
        assert told["progress"] == {"percent": 50, "source": "todos"}
        shown = desk.go_ent("status", worker).out
        assert "█████░░░░░ 50%" in shown
        assert f"go-ent answer {worker} q1 allow_once|allow_always|reject" in shown


def test_an_answer_needs_no_question_id_while_one_is_open(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), question("q2"), say("done")]) as desk:
        worker = desk.detached()
        desk.until(worker, "waiting")
        assert desk.go_ent("answer", worker, "allow_once").code == 0
        assert desk.go_ent("wait", worker).code == 1
        assert json.loads(desk.go_ent("answer", worker, "q2", "y", "--json").out)["state"]
        assert desk.go_ent("wait", worker).code == 0
        late = desk.go_ent("answer", worker, "allow_once")
        assert (late.code, "asks nothing" in late.err) == (2, True)


def test_an_answer_that_is_none_is_refused(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1")]) as desk:
        ended = desk.go_ent("answer", desk.detached(), "maybe")
        assert ended.code == 2
        assert "'maybe' is no answer" in ended.err


@pytest.mark.spec("P24")
def test_output_can_be_continued_from_a_cursor(open_desk: OpenDesk) -> None:
    with open_desk(busy_work) as desk:
        worker = desk.detached()
        desk.until(worker, "completed")
        page = json.loads(desk.go_ent("output", worker, "--json").out)
        assert page["text"].startswith("── turn 1\nI begin.")
        rest = desk.go_ent("output", worker, "--since", str(page["cursor"]))
        assert (rest.code, rest.out) == (0, "")
        only = desk.go_ent("output", worker, "--filter", "tools").out
        assert only.splitlines() == ["● write: a.py", "● bash: make"]


def test_output_follows_until_the_turn_ends(open_desk: OpenDesk) -> None:
    pause = Pause()
    with open_desk(lambda _: [say("first "), pause, say("second"), say("third", "m2")]) as desk:
        worker = desk.detached()
        desk.until(worker, "running")
        desk.portal.call(pause.reached.wait)
        desk.portal.start_task_soon(pause.go_on.set)
        ended = desk.go_ent("output", worker, "-f")
        assert ended.out.splitlines() == [
            "── turn 1",
            "first second",
            "third",
            "── ~ completed, claimed",
        ]


def test_wait_gives_up_in_time_and_says_so(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [Pause()]) as desk:
        worker = desk.detached()
        ended = desk.go_ent("wait", worker, "--timeout", "0.2", "--json")
        assert (ended.code, json.loads(ended.out)["timed_out"]) == (1, True)
        assert "not done after 0.2 s" in ended.err


def test_wait_any_needs_only_one(open_desk: OpenDesk) -> None:
    def turns(prompt: Prompt) -> list[ScriptedMove]:
        return [Pause()] if prompt.text == "slow" else [say("done")]

    with open_desk(turns) as desk:
        slow, quick = desk.detached("slow"), desk.detached("quick")
        assert desk.go_ent("wait", slow, quick, "--any").code == 0


@pytest.mark.spec("P25")
def test_cancel_keeps_what_was_done(open_desk: OpenDesk) -> None:
    pause = Pause()
    with open_desk(lambda _: [say("half a thought"), pause]) as desk:
        worker = desk.detached()
        desk.portal.call(pause.reached.wait)
        ended = desk.go_ent("cancel", worker, "--close", "--reason", "enough", "--json")
        told = json.loads(ended.out)
        assert (ended.code, told["state"]) == (0, "cancelled")
        assert told["result"]["text"] == "half a thought"
        assert "half a thought" in desk.go_ent("result", worker).out
        closed = desk.go_ent("prompt", worker, "more")
        assert (closed.code, "is closed" in closed.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "  "), "the task is empty"),
        (("run", "x", "--cwd", "nowhere"), "does not exist"),
        (("run", "x", "--cwd", "file"), "is not a directory"),
        (("run", "x", "--file", "nothing.py"), "files that do not exist"),
        (("run", "x", "--provider", "nobody"), "unknown provider 'nobody'"),
        (("run", "x", "--model", "nothing"), "no provider offers model 'nothing'"),
        (("run", "x", "--isolation", "worktree"), "is in no git repository"),
        (("run", "x", "--timeout", "0"), "--timeout: must be more than 0, not 0"),
        (("run", "x", "--budget-usd", "-1"), "--budget-usd: must be more than 0, not -1"),
        (("run", "x", "--method", "magic"), "'magic' is not one of"),
        (("run",), "Missing argument 'TASK'"),
        (("runn",), "Did you mean 'run'?"),
        (("ps", "--nonsense"), "No such option"),
    ],
)
def test_what_cannot_be_done_as_asked_is_said_in_one_line(
    open_desk: OpenDesk, arguments: tuple[str, ...], words: str
) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        (desk.project.folder / "file").touch()
        ended = desk.go_ent(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("go-ent: ")
        assert words in ended.err
        assert "Traceback" not in ended.err


def test_providers_and_costs_are_shown(open_desk: OpenDesk) -> None:
    with open_desk(busy_work) as desk:
        shown = desk.go_ent("providers").out
        assert "glm (default)" in shown
        assert "deepseek/deepseek-coder" in shown
        names = [p["name"] for p in json.loads(desk.go_ent("providers", "--json").out)["providers"]]
        assert names == ["glm", "deepseek/deepseek-coder"]
        assert desk.go_ent("costs").out == "nothing was spent yet\n"
        assert json.loads(desk.go_ent("costs", "--by", "day", "--json").out)["by"] == "day"


def test_the_daemon_says_who_it_is(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        info = json.loads(desk.go_ent("daemon", "status", "--json").out)
        assert set(info) == {"pid", "version", "socket", "project", "workers", "http"}
        busy = desk.go_ent("daemon", "stop")
        assert (busy.code, "--force" in busy.err) == (1, True)
