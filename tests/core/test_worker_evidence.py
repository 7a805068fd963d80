"""What a worker's word is worth: claimed, verified or refuted, and why."""

import pytest
from scripted_project import OpenProject, Project, spawn, wait
from scripted_project import result as told_result

from goent.domain.events import DriverEvent, TextDelta, ToolCall, TurnEnded, Verified, WorkerSpawned
from goent.domain.replies import Result
from goent.domain.settings import LimitSettings
from goent.domain.types import Check
from goent.testing.driver import ScriptedDriver

pytestmark = pytest.mark.anyio

ORDER = "Refactor the parser so that errors are values"
DONE = TextDelta(text="Done, all errors are values now.")


def a_call(name: str = "1", status: str = "completed") -> ToolCall:
    return ToolCall(id=name, tool="read", status="running" if status == "running" else "completed")


async def outcome(project: Project, task: str = ORDER, **more: object) -> Result:
    worker = await spawn(project, task, **more)
    await wait(project, worker, timeout_s=20)
    return await told_result(project, worker)


async def test_success_that_is_claimed_without_an_edit_or_a_tool_is_refuted(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        result = await outcome(project)
    assert (result.state, result.evidence, result.failure) == ("completed", "refuted", None)
    assert "asks for edits, and glm has neither edited a file nor used a tool" in result.notes[0]


@pytest.mark.parametrize(
    ("moves", "task", "more"),
    [
        ([a_call(), DONE], ORDER, {}),
        ([DONE], "What does the parser do with errors?", {}),
        ([DONE], "do it", {}),
        ([DONE], ORDER, {"permissions": "readonly"}),
    ],
)
async def test_in_doubt_a_claim_stays_a_claim(
    open_project: OpenProject, moves: list[DriverEvent], task: str, more: dict[str, object]
) -> None:
    async with open_project(ScriptedDriver(lambda _: moves)) as project:
        result = await outcome(project, task, **more)
    assert (result.evidence, result.notes) == ("claimed", ())


async def test_a_later_turn_may_be_words_alone(
    open_project: OpenProject,
) -> None:
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        worker = await spawn(project, ORDER)
        await wait(project, worker)
        await project.ask("worker_prompt", worker_id=worker, prompt="and now?", wait_s=20)
        assert (await told_result(project, worker)).evidence == "claimed"


async def test_a_verify_command_has_the_last_word(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        result = await outcome(project, verify=["true", "echo out; exit 0"])
        assert result.evidence == "verified"
        assert result.verify[1] == Check(command="echo out; exit 0", exit=0, tail="out")
        result = await outcome(project, verify=["true", "echo red; exit 7"])
    assert (result.state, result.evidence) == ("failed", "refuted")
    assert result.verify[0] == Check(command="echo red; exit 7", exit=7, tail="red")
    assert result.failure and result.failure.kind == "verify_failed"


async def test_a_verify_command_that_hangs_is_ended_and_refutes(open_project: OpenProject) -> None:
    limits = LimitSettings(verify_s=0.5)
    async with open_project(ScriptedDriver(lambda _: [DONE]), limits=limits) as project:
        result = await outcome(project, verify=["echo begun; sleep 300"])
    (check,) = result.verify
    assert (check.exit, result.evidence, result.state) == (None, "refuted", "failed")
    assert check.tail.startswith("begun") and "still running after 0.5 s: ended" in check.tail


async def test_a_tool_call_that_is_told_often_counts_once_and_each_turn_anew(
    open_project: OpenProject,
) -> None:
    moves = [a_call("1", "running"), a_call("1"), a_call("2"), a_call("1"), DONE]
    async with open_project(ScriptedDriver(lambda _: moves)) as project:
        worker = await spawn(project, ORDER)
        await wait(project, worker)
        assert project.feed.view(worker).tools == 2
        await project.ask("worker_prompt", worker_id=worker, prompt="again", wait_s=20)
        view = project.feed.view(worker)
        assert (view.tools, view.tool_ids) == (2, frozenset())
        (first, *_) = await project.events(worker)
        assert isinstance(first, WorkerSpawned) and first.edits_asked


async def test_the_end_of_a_turn_is_journaled_with_its_evidence(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        for task, more, expected in (
            (ORDER, {}, "refuted"),
            ("do it", {}, "claimed"),
            (ORDER, {"verify": ["true"]}, "verified"),
            ("do it", {"verify": ["false"]}, "refuted"),
        ):
            worker = await spawn(project, task, **more)
            await wait(project, worker, timeout_s=20)
            (ended,) = [e for e in await project.events(worker) if isinstance(e, TurnEnded)]
            assert ended.evidence == (await told_result(project, worker)).evidence == expected


async def test_blank_checks_in_an_old_journal_prove_nothing(open_project: OpenProject) -> None:
    async with open_project(ScriptedDriver(lambda _: [DONE])) as project:
        worker = await spawn(project, "do it")
        await wait(project, worker, timeout_s=20)
        await project.feed.append(worker, Verified(checks=(Check(command="", exit=0, tail=""),)))
        await project.feed.commit()
        assert (await told_result(project, worker)).evidence == "claimed"
