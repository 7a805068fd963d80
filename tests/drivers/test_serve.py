"""Workers on the real `opencode serve`: what differs from ACP, and what must not."""

import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec
import pytest
from opencode_script import SCRIPT
from opencode_stage import ASK, Heard, processes
from serve_stage import PASSWORD, ServeStage, serve_stage, somebodys_server

from goent.domain.errors import (
    OpenCodeMissing,
    PermissionDenied,
    ProviderRefused,
    UnknownModel,
    WorkerBusy,
)
from goent.domain.events import Thought
from goent.domain.types import Command, FileChange, Prompt, Provider, Usage
from goent.drivers.opencode.client import Client
from goent.proc.marks import send

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
async def serving(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ServeStage]:
    """One `opencode serve` for all tests of this file."""
    async with serve_stage(SCRIPT, tmp_path_factory.mktemp("serve")) as built:
        yield built


@pytest.fixture
def cwd(serving: ServeStage) -> Path:
    return serving.settings.project


async def take(stage: ServeStage, cwd: Path, text: str, provider: str = "glm") -> Heard:
    heard = Heard()
    async with stage.serving.open(stage.spec(cwd, provider)) as session:
        assert await session.prompt(Prompt(text=text), heard.emit) == "end"
    return heard


async def test_text_thoughts_tools_edits_commands_and_todos_are_told(
    serving: ServeStage, cwd: Path
) -> None:
    heard = await take(serving, cwd, "say hello")
    assert heard.text == "Hello from glm-4."
    assert [e.text for e in heard.events if isinstance(e, Thought)] == ["Somebody greets."]
    heard = await take(serving, cwd, "work a little")
    write, edit, bash, todo = heard.ended_tools
    assert [t.tool for t in (write, edit, bash, todo)] == ["write", "edit", "bash", "todowrite"]
    assert write.changes == (FileChange(path="made.txt", added=2, removed=0),)
    assert edit.changes == (FileChange(path="made.txt", added=2, removed=1),)
    assert bash.command == Command(command="echo out; exit 3", exit=3)
    assert bash.output == "out\n"
    assert [e.text for e in heard.plans[-1].entries] == ["first", "second"]
    assert heard.text == "I begin.All done."
    assert {t.status for t in heard.tools if t.id == bash.id} >= {"running", "completed"}
    assert len(processes("serve")) == 1


async def test_each_prompt_reaches_its_model_letter_by_letter(
    serving: ServeStage, cwd: Path
) -> None:
    (cwd / "note.txt").write_text("remember the milk\n")
    async with serving.serving.open(serving.spec(cwd, "deepseek")) as session:
        for text in ("/init echo the prompt", "-- echo the prompt"):
            heard = Heard()
            await session.prompt(Prompt(text=text, files=("note.txt",)), heard.emit)
            assert text in heard.text
    call = serving.models.calls[-1]
    assert call.request
    assert serving.calls[-1].model == "deepseek-coder"
    said = [m.text for m in call.request.messages if m.role == "user"]
    assert [text.startswith(("/init", "--")) for text in said] == [True, True]
    assert "remember the milk" in said[0]


async def test_a_question_is_asked_and_its_answer_decides(serving: ServeStage, cwd: Path) -> None:
    heard = Heard()
    async with (
        serving.serving.open(serving.spec(cwd, rules=ASK)) as session,
        anyio.create_task_group() as tasks,
    ):

        async def answer() -> None:
            first = await heard.question()
            assert (first.tool, first.detail.splitlines()[0]) == ("edit", str(cwd / "made.txt"))
            await session.answer(first.id, "allow_once")
            await session.answer((await heard.question(2)).id, "reject")

        tasks.start_soon(answer)
        (cwd / "made.txt").unlink(missing_ok=True)
        with pytest.raises(PermissionDenied, match="'edit' was refused"):
            await session.prompt(Prompt(text="work a little"), heard.emit)
        assert (cwd / "made.txt").read_text() == "one\ntwo\n"
        again = Heard()
        assert await session.prompt(Prompt(text="say hello"), again.emit) == "end"


async def test_a_failure_says_its_status(serving: ServeStage, cwd: Path) -> None:
    nope = Provider(name="nope", backend="moonshot", model="nope")
    spec = serving.spec(cwd)
    async with serving.serving.open(spec) as session:
        with pytest.raises(ProviderRefused, match="401"):
            await session.prompt(Prompt(text="answer 401"), Heard().emit)
        heard = Heard()
        assert await session.prompt(Prompt(text="say hello"), heard.emit) == "end"
        assert heard.text == "Hello from glm-4."
    async with serving.serving.open(msgspec.structs.replace(spec, provider=nope)) as session:
        with pytest.raises(UnknownModel, match="moonshot/nope"):
            await session.prompt(Prompt(text="say hello"), Heard().emit)


async def test_a_cancelled_turn_leaves_the_session_usable(serving: ServeStage, cwd: Path) -> None:
    outcome, over = list[str](), anyio.Event()
    async with (
        serving.serving.open(serving.spec(cwd)) as session,
        anyio.create_task_group() as tasks,
    ):

        async def turn() -> None:
            outcome.append(await session.prompt(Prompt(text="wait at the gate"), Heard().emit))
            over.set()

        tasks.start_soon(turn)
        await serving.models.at_gate("door")
        with pytest.raises(WorkerBusy):
            await session.prompt(Prompt(text="say hello"), Heard().emit)
        with anyio.fail_after(10):
            await session.cancel()
            await over.wait()
        # The second "idle" of an abort may come now: it must not end this turn.
        heard = Heard()
        assert await session.prompt(Prompt(text="work a little"), heard.emit) == "end"
        assert heard.text == "I begin.All done."
    assert outcome == ["cancelled"]


@pytest.mark.timeout(300)  # three cold starts
async def test_a_session_outlives_its_server_and_its_driver(tmp_path: Path) -> None:
    others = processes("serve")
    async with serve_stage(SCRIPT, tmp_path) as stage:
        cwd = stage.settings.project
        async with stage.serving.open(stage.spec(cwd)) as session:
            await session.prompt(Prompt(text="1: say hello"), Heard().emit)
            token = session.token
            (pid,) = processes("serve") - others
            send(pid, signal.SIGKILL)
            heard = Heard()
            await session.prompt(Prompt(text="2: say hello"), heard.emit)
            assert heard.text == "Hello from glm-4."
        async with stage.running(), stage.serving.open(stage.spec(cwd, resume=token)) as again:
            await again.prompt(Prompt(text="3: say hello"), Heard().emit)
        request = stage.models.calls[-1].request
        assert request
        told = [m.text for m in request.messages if m.role == "user"]
        assert told == [f"{n}: say hello" for n in (1, 2, 3)]


async def test_somebodys_server_is_used_and_left_as_it_was(
    serving: ServeStage, tmp_path: Path
) -> None:
    before = processes("serve")
    calls = len(serving.calls)
    async with somebodys_server(serving.models, tmp_path) as url:
        ours = serving.settings
        there = msgspec.structs.replace(
            ours.opencode, serve_url=url, serve_password_env="SERVE_PASSWORD"
        )
        serving.settings = msgspec.structs.replace(ours, opencode=there)
        spec = serving.spec(ours.project, "local")
        try:
            with pytest.raises(OpenCodeMissing, match="serve_password_env"):
                async with serving.serving.open(spec):
                    pass
            serving.environ["SERVE_PASSWORD"] = PASSWORD
            heard = Heard()
            async with serving.serving.open(spec) as session:
                assert await session.prompt(Prompt(text="spend"), heard.emit) == "end"
                assert not (await session.signs()).alive
        finally:
            serving.settings = ours
        assert heard.text == "Spent."
        assert [(e.source, e.usage) for e in heard.usage] == [
            ("opencode", Usage(input=900, output=100, cache_read=200, reasoning=10))
        ]
        assert len(serving.calls) == calls, "its model calls do not pass the gate"
        async with Client.at(url, PASSWORD) as client:
            assert await client.is_healthy(5)
    assert processes("serve") == before


async def test_a_server_that_is_not_there_is_named_with_the_remedy(serving: ServeStage) -> None:
    ours = serving.settings
    nowhere = msgspec.structs.replace(ours.opencode, serve_url="http://127.0.0.1:9")
    serving.settings = msgspec.structs.replace(ours, opencode=nowhere)
    try:
        with pytest.raises(OpenCodeMissing, match=r"127\.0\.0\.1:9.*opencode serve --port"):
            async with serving.serving.open(serving.spec(ours.project)):
                pass
    finally:
        serving.settings = ours
