"""`go-ent acp` as an editor starts it: a real process, a real repository, a real task."""

import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import AllowedOutcome, FileEditToolCallContent, RequestPermissionResponse
from real_git import Repository
from world import World, a_world, kill

from goent.proc import process_table
from goent.testing.script import Script, anthropic, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

BROKEN = "def add(a, b):\n    return a - b\n"
MENDED = "def add(a, b):\n    return a + b\n"
CHECK = "from sums import add\n\nassert add(2, 3) == 5\nprint('all well')\n"
CASES = (
    case(
        "Mend add",
        call("TodoWrite", todos=[{"content": "mend add", "status": "in_progress"}]),
        call("Grep", pattern="def add"),
        call("Read", file_path="sums.py"),
        call("Edit", file_path="sums.py", old_string="a - b", new_string="a + b"),
        call("Bash", command=f"{sys.executable} check.py"),
        call("TodoWrite", todos=[{"content": "mend add", "status": "completed"}]),
        say("add subtracted; it adds now, and check.py passes."),
    ),
    case("Serve for ever", call("Bash", command="echo $$ > pid; exec sleep 600"), say("never")),
    case(
        "Serve behind",
        call("Bash", command="echo $$ > pid; exec sleep 600", background=True),
        say("It serves."),
    ),
)
SCRIPT = Script(
    providers={
        "claude": anthropic(*CASES, models=("claude-haiku",), key="sk-ant-real-key"),
        "moonshot": openai(*CASES, models=("glm-4",), key="sk-moonshot-real-key"),
    }
)


class SdkEditor:
    """An editor on the official SDK, which allows everything."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, options: Any, session_id: str, tool_call: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        chosen = next(o for o in options if o.kind == "allow_once")
        return RequestPermissionResponse(
            outcome=AllowedOutcome(option_id=chosen.option_id, outcome="selected")
        )

    def on_connect(self, conn: Any) -> None:
        pass

    def kind(self, name: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == name]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path, SCRIPT) as world:
        yield world


@asynccontextmanager
async def agent(world: World, editor: SdkEditor, *options: str) -> AsyncGenerator[Any]:
    command = ("-m", "goent", "acp", *options)
    async with acp.spawn_agent_process(
        editor,  # pyright: ignore[reportArgumentType] (any object with the methods will do)
        sys.executable,
        *command,
        env=world.env,
        cwd=world.project,
        transport_kwargs={"stderr": None},
    ) as (connection, process):
        await connection.initialize(protocol_version=1)
        yield connection, process


@pytest.mark.spec("A07", "A11", "A12", "A13")
@pytest.mark.parametrize("model", ["claude/claude-haiku", "moonshot/glm-4"])
async def test_a_task_in_a_repository_is_done_and_its_diff_is_shown(
    world: World, model: str
) -> None:
    repository = Repository(world.project)
    repository.git("init", "--quiet", "-b", "main")
    repository.write("sums.py", BROKEN)
    repository.write("check.py", CHECK)
    repository.commit("as it was")
    editor = SdkEditor()
    async with agent(world, editor, "--model", model) as (connection, _):
        session = await connection.new_session(cwd=str(world.project), mcp_servers=[])
        with anyio.fail_after(60):
            ended = await connection.prompt(
                session_id=session.session_id, prompt=[acp.text_block("Mend add in sums.py.")]
            )
    assert ended.stop_reason == "end_turn"
    assert (world.project / "sums.py").read_text() == MENDED
    said = "".join(update.content.text for update in editor.kind("agent_message_chunk"))
    assert said == "add subtracted; it adds now, and check.py passes."
    diffs = [
        content
        for update in editor.kind("tool_call_update")
        for content in update.content or ()
        if isinstance(content, FileEditToolCallContent)
    ]
    assert "a - b" in (diffs[-1].old_text or "") and "a + b" in diffs[-1].new_text
    assert [call.kind for call in editor.asked] == ["edit", "execute"]
    assert [entry.status for entry in editor.kind("plan")[-1].entries] == ["completed"]
    assert any(
        u.raw_output and "all well" in str(u.raw_output) for u in editor.kind("tool_call_update")
    )


@pytest.mark.parametrize("prompt", ["Serve for ever.", "Serve behind."])
async def test_a_client_that_vanishes_leaves_nothing_running(world: World, prompt: str) -> None:
    editor = SdkEditor()
    async with agent(world, editor, "--model", "moonshot/glm-4") as (connection, process):
        session = await connection.new_session(cwd=str(world.project), mcp_servers=[])
        async with anyio.create_task_group() as group:
            group.start_soon(_prompt, connection, session.session_id, prompt)
            await _begun(world)
            group.cancel_scope.cancel()
        process.stdin.close()
        with anyio.fail_after(30):
            await process.wait()
    await _gone(world)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("busy", [False, True])
async def test_a_signal_ends_the_agent_and_what_it_has_running(
    world: World, number: signal.Signals, *, busy: bool
) -> None:
    editor = SdkEditor()
    async with agent(world, editor, "--model", "moonshot/glm-4") as (connection, process):
        sessions = [
            await connection.new_session(cwd=str(world.project), mcp_servers=[]) for _ in range(2)
        ]
        async with anyio.create_task_group() as group:
            if busy:
                group.start_soon(_in_vain, connection, sessions[0].session_id, "Serve for ever.")
                await _begun(world)
            kill(process.pid, number)
            with anyio.fail_after(30):
                await process.wait()
            group.cancel_scope.cancel()
    if busy:
        await _gone(world)


async def test_what_a_killed_agent_had_running_is_ended_by_the_next(world: World) -> None:
    editor = SdkEditor()
    async with agent(world, editor, "--model", "moonshot/glm-4") as (connection, process):
        session = await connection.new_session(cwd=str(world.project), mcp_servers=[])
        async with anyio.create_task_group() as group:
            group.start_soon(_prompt, connection, session.session_id, "Serve for ever.")
            await _begun(world)
            kill(process.pid)
            group.cancel_scope.cancel()
    async with agent(world, editor, "--model", "moonshot/glm-4") as (connection, _):
        await connection.load_session(
            cwd=str(world.project), session_id=session.session_id, mcp_servers=[]
        )
        await _gone(world)
        assert any(update.status == "failed" for update in editor.kind("tool_call"))


async def _prompt(connection: Any, session: str, text: str) -> None:
    await connection.prompt(session_id=session, prompt=[acp.text_block(text)])


async def _in_vain(connection: Any, session: str, text: str) -> None:
    """The agent goes away meanwhile."""
    with suppress(Exception):
        await _prompt(connection, session, text)


async def _begun(world: World) -> None:
    """The command has said who it is."""
    path = world.project / "pid"
    with anyio.fail_after(30):
        while not path.exists() or not path.read_text().strip():  # noqa: ASYNC110 (a file announces nothing)
            await anyio.sleep(0.05)


async def _gone(world: World) -> None:
    pid = int((world.project / "pid").read_text())
    with anyio.fail_after(30):
        while process_table.start_time(pid):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)
