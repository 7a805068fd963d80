"""What a worker starts gives go-ent no orders: it answers no question, spawns, prompts, cancels and
verifies nothing, brings no key and stops no daemon. With its worker's pass it may look at that worker.
"""

import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from confined import USER_NAMESPACE, call, confined_go_ent, raw_conversation
from held_lock import held_as_daemon
from world import COLD, GO_ENT, World, a_cold_world, a_world

from goent.composition.app import App, open_app
from goent.daemon.daemon_server import DaemonServer
from goent.proc import process_table
from goent.rpc.byte_streams import LocalListener
from goent.system.project_lock import lock_holder
from goent.testing.script import Script, case, openai, say
from goent.testing.script import call as tool

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(110), pytest.mark.ordinary_user]

REFUSED = "counts as started by a worker: it has NoNewPrivs"
CONTROL = {"kind": "control", "cwd": "/"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_cold_world(tmp_path) as world:
        yield world


async def a_worker(world: World) -> str:
    ended = await world.go_ent("run", "--detach", "--json", "hold")
    assert ended.exit == 0, ended.err
    return json.loads(ended.out)["worker_id"]


@pytest.mark.parametrize(
    "command",
    [
        ("answer", "last", "allow_always"),
        ("run", "--detach", "--verify", "touch owned", "do it"),
        ("run", "--detach", "--permissions", "auto", "--budget-usd", "100", "do it"),
        ("prompt", "WORKER", "more"),
        ("cancel", "WORKER"),
        ("status", "WORKER"),
        ("result", "WORKER"),
        ("ps",),
        ("costs",),
        ("swarm", "list"),
        ("providers", "reset", "moonshot"),
        ("gc",),
        ("daemon", "stop"),
        ("mcp", "--http"),
    ],
    ids=" ".join,
)
async def test_no_command_of_a_worker_is_followed(world: World, command: tuple[str, ...]) -> None:
    worker = await a_worker(world)
    ended = await confined_go_ent(
        world, *(worker if word == "WORKER" else word for word in command)
    )
    assert ended.exit == 2 and REFUSED in ended.err, ended
    status = json.loads((await world.go_ent("status", "--json", worker)).out)
    assert status["state"] in ("starting", "running")
    assert len(json.loads((await world.go_ent("ps", "--json")).out)["workers"]) == 1
    assert not (world.project / "owned").exists()


async def test_every_method_of_the_socket_is_refused(world: World) -> None:
    async with serving(world) as app:
        worker = await a_worker(world)
        operations = app.operations
        methods = [
            *operations.table,
            *operations.cli_table,
            "daemon_status",
            "daemon_stop",
            "watch",
        ]
        forged = [f"{worker}.{'0' * 64}", worker, f"{worker}.", ".", "\0.é", f".{worker}"]
        for worker_pass in ["", *forged]:
            hello = {**CONTROL, "worker_pass": worker_pass}
            asked = [call(method, worker_id=worker, worker_ids=[worker]) for method in methods]
            greeting, *answers = await raw_conversation(world, hello, *asked)
            assert (greeting["keys"], greeting["fingerprints"]) == ("", {})
            assert {a["error"]["data"]["kind"] for a in answers} == {"StartedByWorker"}, answers


async def test_an_mcp_session_of_a_worker_is_refused_each_request(world: World) -> None:
    await a_worker(world)
    asked = (call("initialize"), call("tools/call", name="worker_list", arguments={}))
    _, *answers = await raw_conversation(world, {"kind": "mcp", "cwd": "/"}, *asked)
    assert all(REFUSED in answer["error"]["message"] for answer in answers)


async def test_a_worker_brings_no_keys(world: World) -> None:
    del world.env["MOONSHOT_API_KEY"]
    assert (await world.go_ent("ps")).exit == 0
    await raw_conversation(world, {**CONTROL, "env": {"MOONSHOT_API_KEY": "sk-mine"}}, call("ps"))
    async with await anyio.connect_unix(world.socket) as stream:
        assert json.loads(await stream.receive())["fingerprints"] == {}


async def test_another_user_namespace_counts_as_a_worker(world: World) -> None:
    """Where the system lets nobody make one, the process simply stays a user's."""
    await a_worker(world)
    entered = world.home / "entered"
    enter = f"print({USER_NAMESPACE}, file=open({str(entered)!r}, 'w'))"
    _, answer = await raw_conversation(world, CONTROL, call("worker_list"), enter=enter)
    assert ("error" in answer) == (entered.read_text() == "0\n"), answer


async def test_who_has_ended_when_the_daemon_looks_counts_as_a_worker(world: World) -> None:
    """Its number may be another process's by then: a connection outlives who made it."""
    await a_worker(world)
    held = lock_holder(world.socket.parent)
    assert held
    orphan = world.home / "orphan"
    answers: list[object] = []

    async def attack() -> None:
        asked = call("worker_list")
        answers.extend(await raw_conversation(world, CONTROL, asked, enter="pass", orphan=orphan))

    os.kill(held.pid, signal.SIGSTOP)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(attack)
            with anyio.fail_after(20):
                while not orphan.exists():  # noqa: ASYNC110 (a file announces nothing)
                    await anyio.sleep(0.02)
            os.kill(held.pid, signal.SIGCONT)
    finally:
        os.kill(held.pid, signal.SIGCONT)
    assert "it has already ended" in str(answers[1])


async def test_with_its_pass_a_worker_is_looked_at_and_nothing_else(world: World) -> None:
    async with serving(world) as app:
        own, other = await a_worker(world), await a_worker(world)
        given = app.project.passes.environment(own)
        for look in (("status", own), ("output", own), ("wait", "--timeout", "0", own)):
            ended = await confined_go_ent(world, *look, **given)
            assert own in ended.out + ended.err or look[0] == "output", ended
            assert "started by" not in ended.err, ended
        refused = f"this process was started by worker {own}, so it may only read that worker"
        for order in (
            ("status", other),
            ("wait", own, other),
            ("cancel", own),
            ("prompt", own, "more"),
            ("ps",),
        ):
            ended = await confined_go_ent(world, *order, **given)
            assert ended.exit == 2 and refused in ended.err, ended
        hello = {**CONTROL, "worker_pass": given["GOENT_WORKER_PASS"]}
        answer = call("worker_answer", worker_id=own, permission_id="p1", option="allow_always")
        _, refusal = await raw_conversation(world, hello, answer)
        assert refused in refusal["error"]["message"]
        odd: tuple[dict[str, object], ...] = (
            {"worker_ids": []},
            {"worker_ids": [own, other]},
            {"worker_ids": [own], "worker_id": other},
            {"worker_ids": [other], "worker_id": own},
            {"worker_id": [own]},
            {},
        )
        for params in odd:
            for method in ("worker_wait", "worker_status", "watch"):
                _, answer = await raw_conversation(world, hello, call(method, **params))
                assert answer["error"]["data"]["kind"] == "StartedByWorker", (method, params)


async def test_a_pass_in_the_environment_starts_no_daemon(world: World) -> None:
    world.env["GOENT_WORKER_PASS"] = "w-1.00"
    ended = await world.go_ent("ps")
    assert ended.exit == 1 and "started by worker w-1, which may not start one" in ended.err
    assert lock_holder(world.socket.parent) is None


async def test_a_daemon_that_a_worker_starts_is_confined_as_it_is(world: World) -> None:
    elsewhere = world.home / "elsewhere"
    elsewhere.mkdir(0o700)
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        before = world.env[name]
        world.env[name] = str(elsewhere)
        try:
            assert (await confined_go_ent(world, "ps")).exit == 0
            held = lock_holder(world.socket.parent)
            assert held
            status = Path(f"/proc/{held.pid}/status").read_text()
            assert "NoNewPrivs:\t1" in status
            user = await world.go_ent("ps")
            assert user.exit == 3 and "is not your daemon: it has NoNewPrivs" in user.err
            assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
            assert process_table.start_time(held.pid) is None
        finally:
            world.env[name] = before


LOOP = """\
env -i {env} setsid sh -c 'for i in 1 2 3 4 5 6 7 8; do
 {go_ent} answer last allow_always; {go_ent} run --detach --verify "touch {out}/verified" x; sleep 0.2
done >answers 2>&1; echo over >>answers' >/dev/null 2>&1 &
until test -e answers; do sleep 0.1; done
"""  # until then it still has its mark, and would be ended with the call


async def test_a_background_process_of_a_worker_answers_no_question(tmp_path: Path) -> None:
    """go-ent's own agent: its commands have NoNewPrivs."""
    outside = tmp_path / "outside"
    outside.mkdir(0o700)
    env = " ".join(
        f"{name}={value}"
        for name, value in {
            "HOME": tmp_path / "home",
            "PATH": os.environ["PATH"],
            "TMPDIR": tmp_path / "home" / "tmp",
            "XDG_RUNTIME_DIR": tmp_path / "home" / "run",
            "GOENT_WORKER_PASS": "w1.forged",  # without one, it does not find the daemon
        }.items()
    )
    loop = LOOP.format(env=env, go_ent=" ".join(GO_ENT), out=outside)
    target = str(outside / "written")
    look = f'{" ".join(GO_ENT)} status --json "${{GOENT_WORKER_PASS%.*}}" >own.json'
    script = Script(
        providers={
            "moonshot": openai(
                case(
                    "attack",
                    tool("Bash", command=look),
                    tool("Bash", command=loop),
                    tool("Write", file_path=target, content="owned\n"),
                    say("Done."),
                ),
                models=("glm-4",),
                key="sk-moonshot-real-key",
            )
        }
    )
    async with a_world(tmp_path, script, config=COLD) as world:
        rules = "permissions: {rules: [{tool: bash, pattern: '*', action: allow}]}\n"
        (world.project / ".goent" / "config.yaml").write_text(COLD + rules)
        world.trust()
        how = ("--method", "agent", "--model", "moonshot/glm-4", "--permissions", "edit")
        started = await world.go_ent("run", "--detach", "--json", *how, "attack")
        worker = json.loads(started.out)["worker_id"]
        answers = world.project / "answers"
        with anyio.fail_after(80):
            while not (answers.exists() and "over" in answers.read_text()):  # noqa: ASYNC110 (a file)
                await anyio.sleep(0.1)
        status = json.loads((await world.go_ent("status", "--json", worker)).out)
        assert status["state"] == "waiting", (status, answers.read_text())
        # By the daemon, or before it is asked: from inside a sandbox it is nobody's own.
        said = answers.read_text()
        assert said.count(REFUSED) + said.count("is not your daemon: ") == 16, said
        own = json.loads((world.project / "own.json").read_text())
        assert own["worker_id"] == worker, "with its pass, it finds the daemon to look at itself"
        assert not (outside / "written").exists() and not (outside / "verified").exists()


@asynccontextmanager
async def serving(world: World) -> AsyncGenerator[App]:
    """A daemon in this process, so that its passes can be had."""
    with held_as_daemon(world.socket.parent):
        async with open_app(world.project, dict(world.env)) as app:
            daemon = DaemonServer(app, world.socket)
            with LocalListener(world.socket) as listener:
                async with anyio.create_task_group() as group:
                    group.start_soon(daemon.serve, listener, _no_signals())
                    yield app
                    daemon.stopping.set()


async def _no_signals() -> AsyncIterator[signal.Signals]:
    await anyio.sleep_forever()
    yield signal.SIGTERM
