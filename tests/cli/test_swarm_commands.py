"""`go-ent swarm …`: what is asked of the daemon, what is printed, and how it ends."""

import io
import json
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from desk import Ended
from swarm_daemon import BEGUN, SWARM, SwarmDaemon, merged, result, status, task

from goent.cli.main import run_cli
from goent.domain.swarm_messages import LeftOver, SwarmLine, SwarmStatus, SwarmTask
from goent.domain.types import Failure

TASKS = "swarm: tidy-up\ntasks:\n- {id: api, prompt: x}\n- {id: docs, prompt: y, provider: kimi}\n"
RUNNING = status(task("api", "running"), task("docs", "pending"))
DONE = (task("api", "completed", evidence="verified"), task("docs", "completed"))
OVER = status(*DONE, state="completed")
BROKEN = Failure(kind="environment", message="no OpenCode")
LIMITED = Failure(kind="rate_limited", message="429")


@dataclass
class Terminal:
    """A command line in a project whose daemon is scripted."""

    daemon: SwarmDaemon
    capture: pytest.CaptureFixture[str]

    def go_ent(self, *arguments: str) -> Ended:
        code = run_cli(["swarm", *arguments])
        said = self.capture.readouterr()
        return Ended(code, said.out, said.err)


Open = Callable[..., AbstractContextManager[Terminal]]


@pytest.fixture
def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Open:
    project = tmp_path / "project"
    (project / ".goent").mkdir(parents=True)
    (project / "tasks.yaml").write_text(TASKS)
    monkeypatch.chdir(project)

    @contextmanager
    def open_(*statuses: SwarmStatus, **more: object) -> Generator[Terminal]:
        daemon = SwarmDaemon(*(statuses or (RUNNING, OVER)), result=result(*DONE))
        for name, value in more.items():
            setattr(daemon, name, value)
        with daemon.serving(project):
            yield Terminal(daemon, capsys)

    return open_


def line(swarm: str, name: str) -> SwarmLine:
    return SwarmLine(
        swarm_id=swarm,
        swarm=name,
        state="completed",
        done=1,
        total=1,
        cost_usd=0.1,
        started_at=BEGUN,
    )


def test_a_file_of_tasks_is_spawned_followed_and_summed_up(opened: Open):
    waiting = status(task("api", "completed", evidence="verified"), task("docs", "running"))
    with opened(RUNNING, RUNNING, waiting, OVER) as terminal:
        ended = terminal.go_ent("tasks.yaml")
        assert ended.code == 0
        assert ended.out.splitlines()[:6] == [
            f"{SWARM} tidy-up: 2 tasks",
            "● api running",
            "✓ api completed, verified: no edits",
            "● docs running",
            "~ docs completed: no edits",
            f"~ {SWARM} tidy-up completed",
        ]
        assert f"go-ent swarm merge {SWARM}" in ended.out
        asked = terminal.daemon.params("swarm_spawn")
        assert asked["swarm"] == "tidy-up"


def test_racers_are_told_apart(opened: Open):
    racers = [task("api", "running", provider=name, worker_id=f"w-{name}") for name in ("a", "b")]
    ended = task("api", "completed", evidence="verified", provider="b", worker_id="w-b")
    race = status(*racers)
    with opened(race, race, race, status(ended, state="completed")) as terminal:
        assert terminal.go_ent("tasks.yaml").out.splitlines()[1:4] == [
            "● api running on a",
            "● api running on b",
            "✓ api completed, verified on b: no edits",
        ]


def test_options_speak_louder_than_the_file_but_not_than_a_task(opened: Open):
    options = ("--concurrency", "3", "--budget-usd", "1.5", "--isolation", "copy")
    with opened() as terminal:
        ended = terminal.go_ent(*options, "--provider", "glm", "tasks.yaml")
        assert ended.code == 0, ended.err
        asked = terminal.daemon.params("swarm_spawn")
        assert (asked["concurrency"], asked["budget_usd"]) == (3, 1.5)
        assert asked["isolation"] == "copy"
        tasks = msgspec.convert(asked["tasks"], list[SwarmTask])
        assert [one.provider for one in tasks] == ["glm", "kimi"]


def test_json_is_all_that_is_printed(opened: Open):
    with opened(merged=merged("api", "docs")) as terminal:
        ended = terminal.go_ent("tasks.yaml", "--merge", "--json")
        assert ended.code == 0
        told = json.loads(ended.out)
        assert told["swarm_id"] == SWARM
        assert [one["evidence"] for one in told["tasks"]] == ["verified", None]
        assert told["merged"]["merged"] == ["api", "docs"]
        assert ended.err == ""


def test_the_tasks_may_come_from_stdin(opened: Open, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TASKS.encode())))
    with opened() as terminal:
        assert terminal.go_ent("-").code == 0
        assert terminal.daemon.count("swarm_spawn") == 1


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        (DONE, 0),
        ((DONE[0], task("docs", "completed", evidence="refuted")), 1),
        ((DONE[0], task("docs", "failed", failure=LIMITED)), 1),
        ((task("api", "failed", failure=BROKEN), task("docs", "blocked", failure=LIMITED)), 3),
        ((task("api", "failed", failure=BROKEN), task("docs", "failed", failure=LIMITED)), 1),
        ((DONE[0], task("docs", "cancelled")), 1),
    ],
)
def test_the_exit_code_tells_what_came_of_it(opened: Open, tasks: tuple[object, ...], code: int):
    with opened(result=result(*tasks)) as terminal:  # pyright: ignore[reportArgumentType] (they are tasks)
        assert terminal.go_ent("tasks.yaml").code == code


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (merged("api", "docs"), 0),
        (merged("api", "docs", evidence="verified"), 0),
        (merged("api", "docs", evidence="refuted"), 1),
        (merged("api", left=(LeftOver(task="docs", reason="conflicts"),)), 1),
    ],
)
def test_a_merge_must_be_whole_and_verified(opened: Open, outcome: object, code: int):
    with opened(merged=outcome) as terminal:
        assert terminal.go_ent("tasks.yaml", "--apply").code == code
        assert terminal.daemon.params("swarm_merge")["apply"] is True


def test_nothing_is_merged_unless_all_is_done(opened: Open):
    failed = result(DONE[0], task("docs", "failed", failure=LIMITED), state="failed")
    with opened(result=failed) as terminal:
        ended = terminal.go_ent("tasks.yaml", "--merge")
        assert ended.code == 1
        assert (
            f"nothing was merged, for not all is done; later: go-ent swarm merge {SWARM}"
            in ended.err
        )
        assert terminal.daemon.count("swarm_merge") == 0


def test_the_result_is_told_even_if_it_cannot_be_merged(opened: Open):
    with opened() as terminal:
        ended = terminal.go_ent("tasks.yaml", "--apply", "--json")
        assert ended.code == 2
        assert json.loads(ended.out)["merged"] is None
        assert "uncommitted changes" in ended.err


def test_detached_prints_the_id_alone(opened: Open):
    with opened() as terminal:
        assert terminal.go_ent("tasks.yaml", "--detach").out == f"{SWARM}\n"
        assert terminal.daemon.count("swarm_status") == 0
        told = terminal.go_ent("tasks.yaml", "-d", "--json").out
        assert json.loads(told)["swarm_id"] == SWARM
        refused = terminal.go_ent("tasks.yaml", "-d", "--merge")
        assert (refused.code, "leave out --detach" in refused.err) == (2, True)


def test_warnings_go_to_stderr(opened: Open):
    warned = status(task("api", "running"), warnings=("no git here: copies are made",))
    with opened(warned, OVER) as terminal:
        ended = terminal.go_ent("tasks.yaml", "--json")
        assert ended.err == "go-ent: no git here: copies are made\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("statsu", "x"), "No such command 'statsu'. Did you mean 'status'?"),
        (("nothing.yaml",), "cannot read 'nothing.yaml': No such file or directory"),
        ((".",), "'.' is a folder, not a regular file"),
        (("bad.yaml",), "bad.yaml:2: tasks[0].promt: unknown key; did you mean 'prompt'?"),
        (("latin.yaml",), "'latin.yaml' is not UTF-8 text (byte 7)"),
        (("tasks.yaml", "more"), "unexpected extra argument"),
        (("--concurrency", "0", "tasks.yaml"), "0 is not in the range"),
    ],
)
def test_a_mistake_is_told_before_anything_begins(
    opened: Open, arguments: tuple[str, ...], told: str
):
    Path("bad.yaml").write_text("tasks:\n- {id: a, promt: x}\n")
    Path("latin.yaml").write_bytes(b"swarm: \xe4")
    with opened() as terminal:
        ended = terminal.go_ent(*arguments)
        assert ended.code == 2
        assert told in ended.err
        assert ended.out == ""
        assert terminal.daemon.asked == []


def test_a_file_may_be_called_like_a_command(opened: Open):
    Path("status").write_text(TASKS)
    Path("statuses").write_text(TASKS)
    with opened() as terminal:
        assert terminal.go_ent("run", "status", "--detach").code == 0
        assert terminal.go_ent("statuses", "--detach").code == 0
        assert terminal.daemon.count("swarm_spawn") == 2


def test_a_swarm_is_found_by_what_one_remembers_of_it(opened: Open):
    swarms = (line("s-aaaaa", "tidy-up"), line("s-aabbb", "tidy-up"), line("s-ccccc", "docs"))
    with opened(OVER, swarms=swarms) as terminal:
        for asked, found in (
            ("last", "s-aaaaa"),
            ("s-aabbb", "s-aabbb"),
            ("s-c", "s-ccccc"),
            ("cc", "s-ccccc"),
            ("docs", "s-ccccc"),
            ("tidy-up", "s-aaaaa"),
            ("s-zzzzz", "s-zzzzz"),
        ):
            terminal.daemon.asked.clear()
            assert terminal.go_ent("status", asked).code == 0
            assert terminal.daemon.params("swarm_status")["swarm_id"] == found
        ended = terminal.go_ent("status", "aa")
        assert (ended.code, ended.err) == (
            2,
            "go-ent: 'aa' may be any of s-aaaaa, s-aabbb: write more of it\n",
        )


def test_the_last_of_no_swarms_is_none(opened: Open):
    with opened() as terminal:
        ended = terminal.go_ent("status", "last")
        assert (ended.code, "`go-ent swarm TASKS.yaml` makes one" in ended.err) == (2, True)


def test_a_status_says_how_to_answer(opened: Open):
    asking = status(task("api", "waiting", permission="q1"), state="waiting")
    with opened(asking) as terminal:
        assert "go-ent answer w-api y|a|n  api asks" in terminal.go_ent("status", SWARM).out


def test_where_nobody_sits_a_question_says_how_to_answer(opened: Open):
    asking = status(task("api", "waiting", permission="q1"), state="waiting")
    with opened(asking, asking, asking, OVER) as terminal:
        ended = terminal.go_ent("tasks.yaml", "--json")
        hint = "answer with: go-ent answer w-api q1 allow_once|reject"
        assert ended.err == f"go-ent: api (w-api) asks for bash: make test; {hint}\n"
        assert json.loads(ended.out)["swarm_id"] == SWARM


@pytest.mark.parametrize("command", ["status", "wait", "result", "cancel", "merge", "retry"])
def test_every_command_speaks_json(opened: Open, command: str):
    with opened(OVER, merged=merged("api", "docs")) as terminal:
        ended = terminal.go_ent(command, SWARM, "--json")
        assert ended.code == 0
        assert json.loads(ended.out)["swarm_id"] == SWARM
        assert ended.err == ""


def test_the_list_speaks_json_too(opened: Open):
    with opened(swarms=(line(SWARM, "x"),)) as terminal:
        told = json.loads(terminal.go_ent("list", "--json").out)
        assert [one["swarm_id"] for one in told["swarms"]] == [SWARM]


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (OVER, 0),
        (status(*DONE, state="failed"), 1),
        (status(task("api", "waiting"), state="waiting"), 1),
        (status(task("api", "completed", evidence="refuted"), state="completed"), 1),
    ],
)
def test_waiting_ends_with_the_swarm_or_a_question(opened: Open, now: SwarmStatus, code: int):
    with opened(RUNNING, RUNNING, now) as terminal:
        assert terminal.go_ent("wait", SWARM).code == code
        assert terminal.daemon.count("swarm_wait") == 3


def test_waiting_has_an_end(opened: Open):
    with opened(RUNNING) as terminal:
        ended = terminal.go_ent("wait", SWARM, "--timeout", "0")
        assert (ended.code, ended.err) == (1, "go-ent: not done after 0 s\n")


def test_a_retry_names_its_tasks_and_where_to(opened: Open):
    with opened() as terminal:
        assert terminal.go_ent("retry", SWARM, "api", "docs", "--elsewhere").code == 0
        asked = terminal.daemon.params("swarm_retry")
        assert (asked["tasks"], asked["elsewhere"]) == (["api", "docs"], True)


@pytest.mark.parametrize(
    ("options", "verify"),
    [((), None), (("--verify", "a", "--verify", "b"), ["a", "b"]), (("--no-verify",), [])],
)
def test_a_merge_has_its_own_checks_if_wished(
    opened: Open, options: tuple[str, ...], verify: list[str] | None
):
    with opened(merged=merged("api")) as terminal:
        assert terminal.go_ent("merge", SWARM, "--dry-run", *options).code == 0
        asked = terminal.daemon.params("swarm_merge")
        assert (asked["verify"], asked["dry_run"]) == (verify, True)


def test_cancelling_says_why(opened: Open):
    with opened() as terminal:
        ended = terminal.go_ent("cancel", SWARM, "--reason", "enough")
        assert ended.code == 0
        assert f"■ {SWARM} tidy-up cancelled" in ended.out
        assert terminal.daemon.params("swarm_cancel")["reason"] == "enough"
