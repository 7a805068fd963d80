"""Bash: what a command said, how it ended, and nothing left running."""

import os
import tracemalloc
from pathlib import Path

import anyio
import pytest
from tool_bench import a_bench, until

from goent.agent.agent_events import TextPart
from goent.agent.agent_ports import ToolMistake, ToolProgress
from goent.agent.tools import bash_tool
from goent.proc.process_table import marked_processes, start_time

pytestmark = pytest.mark.anyio

PATIENCE = 60


class ClientGone(Exception):
    pass


async def bash(cwd: Path, command: str, **arguments: object) -> str:
    async with a_bench(cwd) as bench:
        return await bench.said("Bash", command=command, **arguments)


async def file_with(path: Path, *, lines: int = 1) -> list[str]:
    """Wait until somebody has written it."""
    await until(lambda: path.exists() and len(path.read_text().split()) >= lines)
    return path.read_text().split()


async def test_output_and_errors_come_together_in_order(tmp_path: Path):
    command = "echo one; echo two >&2; echo three; pwd"
    assert await bash(tmp_path, command) == f"one\ntwo\nthree\n{tmp_path}"


async def test_it_is_bash_where_there_is_one(tmp_path: Path):
    assert await bash(tmp_path, "a=(1 2); echo ${a[1]} $BASH_VERSION") != "2"


async def test_a_command_is_asked_for_and_described(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare("Bash", command="make test", description="Run the tests")
        assert call.intent.kind == "execute"
        assert call.intent.title == "make test"
        assert call.intent.runs_alone
        assert call.intent.shown == (TextPart(text="Run the tests"),)
        assert call.intent.need
        assert call.intent.need.permission == "bash"
        hidden = f"echo {'x' * 500}; rm -rf ."
        for long in (hidden, "echo\nrm -rf ."):
            (shown,) = (await bench.prepare("Bash", command=long)).intent.shown
            assert shown == TextPart(text=f"```sh\n{long}\n```")
        free = await bench.prepare("Bash", command="make test", unconfined=True)
        assert free.intent.title == "(unconfined) make test"
        assert free.intent.need != call.intent.need


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("exit 3", 3, "(exit code 3)"),
        ("true", 0, "(no output)"),
        ("kill -9 $$", 137, "SIGKILL"),
        ("sh -c 'kill -15 $$'", 143, "SIGTERM"),
        ("no-such-program", 127, "not found"),
        ("echo 'unclosed", 2, "unexpected EOF"),
    ],
)
async def test_how_it_ended_is_told(tmp_path: Path, command: str, code: int, words: str):
    async with a_bench(tmp_path) as bench:
        done = await bench.call("Bash", command=command)
    assert done.exit == code
    assert done.failed == (code != 0)
    assert words in done.text


async def test_there_is_no_input_and_nobody_to_ask(tmp_path: Path):
    with anyio.fail_after(PATIENCE):
        assert await bash(tmp_path, "cat; read line || echo none") == "none"
        assert await bash(tmp_path, "test -t 0 || test -t 1 || echo no terminal") == "no terminal"


async def test_the_environment_is_the_desks_and_quiet(tmp_path: Path):
    async with a_bench(tmp_path, environ={"FORCE_COLOR": "1", "MINE": "yes"}) as bench:
        told = await bench.said("Bash", command="env")
    for line in ("GIT_TERMINAL_PROMPT=0", "PAGER=cat", "GIT_PAGER=cat", "NO_COLOR=1", "MINE=yes"):
        assert f"{line}\n" in f"{told}\n"
    assert f"PWD={tmp_path}" in told
    assert "FORCE_COLOR" not in told
    assert "GOENT_WRITE" not in told


async def test_output_is_told_while_it_comes(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    async with a_bench(tmp_path) as bench, anyio.create_task_group() as tasks:
        call = await bench.prepare("Bash", command="echo one; cat go; echo three; sleep 300")
        tasks.start_soon(bench.run, call)
        await until(lambda: [progress.output for progress in bench.told] == ["one\n"])
        await anyio.to_thread.run_sync((tmp_path / "go").write_text, "two\n")
        await until(lambda: bench.told[-1].output == "one\ntwo\nthree\n")
        assert len(bench.told) <= 4
        tasks.cancel_scope.cancel()


async def test_a_listener_that_fails_is_heard_and_nothing_is_left(tmp_path: Path):
    async def report(_: ToolProgress) -> None:
        raise ClientGone("nobody listens")

    async with a_bench(tmp_path) as bench:
        call = await bench.prepare("Bash", command="echo one; sleep 300")
        with pytest.raises(ClientGone, match="nobody listens"):
            await call.run(report)
        assert list(marked_processes(bench.desk.owner)) == []


async def test_a_flood_is_cut_in_the_middle_and_takes_no_memory(tmp_path: Path):
    tracemalloc.start()
    told = await bash(tmp_path, "echo begin; yes 0123456789 | head -c 300000000; echo; echo end")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert told.startswith("begin\n0123")
    assert told.endswith("\nend")
    assert "299,970,0" in told
    assert len(told) < 31_000


async def test_binary_output_and_colours_do_no_harm(tmp_path: Path):
    told = await bash(tmp_path, r"printf '\033[31mred\033[0m \377\n10%%\r99%%\rdone\r\n'")
    assert told == "red \N{REPLACEMENT CHARACTER}\ndone"


async def test_a_command_that_takes_too_long_is_ended_with_what_it_said(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        with anyio.fail_after(PATIENCE):
            done = await bench.call("Bash", command="echo begun; sleep 300", timeout_s=3)
        assert done.exit is None
        assert done.failed
        assert done.text.startswith("begun\n(not done after 3 s: ended")


async def test_cancelling_ends_also_children_that_hear_nothing(tmp_path: Path):
    command = (
        "trap '' TERM INT HUP; (trap '' TERM; echo $BASHPID >> pids; sleep 300) &"
        " setsid sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 300' & echo $$ >> pids; sleep 300"
    )
    pids: list[str] = []
    async with a_bench(tmp_path) as bench, anyio.create_task_group() as tasks:
        call = await bench.prepare("Bash", command=command, timeout_s=500)
        tasks.start_soon(bench.run, call)
        pids += await file_with(tmp_path / "pids", lines=3)
        tasks.cancel_scope.cancel()
    assert [start_time(int(pid)) for pid in pids] == [None, None, None]


async def test_what_a_command_leaves_running_is_ended_and_said(tmp_path: Path):
    with anyio.fail_after(PATIENCE):
        told = await bash(tmp_path, "sleep 300 & echo $!")
    pid, notice = told.split("\n")
    assert "use background" in notice
    assert start_time(int(pid)) is None


@pytest.mark.parametrize("command", ["", "  ", "\n", "a\0b"])
async def test_what_is_no_command_is_a_mistake(tmp_path: Path, command: str):
    with pytest.raises(ToolMistake):
        await bash(tmp_path, command)


@pytest.mark.parametrize("limit", [0, -1, 601, "soon"])
async def test_a_limit_that_is_none_is_a_mistake(tmp_path: Path, limit: object):
    with pytest.raises(ToolMistake, match="timeout_s"):
        await bash(tmp_path, "true", timeout_s=limit)


async def test_a_command_that_is_too_long_for_the_system_is_a_mistake(tmp_path: Path):
    with pytest.raises(ToolMistake, match="into a file"):
        await bash(tmp_path, "true " + "x" * 200_000)


async def test_a_folder_that_is_gone_is_a_mistake(tmp_path: Path):
    (tmp_path / "gone").mkdir()
    async with a_bench(tmp_path / "gone") as bench:
        (tmp_path / "gone").rmdir()
        with pytest.raises(ToolMistake, match="gone"):
            await bench.said("Bash", command="true")


# In the background


async def test_a_server_runs_on_and_is_gone_at_the_end(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        told = await bench.said(
            "Bash",
            command="echo $$ > pid; trap '' TERM; while :; do sleep 1; done",
            background=True,
        )
        assert told == "(bg_1 is running)"
        (pid,) = await file_with(tmp_path / "pid")
        assert await bench.said("Bash", command="echo beside") == "beside"
        assert start_time(int(pid))
    assert start_time(int(pid)) is None


async def test_of_a_background_command_only_the_new_output_is_told(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    async with a_bench(tmp_path) as bench:
        command = "echo first; cat go; echo second; exit 4"
        first = await bench.said("Bash", command=command, background=True)
        while "first" not in first:
            first = await bench.said("Bash", output_of="bg_1")
        assert first == "first\n(bg_1 is running)"
        watch = await bench.prepare("Bash", output_of="bg_1")
        assert watch.intent.need is None
        assert not watch.intent.runs_alone
        await bench.said("Bash", command="echo go > go")
        done = await bench.over("bg_1")
    assert "first" not in done.text
    assert "second" in done.text
    assert done.text.endswith("(bg_1 has ended; exit code 4)")
    assert done.exit == 4


async def test_looking_at_a_background_command_waits_for_news(tmp_path: Path):
    os.mkfifo(tmp_path / "go")
    async with a_bench(tmp_path) as bench, anyio.create_task_group() as tasks:
        await bench.said("Bash", command="cat go; sleep 300", background=True)
        assert await bench.said("Bash", output_of="bg_1", timeout_s=0.1) == "(bg_1 is running)"
        tasks.start_soon(bench.run, await bench.prepare("Bash", command="echo news > go"))
        with anyio.fail_after(PATIENCE):
            said = await bench.said("Bash", output_of="bg_1", timeout_s=500)
        assert said == "news\n(bg_1 is running)"


async def test_a_background_command_can_be_stopped(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        await bench.said("Bash", command="exec sleep 300", background=True)
        stop = await bench.prepare("Bash", stop="bg_1")
        assert stop.intent.need is None
        assert (await bench.run(stop)).text == "(bg_1 is stopped)"
        assert list(marked_processes(bench.desk.owner)) == []
        assert await bench.said("Bash", output_of="bg_1") == "(bg_1 was stopped)"
        assert await bench.said("Bash", stop="bg_1") == "(bg_1 is stopped)"


async def test_a_background_command_that_fails_at_once_says_so(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        done = await bench.call("Bash", command="echo oops >&2; exit 5", background=True)
        if done.text.endswith("running)"):  # on a slow machine
            done = await bench.over("bg_1")
    assert done.exit == 5
    assert done.text.endswith("(bg_1 has ended; exit code 5)")


async def test_unknown_background_commands_are_mistakes(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake, match="none was started"):
            await bench.prepare("Bash", output_of="bg_9")
        with pytest.raises(ToolMistake, match="one of command"):
            await bench.prepare("Bash", command="true", stop="bg_9")


async def test_there_is_an_end_to_background_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bash_tool, "MAX_BACKGROUND", 1)
    async with a_bench(tmp_path) as bench:
        await bench.said("Bash", command="exec sleep 300", background=True)
        with pytest.raises(ToolMistake, match="stop one of"):
            await bench.prepare("Bash", command="exec sleep 300", background=True)
        await bench.said("Bash", stop="bg_1")
        await bench.said("Bash", command="exec sleep 300", background=True)
