"""A worker's turns on the real OpenCode: what it says and does, and how a turn ends."""

from pathlib import Path

import anyio
import msgspec
import pytest
from opencode_stage import PATIENCE, Heard, Stage, processes

from goent.domain.errors import (
    ModelRefused,
    NothingSaid,
    ProviderRefused,
    RequestError,
    UnknownModel,
    WorkerBusy,
    WorkerError,
)
from goent.domain.events import Thought
from goent.domain.types import Command, FileChange, PlanEntry, Prompt, Provider, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def take(stage: Stage, cwd: Path, text: str, provider: str = "glm") -> Heard:
    heard = Heard()
    async with stage.driver.open(stage.spec(cwd, provider)) as session:
        assert await session.prompt(Prompt(text=text), heard.emit) == "end"
    return heard


@pytest.mark.spec("P03", "P04", "P05", "P13", "P14", "P15")
@pytest.mark.parametrize(
    ("provider", "backend", "model"),
    [
        ("glm", "moonshot", "glm-4"),
        ("kimi", "moonshot", "kimi-k2"),
        ("deepseek", "deepseek", "deepseek-coder"),
    ],
)
async def test_each_worker_runs_on_the_model_that_was_asked_for(
    shared: Stage, project: Path, provider: str, backend: str, model: str
) -> None:
    heard = await take(shared, project, "say hello", provider)
    assert heard.text == f"Hello from {model}."
    assert [e.text for e in heard.events if isinstance(e, Thought)] == ["Somebody greets."]
    last = shared.calls[-1]
    assert (last.backend, last.model, last.status) == (backend, model, 200)


async def test_calls_are_counted_for_the_worker_that_made_them(
    shared: Stage, project: Path
) -> None:
    spec = shared.spec(project)
    async with shared.driver.open(spec) as session:
        await session.prompt(Prompt(text="say hello"), Heard().emit)
        assert shared.calls[-1].worker == spec.id


@pytest.mark.spec("P05")
async def test_tools_edits_commands_and_todos_are_told(shared: Stage, project: Path) -> None:
    heard = await take(shared, project, "work a little")
    write, edit, bash, todo = heard.ended_tools
    assert [t.tool for t in (write, edit, bash, todo)] == ["write", "edit", "bash", "todowrite"]
    assert write.changes == (FileChange(path="made.txt", added=2, removed=0),)
    assert edit.changes == (FileChange(path="made.txt", added=2, removed=1),)
    assert bash.command == Command(command="echo out; exit 3", exit=3)
    assert bash.output == "out\n"
    assert heard.plans[-1].entries == (
        PlanEntry(text="first", status="completed"),
        PlanEntry(text="second", status="in_progress"),
    )
    assert heard.text == "I begin.All done."
    assert (project / "made.txt").read_text() == "one\n2\n3\n"
    assert {t.status for t in heard.tools if t.id == bash.id} >= {"running", "completed"}


async def test_a_prompt_that_looks_like_a_command_reaches_the_model(
    shared: Stage, project: Path
) -> None:
    for text in ("/init echo the prompt", " \n/zzz echo the prompt"):
        heard = await take(shared, project, text)
        assert text.strip() in heard.text
    long = "-say hello `ls` $HOME\n" + "z" * 5_000_000 + "."
    await take(shared, project, long)
    request = shared.models.calls[-1].request
    assert request and request.prompt == long


@pytest.mark.spec("E16")
async def test_files_are_given_as_links_and_read_by_opencode(shared: Stage, project: Path) -> None:
    (project / "note.txt").write_text("remember the milk\n")
    async with shared.driver.open(shared.spec(project)) as session:
        await session.prompt(Prompt(text="say hello", files=("note.txt",)), Heard().emit)
    request = shared.models.calls[-1].request
    assert request
    assert "remember the milk" in request.messages[-1].text


async def test_a_session_takes_one_turn_after_the_other(shared: Stage, project: Path) -> None:
    async with shared.driver.open(shared.spec(project)) as session:
        for n in (1, 2):
            heard = Heard()
            await session.prompt(Prompt(text=f"{n}: say hello"), heard.emit)
            assert heard.text == "Hello from glm-4."
    request = shared.models.calls[-1].request
    assert request
    assert [m.text for m in request.messages if m.role == "user"] == [
        "1: say hello",
        "2: say hello",
    ]


async def test_two_workers_take_their_turns_at_the_same_time(shared: Stage, project: Path) -> None:
    slow, quick = Heard(), Heard()
    async with (
        shared.driver.open(shared.spec(project)) as first,
        shared.driver.open(shared.spec(project, "deepseek")) as second,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(first.prompt, Prompt(text="wait at the gate"), slow.emit)
        await shared.models.at_gate("door", timeout=PATIENCE)
        await second.prompt(Prompt(text="say hello"), quick.emit)
        assert (quick.text, slow.text) == ("Hello from deepseek-coder.", "")
        with pytest.raises(WorkerBusy):
            await first.prompt(Prompt(text="say hello"), Heard().emit)
        shared.models.open_gate("door")
    assert slow.text == "I waited."


@pytest.mark.spec("P06")
async def test_a_cancelled_turn_ends_its_command_and_the_session_goes_on(
    shared: Stage, project: Path
) -> None:
    heard = Heard()
    async with shared.driver.open(shared.spec(project)) as session:
        ends: list[str] = []

        async def turn() -> None:
            ends.append(await session.prompt(Prompt(text="sleep in the shell"), heard.emit))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            with anyio.fail_after(PATIENCE):
                while not processes("300"):  # noqa: ASYNC110 (a process announces nothing)
                    await anyio.sleep(0.05)
            await session.cancel()
        assert ends == ["cancelled"]
        assert not processes("300")
        again = Heard()
        assert await session.prompt(Prompt(text="say hello"), again.emit) == "end"
        assert again.text == "Hello from glm-4."


async def test_leaving_in_the_middle_of_a_turn_stops_it(shared: Stage, project: Path) -> None:
    with anyio.CancelScope() as scope:
        async with (
            shared.driver.open(shared.spec(project)) as session,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(session.prompt, Prompt(text="sleep in the shell"), Heard().emit)
            with anyio.fail_after(PATIENCE):
                while not processes("300"):  # noqa: ASYNC110 (a process announces nothing)
                    await anyio.sleep(0.05)
            scope.cancel()
    with anyio.fail_after(PATIENCE):
        while processes("300"):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


@pytest.mark.spec("P04")
async def test_a_model_that_opencode_does_not_know_is_refused_by_name(
    shared: Stage, project: Path
) -> None:
    unknown = Provider(name="x", backend="moonshot", model="nope")
    spec = msgspec.structs.replace(shared.spec(project), provider=unknown)
    with pytest.raises(UnknownModel, match=r"moonshot/nope.*it has: .*moonshot/glm-4"):
        async with shared.driver.open(spec):
            pass


async def test_a_directory_that_does_not_exist_is_refused(shared: Stage, project: Path) -> None:
    with pytest.raises(RequestError, match="nowhere' does not exist"):
        async with shared.driver.open(shared.spec(project / "nowhere")):
            pass


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("answer 401", ProviderRefused, "scripted failure"),
        ("answer 404", UnknownModel, "scripted failure"),
        ("refuse", ModelRefused, "moonshot/glm-4"),
        ("say nothing", NothingSaid, "moonshot/glm-4"),
    ],
)
async def test_a_turn_that_fails_says_how(
    shared: Stage, project: Path, text: str, error: type[WorkerError], message: str
) -> None:
    async with shared.driver.open(shared.spec(project)) as session:
        with pytest.raises(error, match=message):
            await session.prompt(Prompt(text=text), Heard().emit)


async def test_an_error_of_the_listener_arrives_as_itself(shared: Stage, project: Path) -> None:
    async def emit(_: object) -> None:
        raise ZeroDivisionError

    async with shared.driver.open(shared.spec(project)) as session:
        with pytest.raises(ZeroDivisionError):
            await session.prompt(Prompt(text="say hello"), emit)


@pytest.mark.spec("P33")
async def test_a_provider_without_a_key_goes_direct_and_opencode_tells_its_usage(
    shared: Stage, project: Path
) -> None:
    metered = len(shared.calls)
    heard = await take(shared, project, "spend", "local")
    assert {(e.source, e.cost_usd) for e in heard.usage} == {("opencode", None)}
    spent = sum((e.usage for e in heard.usage), Usage())
    assert spent == Usage(input=900, output=100, cache_read=200, reasoning=10)
    assert len(shared.calls) == metered
