"""Workers on the real `opencode serve`: what differs from ACP, and what must not."""

import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec
import pytest
from opencode_script import SCRIPT
from opencode_stage import ASK, PATIENCE, Heard, processes
from serve_stage import ServeStage, serve_stage

from goent.domain.errors import PermissionDenied, ProviderRefused, UnknownModel, WorkerBusy
from goent.domain.events import Thought
from goent.domain.types import Command, FileChange, Prompt, Provider
from goent.opencode.driver import CONTINUE_PROMPT
from goent.proc.process_table import send_signal

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
    assert serving.calls[-1].model == "deepseek-coder"
    said = told(serving)
    assert [text.startswith(("/init", "--")) for text in said] == [True, True]
    assert "remember the milk" in said[0]
    long = "-say hello `ls` $HOME\n" + "z" * 5_000_000 + " "
    await take(serving, cwd, long)
    assert told(serving) == [long]


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
    nope = Provider(name="nope", backend="moonshot", model="no pe; $(touch x) `ls`")
    spec = serving.spec(cwd)
    async with serving.serving.open(spec) as session:
        with pytest.raises(ProviderRefused, match="401"):
            await session.prompt(Prompt(text="answer 401"), Heard().emit)
        heard = Heard()
        assert await session.prompt(Prompt(text="say hello"), heard.emit) == "end"
        assert heard.text == "Hello from glm-4."
    async with serving.serving.open(msgspec.structs.replace(spec, provider=nope)) as session:
        with pytest.raises(UnknownModel, match=re.escape(nope.opencode_model)):
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
        await serving.models.at_gate("door", timeout=PATIENCE)
        with pytest.raises(WorkerBusy):
            await session.prompt(Prompt(text="say hello"), Heard().emit)
        with anyio.fail_after(PATIENCE):
            await session.cancel()
            await over.wait()
        # The second "idle" of an abort may come now: it must not end this turn.
        heard = Heard()
        assert await session.prompt(Prompt(text="work a little"), heard.emit) == "end"
        assert heard.text == "I begin.All done."
    assert outcome == ["cancelled"]


async def test_a_subagents_question_is_the_workers_question(serving: ServeStage, cwd: Path) -> None:
    heard, path = Heard(), cwd / "part.txt"
    async with (
        serving.serving.open(serving.spec(cwd, rules=ASK)) as session,
        anyio.create_task_group() as tasks,
    ):

        async def answer() -> None:
            question = await heard.question()
            assert (question.tool, path.exists()) == ("edit", False)
            assert str(path) in question.detail
            await session.answer(question.id, "allow_once")

        tasks.start_soon(answer)
        assert await session.prompt(Prompt(text="delegate writing"), heard.emit) == "end"
    assert (heard.text, path.read_text()) == ("Delegated.", "p\n")


async def test_retries_that_opencode_hides_are_told(serving: ServeStage, cwd: Path) -> None:
    heard = await take(serving, cwd, "be rate limited", "local")
    assert heard.text == "Through."
    told = [notice.text.partition(":")[0] for notice in heard.notices]
    assert told == ["attempt 1 failed", "attempt 2 failed"]
    assert "too many" in heard.notices[0].text


@pytest.mark.spec("P02", "P06")
async def test_a_dedicated_worker_loses_its_server_alone_and_its_turn_goes_on(
    serving: ServeStage, cwd: Path
) -> None:
    """What a killed server had started is ended, and nothing is said to the session twice."""
    await take(serving, cwd, "say hello")
    shared, own, heard = processes("serve"), set[int](), Heard()
    async with (
        serving.serving.open(serving.spec(cwd, dedicated=True)) as session,
        anyio.create_task_group() as tasks,
    ):
        own |= processes("serve") - shared

        async def strike() -> None:
            with anyio.fail_after(PATIENCE):
                while not processes("300"):  # noqa: ASYNC110 (a process announces nothing)
                    await anyio.sleep(0.02)
            (pid,) = own
            send_signal(pid, signal.SIGKILL)

        tasks.start_soon(strike)
        assert await session.prompt(Prompt(text="sleep in the shell"), heard.emit) == "end"
        assert len(processes("serve") - shared - own) == 1
    assert (processes("serve"), processes("300")) == (shared, set())
    assert heard.text == "I went on."
    assert told(serving) == ["sleep in the shell", CONTINUE_PROMPT.text]
    (notice,) = heard.notices
    assert notice.text.endswith("ended with code -9; the session continues in another process")
    (cut,) = heard.ended_tools
    assert cut.status == "failed" and "may or may not have taken effect" in cut.output


async def test_a_session_outlives_its_driver(serving: ServeStage, cwd: Path) -> None:
    first = serving.serving
    async with first.open(serving.spec(cwd)) as session:
        await session.prompt(Prompt(text="1: say hello"), Heard().emit)
        token = session.token
    try:
        async with serving.running(), serving.serving.open(serving.spec(cwd, resume=token)) as same:
            await same.prompt(Prompt(text="2: say hello"), Heard().emit)
    finally:
        serving.serving = first
    assert told(serving) == ["1: say hello", "2: say hello"]


def told(stage: ServeStage) -> list[str]:
    """What the user said, as the last model call has it."""
    request = stage.models.calls[-1].request
    assert request
    return [message.text for message in request.messages if message.role == "user"]
