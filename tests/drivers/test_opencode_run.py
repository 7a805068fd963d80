"""The method `cli` on the real `opencode run`: what the contract of all methods does not say."""

from pathlib import Path

import pytest
from contract_stage import SPENT, World, contract_world

from goent.domain.errors import WorkerIsClosed
from goent.domain.events import PlanUpdated, ToolCall, UsageReported
from goent.domain.replies import SpawnReply
from goent.domain.types import Command, FileChange, PlanEntry, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@pytest.mark.spec("P07")
async def test_tools_edits_commands_and_todos_are_told_and_then_it_closes(world: World) -> None:
    worker = await world.spawn("cli", "work a little")
    result = await world.ended(worker)
    assert (result.state, result.text) == ("completed", "All done.")
    assert not (await world.status(worker)).open
    with pytest.raises(WorkerIsClosed):
        await world.ask("worker_prompt", worker_id=worker, prompt="more", queue=True)
    events = await world.events(worker)
    write, edit, bash, todo = [e for e in events if isinstance(e, ToolCall)]
    assert [t.tool for t in (write, edit, bash, todo)] == ["write", "edit", "bash", "todowrite"]
    assert write.changes == (FileChange(path="made.txt", added=2, removed=0),)
    assert edit.changes == (FileChange(path="made.txt", added=2, removed=1),)
    assert (bash.command, bash.output) == (Command(command="echo out; exit 3", exit=3), "out\n")
    (plan,) = [e for e in events if isinstance(e, PlanUpdated)]
    assert plan.entries == (PlanEntry(text="first", status="completed"),)
    assert (world.project / "made.txt").read_text() == "one\n2\n3\n"


@pytest.mark.spec("P07")
async def test_a_prompt_arrives_letter_by_letter(world: World) -> None:
    (world.project / "note.txt").write_text("a file to read\n")
    prompt = "/init -\"quoted\" 'x' $HOME `ls` @note.txt ü swallow\n" + "y" * 5_000_000 + "  "
    result = await world.run("cli", prompt, files=["note.txt"])
    assert (result.state, result.text) == ("completed", "Swallowed.")
    call = next(call for call in world.models.calls if call.case == "swallow")
    assert call.request and call.request.prompt.endswith(prompt)
    assert "a file to read" in call.request.prompt.removesuffix(prompt)


@pytest.mark.spec("P09")
async def test_what_would_be_asked_is_refused_by_name(world: World) -> None:
    spawned = await world.ask(
        "worker_spawn", task="write asked.txt", method="cli", provider="moonshot", permissions="ask"
    )
    assert isinstance(spawned, SpawnReply)
    assert any("cannot ask anybody" in warning for warning in spawned.warnings)
    result = await world.ended(spawned.worker_id)
    assert result.failure and result.failure.kind == "permission_denied"
    assert "'edit'" in result.failure.message and "asked.txt" in result.failure.message
    assert result.text == "I write."
    assert not (world.project / "asked.txt").exists()


async def test_a_model_that_opencode_does_not_know_is_named(world: World) -> None:
    result = await world.run("cli", "say hello", model="nope $(x) y")
    assert result.failure and result.failure.kind == "unknown_model"
    assert "moonshot/nope $(x) y" in result.failure.message


async def test_a_provider_that_goes_direct_is_counted_by_opencode(world: World) -> None:
    worker = await world.spawn("cli", "spend", provider="local")
    result = await world.ended(worker)
    assert result.usage == SPENT + Usage(input=100, output=10) == world.models.billed("local")
    events = await world.events(worker)
    reports = [e for e in events if isinstance(e, UsageReported)]
    assert [report.source for report in reports] == ["opencode", "opencode"]


async def test_first_starts_at_once_do_not_break_each_other(tmp_path: Path) -> None:
    async with contract_world(tmp_path) as fresh:
        workers = [await fresh.spawn(method, "say hello") for method in ("cli", "acp", "cli")]
        for worker in workers:
            result = await fresh.ended(worker)
            assert result.failure is None and result.text == "Hello from glm-4."
