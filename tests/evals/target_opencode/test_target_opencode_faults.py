"""What goes wrong: an attempt that is cut off, a server that dies, a program that is missing, ports in demand."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from eval_opencode import Evaluation, Heard, an_attempt, servers, spec

from goent.composition.eval_models import MARK_KEY
from goent.evals.eval_ports import TargetError
from goent.evals.targets.opencode_target import OpenCodeTarget
from goent.opencode.process_care import CarePolicy
from goent.proc import process_table
from goent.proc.process_table import send_signal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 (neither processes nor logs announce anything)
            await anyio.sleep(0.05)


@pytest.mark.spec("E09")
@pytest.mark.spec("E10")
async def test_eight_at_once_start_one_server_and_none_gets_in_anothers_way(
    shared: Evaluation, place: Path
) -> None:
    answers = list[str]()

    async def one(folder: Path) -> None:
        folder.mkdir()
        trace = await shared.attempt(folder, "work a little", permission_policy="once")
        answers.append(trace.answer)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, place / str(number))
    assert answers == ["All done."] * 8
    assert len(servers()) == 1
    for number in range(8):
        assert [path.name for path in (place / str(number)).iterdir()] == ["made.txt"]


@pytest.mark.spec("E10")
@pytest.mark.spec("E14")
async def test_servers_that_are_not_shared_have_ports_of_their_own_and_go_with_their_attempt(
    shared: Evaluation, place: Path
) -> None:
    before = servers()
    target = shared.target(shared_server=False)
    seen = list[int]()

    async def one(folder: Path) -> None:
        folder.mkdir()
        trace = await target.invoke(an_attempt(folder, "wait at the gate", limit=120), Heard())
        assert trace.answer == "I waited."

    async with anyio.create_task_group() as tasks:
        for name in ("a", "b"):
            tasks.start_soon(one, place / name)
        await shared.models.at_gate("door", 2, timeout=120)
        seen.extend(servers() - before)
        shared.models.open_gate("door")
    assert len(seen) == 2
    assert servers() == before


@pytest.mark.spec("E12")
@pytest.mark.spec("E14")
async def test_a_cancelled_attempt_leaves_nothing_running_and_what_there_was_is_kept(
    shared: Evaluation, cwd: Path
) -> None:
    heard = Heard()
    made = len(shared.models.calls)
    async with anyio.create_task_group() as tasks:
        target = shared.target()
        tasks.start_soon(target.invoke, an_attempt(cwd, "delegate waiting"), heard)
        await shared.models.called(made + 3, timeout=120)
        await heard.told("So far. ")
        tasks.cancel_scope.cancel()
    (task,) = heard.messages[0].tool_calls
    assert (heard.messages[1].content, heard.messages[1].parent) == ("So far. ", task.id)
    assert [call.tool for call in heard.messages[1].tool_calls] == ["glob"]
    assert heard.usage
    cut = shared.models.calls[made + 2]
    await shared.models.wait_for(lambda call: call.n == cut.n and call.disconnected)
    trace = await shared.attempt(cwd, "say hello")
    assert trace.answer == "Hello from glm-4."


@pytest.mark.spec("E12")
async def test_an_attempt_that_takes_too_long_is_ended_and_what_it_told_is_kept(
    shared: Evaluation, cwd: Path
) -> None:
    await shared.attempt(cwd, "say hello")  # the server is there, and knows the directory
    heard = Heard()
    made = len(shared.models.calls)
    with pytest.raises(TargetError, match="was not done after 10 s") as caught:
        await shared.target().invoke(an_attempt(cwd, "work and wait", limit=10), heard)
    assert (caught.value.kind, caught.value.retryable) == ("timeout", False)
    assert heard.messages[0].content == "So far. "
    assert [call.tool for call in heard.messages[0].tool_calls] == ["glob"]
    cut = shared.models.calls[made + 1]
    await shared.models.wait_for(lambda call: call.n == cut.n and call.disconnected)


@pytest.mark.spec("E09")
@pytest.mark.spec("E14")
async def test_a_server_that_dies_fails_its_attempt_and_the_next_has_another(
    shared: Evaluation, cwd: Path, place: Path
) -> None:
    await shared.attempt(cwd, "say hello")
    (first,) = servers()
    caught = list[TargetError]()
    heard = Heard()
    made = len(shared.models.calls)

    async def doomed() -> None:
        try:
            await shared.attempt(cwd, "work and wait", heard)
        except TargetError as error:
            caught.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(doomed)
        await shared.models.called(made + 2)
        await heard.told("So far. ")
        send_signal(first, signal.SIGKILL)
    (error,) = caught
    assert (error.kind, error.retryable) == ("worker_crashed", True)
    assert f"pid {first}" in str(error)
    other = place / "other"
    other.mkdir()
    trace = await shared.attempt(other, "say hello")
    assert trace.answer == "Hello from glm-4."
    (second,) = servers()
    assert second != first


@pytest.mark.spec("E09")
async def test_a_server_that_has_grown_serves_its_attempts_to_their_end_and_is_replaced(
    shared: Evaluation, cwd: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    before = servers()
    shared.servers.care = CarePolicy(interval=0.2)
    target = shared.target(env={"WHICH": "another server"})
    answers, worn = list[str](), set[int]()

    async def outstay() -> None:
        trace = await target.invoke(an_attempt(cwd, "outstay the server", limit=120), Heard())
        answers.append(trace.answer)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outstay)
            await shared.models.at_gate("worn", 1, timeout=120)
            worn.update(servers() - before)
            shared.servers.care = CarePolicy(interval=0.2, memory=1)
            await until(lambda: "takes no further work because of its" in caplog.text)
            shared.servers.care = CarePolicy()
            (place / "other").mkdir()
            other = await target.invoke(an_attempt(place / "other", "say hello"), Heard())
            answers.append(other.answer)
            assert worn < servers(), "an attempt is still under way there"
            shared.models.open_gate("worn")
    finally:
        shared.servers.care = CarePolicy()
    assert answers == ["Hello from glm-4.", "I did."]
    await until(lambda: not worn & servers())
    assert len(servers() - before) == 1


async def test_a_providers_refusal_is_the_attempts(shared: Evaluation, cwd: Path) -> None:
    with pytest.raises(TargetError, match="401") as caught:
        await shared.attempt(cwd, "answer 401")
    assert (caught.value.kind, caught.value.retryable) == ("auth_refused", False)
    with pytest.raises(TargetError, match="moonshot/nope") as caught:
        await shared.attempt(cwd, "say hello", model="moonshot/nope")
    assert caught.value.kind == "unknown_model"
    assert "profile" not in str(caught.value), "go-ent has that key"
    with pytest.raises(TargetError, match=r"no key for 'openai', .* set `profile: user`") as caught:
        await shared.attempt(cwd, "say hello", model="openai/gpt-5")
    assert (caught.value.kind, caught.value.retryable) == ("unknown_model", False)
    with pytest.raises(TargetError, match="blocked") as caught:
        await shared.attempt(cwd, "refuse")
    assert caught.value.kind == "refused"
    with pytest.raises(TargetError, match="Agent not found") as caught:
        await shared.attempt(cwd, "say hello", agent="nobody")


@pytest.mark.spec("E01")
async def test_what_cannot_be_had_says_what_to_do(shared: Evaluation, cwd: Path) -> None:
    (cwd / "away").symlink_to(shared.project)
    for settings, kind, words in (
        ({"executable": "/nowhere/opencode"}, "opencode_missing", "npm install -g opencode-ai"),
        ({"base_url": "http://127.0.0.1:9"}, "opencode_missing", "leave `base_url` out"),
        ({"model": "alone"}, "unknown_model", "'alone' is not `provider/model`"),
        ({"cwd": "sub"}, "no_directory", "'sub' is not a directory inside"),
        ({"cwd": "away"}, "no_directory", "'away' is not a directory inside"),
    ):
        target = OpenCodeTarget(spec(**settings), shared.servers)
        with pytest.raises(TargetError) as caught:
            await target.invoke(an_attempt(cwd, "say hello"), Heard())
        assert caught.value.kind == kind
        assert words in str(caught.value)


RUN = """
import anyio, json, os, sys
from pathlib import Path
from eval_opencode import Heard, an_attempt, spec
from goent.composition.eval_models import open_opencode
from goent.evals.targets.opencode_target import OpenCodeTarget

async def main():
    async with open_opencode(Path(sys.argv[1]), dict(os.environ)) as servers:
        target = OpenCodeTarget(spec(model="moonshot/glm-4"), servers)
        await target.invoke(an_attempt(Path(sys.argv[2]), "work and wait"), Heard())

anyio.run(main)
"""


@pytest.mark.spec("E14")
async def test_a_run_that_is_killed_leaves_no_server(shared: Evaluation, cwd: Path) -> None:
    made = len(shared.models.calls)
    here = Path(__file__).parent
    paths = os.pathsep.join((str(here), str(here.parents[1])))
    async with await anyio.open_process(
        [sys.executable, "-c", RUN, str(shared.project), str(cwd)],
        env={**shared.environ, "PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        stdout=None,
        stderr=None,
    ) as run:
        await shared.models.called(made + 2, timeout=120)
        owner = f"{MARK_KEY}.{run.pid}.{process_table.start_time(run.pid)}"
        (server,) = servers(owner)
        send_signal(run.pid, signal.SIGKILL)
        await until(lambda: not process_table.start_time(server))
