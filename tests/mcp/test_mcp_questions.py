"""A worker asks, and the person at the client is shown a form: in both eras of the protocol."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from lead import Person, a_lead, answers
from mcp import Client, types
from scripted_project import OpenProject, Project
from world import told

from goent.domain.events import TurnEnded
from goent.domain.types import Prompt
from goent.testing.driver import (
    AbandonedQuestion,
    Pause,
    ScriptedDriver,
    ScriptedMove,
    question,
    say,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


def asks(*names: str) -> ScriptedDriver:
    return ScriptedDriver(lambda _: [*(question(name) for name in names), say("Done.")])


async def spawn(lead: Client, **more: Any) -> dict[str, Any]:
    return told(await lead.call_tool("worker_spawn", {"task": "do it"} | more))


@ERAS
async def test_the_person_at_the_client_is_asked_and_the_wait_goes_on(
    open_project: OpenProject, mode: str
) -> None:
    person = Person("allow_once")
    async with open_project(asks("p1")) as project, a_lead(project, mode, person) as lead:
        worker = (await spawn(lead))["worker_id"]
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["state"] == "completed" and not waited["timed_out"]
        (form,) = person.forms
        assert "bash: make test" in form.message and worker in form.message
        choices = form.requested_schema["properties"]["answer"]["enum"]
        assert choices == ["allow_once", "allow_always", "reject"]
        assert await answers(project, worker) == [("p1", "allow_once", "mcp elicitation")]


@ERAS
async def test_a_spawn_that_waits_asks_too_and_spawns_once(
    open_project: OpenProject, mode: str
) -> None:
    person = Person("allow_always")
    async with open_project(asks("p1")) as project, a_lead(project, mode, person) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert (spawned["state"], spawned["provider"]) == ("completed", "glm")
        assert spawned["result"]["text"] == "Done."
        assert len(project.feed.views) == 1, "coming back with the answer is not another spawn"


@ERAS
async def test_a_further_prompt_asks_too_and_is_prompted_once(
    open_project: OpenProject, mode: str
) -> None:
    def turns(prompt: Prompt) -> Sequence[ScriptedMove]:
        return [question("p2"), say("More.")] if prompt.text == "more" else [say("First.")]

    driver, person = ScriptedDriver(turns), Person("allow_once")
    async with open_project(driver) as project, a_lead(project, mode, person) as lead:
        worker = (await spawn(lead, wait_s=20))["worker_id"]
        more = {"worker_id": worker, "prompt": "more", "wait_s": 20}
        prompted = told(await lead.call_tool("worker_prompt", more))
        assert (prompted["turn"], prompted["state"]) == (2, "completed")
        assert prompted["result"]["text"] == "More."
        assert [text for _, text in driver.prompts] == ["do it", "more"]


@ERAS
async def test_a_rejection_by_form_fails_the_turn(open_project: OpenProject, mode: str) -> None:
    async with open_project(asks("p1")) as project, a_lead(project, mode, Person("reject")) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert spawned["result"]["failure"]["kind"] == "permission_denied"


@ERAS
async def test_several_questions_are_asked_one_after_the_other(
    open_project: OpenProject, mode: str
) -> None:
    person = Person(*["allow_once"] * 4)
    async with open_project(asks("p1", "p2")) as project, a_lead(project, mode, person) as lead:
        workers = [(await spawn(lead))["worker_id"] for _ in range(2)]
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": workers}))
        assert {status["state"] for status in waited["workers"]} == {"completed"}
        assert len(person.forms) == 4
        for worker in workers:
            assert [name for name, _, _ in await answers(project, worker)] == ["p1", "p2"]


@ERAS
@pytest.mark.parametrize("word", ["decline", "cancel", "no such choice"])
async def test_a_form_that_is_not_filled_in_leaves_the_question_open(
    open_project: OpenProject, mode: str, word: str
) -> None:
    async with open_project(asks("p1")) as project, a_lead(project, mode, Person(word)) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert (spawned["state"], spawned["result"]) == ("waiting", None)
        worker = spawned["worker_id"]
        assert await answers(project, worker) == []
        answer = {"worker_id": worker, "permission_id": "p1", "option": "allow_once"}
        told(await lead.call_tool("worker_answer", answer))
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["state"] == "completed"


async def test_a_form_goes_when_the_process_that_asked_has_ended(
    open_project: OpenProject,
) -> None:
    lost, person = AbandonedQuestion(question("p1")), Person()
    driver = ScriptedDriver(lambda _: [lost, say("Done.")])
    async with open_project(driver) as project, a_lead(project, "legacy", person) as lead:
        worker = (await spawn(lead))["worker_id"]
        states: list[str] = []

        async def wait() -> None:
            waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
            states.append(waited["workers"][0]["state"])

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            with anyio.fail_after(10):
                await person.seen.wait()
                lost.gone.set()
                await person.withdrawn.wait()
        assert states == ["completed"]
        assert await answers(project, worker) == []


@ERAS
async def test_an_answer_from_elsewhere_wins_and_the_form_does_no_harm(
    open_project: OpenProject, mode: str
) -> None:
    person = Person("reject")
    person.may_answer = anyio.Event()
    async with open_project(asks("p1")) as project, a_lead(project, mode, person) as lead:
        worker = (await spawn(lead))["worker_id"]
        states: list[str] = []

        async def wait() -> None:
            waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
            states.append(waited["workers"][0]["state"])

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            with anyio.fail_after(10):
                await person.seen.wait()
            await project.ask(
                "worker_answer", worker_id=worker, permission_id="p1", option="allow_once"
            )
            if mode == "legacy":
                with anyio.fail_after(10):
                    await person.withdrawn.wait()
            person.may_answer.set()
        assert states == ["completed"]
        assert await answers(project, worker) == [("p1", "allow_once", "test")]


@ERAS
async def test_without_the_capability_the_call_returns_when_a_worker_asks(
    open_project: OpenProject, mode: str
) -> None:
    async with open_project(asks("p1")) as project, a_lead(project, mode) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert spawned["state"] == "waiting"


@ERAS
async def test_a_call_that_does_not_wait_asks_nobody(open_project: OpenProject, mode: str) -> None:
    person = Person("allow_once")
    async with open_project(asks("p1")) as project, a_lead(project, mode, person) as lead:
        worker = (await spawn(lead, wait_s=0))["worker_id"]
        with anyio.fail_after(10):
            while project.feed.view(worker).state != "waiting":
                await project.feed.wait_for_news(project.feed.seq)
        polled = {"worker_ids": [worker], "timeout_s": 0}
        waited = told(await lead.call_tool("worker_wait", polled))
        assert waited["workers"][0]["permission"]["id"] == "p1"
        assert person.forms == []


@ERAS
async def test_a_wait_for_any_asks_only_as_long_as_none_has_ended(
    open_project: OpenProject, mode: str
) -> None:
    pause = Pause()

    def turns(prompt: Prompt) -> Sequence[ScriptedMove]:
        return [question("p1"), say("Asked.")] if prompt.text == "ask" else [pause, say("Slow.")]

    person = Person("allow_once")
    async with (
        open_project(ScriptedDriver(turns)) as project,
        a_lead(project, mode, person) as lead,
    ):
        workers = [(await spawn(lead, task=task))["worker_id"] for task in ("ask", "slow", "ask")]
        any_ = {"worker_ids": workers[:2], "any": True}
        waited = told(await lead.call_tool("worker_wait", any_))
        assert [status["state"] for status in waited["workers"]] == ["completed", "running"]
        await lead.call_tool("worker_wait", {"worker_ids": workers[::2], "any": True})
        assert len(person.forms) == 1
        pause.go_on.set()


@ERAS
async def test_a_form_shows_the_whole_edit_the_rule_of_an_always_and_the_time(
    open_project: OpenProject, mode: str
) -> None:
    person = Person("allow_once")
    edit = "a.py\n" + "\n".join(f"+line {n}" for n in range(2000))
    driver = ScriptedDriver(lambda _: [question("p1", "edit", edit), say("Done.")])
    async with open_project(driver) as project, a_lead(project, mode, person) as lead:
        await spawn(lead, wait_s=20)
        shown = person.forms[0].message
        assert edit in shown
        assert 'always: allow edit "a.py" for this worker' in shown
        assert "Without an answer within 300 s it is rejected." in shown


@ERAS
async def test_a_form_tells_why_and_offers_no_always_for_a_guarded_file(
    open_project: OpenProject, mode: str
) -> None:
    person = Person("allow_once")
    asked = question("p1", "edit", ".envrc", reason="a change there runs programs")
    driver = ScriptedDriver(lambda _: [asked, say("Done.")])
    async with open_project(driver) as project, a_lead(project, mode, person) as lead:
        await spawn(lead, wait_s=20)
        (form,) = person.forms
        assert "a change there runs programs" in form.message
        assert form.requested_schema["properties"]["answer"]["enum"] == ["allow_once", "reject"]
        assert "always" not in form.message


@ERAS
async def test_a_form_takes_what_to_do_instead_with_a_no(
    open_project: OpenProject, mode: str
) -> None:
    driver, person = asks("p1"), Person("reject: use make check")
    async with open_project(driver) as project, a_lead(project, mode, person) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert (spawned["state"], driver.told) == ("completed", ["use make check"])


async def test_words_with_a_yes_in_a_form_are_no_answer(open_project: OpenProject) -> None:
    person = Person("allow_once: but not so")
    async with open_project(asks("p1")) as project, a_lead(project, "legacy", person) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert (spawned["state"], await answers(project, spawned["worker_id"])) == ("waiting", [])


async def test_a_reply_is_short_and_says_what_is_missing_and_how_to_see_it(
    open_project: OpenProject,
) -> None:
    command = "echo begin; " + "x" * 20_000 + "; touch pwned"
    driver = ScriptedDriver(lambda _: [question("p1", "bash", command), say("Done.")])
    async with open_project(driver) as project, a_lead(project, "auto") as lead:
        worker = (await spawn(lead, wait_s=20))["worker_id"]
        short = await lead.call_tool("worker_status", {"worker_id": worker})
        asked = told(short)["permission"]
        assert asked["detail"].startswith("echo begin; x") and asked["omitted"] == 17_025
        assert asked["detail"].endswith("x; touch pwned")
        how = "17,025 more characters; worker_status with whole: true shows them"
        assert how in asked["detail"]
        assert len(short.content[0].model_dump_json()) < 6000, "about 1,500 tokens"
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["permission"]["detail"] == asked["detail"]
        whole = {"worker_id": worker, "whole": True}
        seen = told(await lead.call_tool("worker_status", whole))["permission"]
        assert (seen["detail"], seen["omitted"]) == (command, 0)
        first = told(await lead.call_tool("worker_output", {"worker_id": worker}))
        on = {"worker_id": worker, "cursor": first["cursor"]}
        page = told(await lead.call_tool("worker_output", on))["text"]
        assert "x; touch pwned [p1]" in page and "a larger limit shows them" in page
        more = {"worker_id": worker, "limit": 100_000}
        assert command in told(await lead.call_tool("worker_output", more))["text"]


async def test_an_answer_with_words_is_told_apart(open_project: OpenProject) -> None:
    driver = asks("p1", "p2")
    async with open_project(driver) as project, a_lead(project, "auto") as lead:
        worker = (await spawn(lead, wait_s=20))["worker_id"]
        answer = {"worker_id": worker, "permission_id": "p1", "message": "use make check"}
        refused = await lead.call_tool("worker_answer", {**answer, "option": "allow_once"})
        assert refused.is_error and "only with 'reject'" in str(refused.content)
        taken = told(await lead.call_tool("worker_answer", {**answer, "option": "reject"}))
        assert (taken["message_passed"], taken["note"]) == (True, "")
        assert driver.told == ["use make check"]
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["permission"]["id"] == "p2", "the turn went on"
        driver.takes_words = False
        answer |= {"permission_id": "p2", "option": "reject"}
        ended = told(await lead.call_tool("worker_answer", answer))
        assert ended["message_passed"] is False and "worker_prompt" in ended["note"]
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert (waited["workers"][0]["state"], waited["workers"][0]["open"]) == ("failed", True)


async def test_a_call_asks_so_often_and_then_returns_with_the_question(
    open_project: OpenProject,
) -> None:
    person = Person(*["allow_once"] * 20)
    names = [f"p{number}" for number in range(1, 11)]
    async with open_project(asks(*names)) as project, a_lead(project, "auto", person) as lead:
        spawned = await spawn(lead, wait_s=20)
        assert (spawned["state"], len(person.forms)) == ("waiting", 8)
        again = {"worker_ids": [spawned["worker_id"]]}
        waited = told(await lead.call_tool("worker_wait", again))
        assert (waited["workers"][0]["state"], len(person.forms)) == ("completed", 10)


async def test_a_state_that_is_not_ours_is_refused(open_project: OpenProject) -> None:
    async with open_project(asks("p1")) as project, a_lead(project, "auto", Person()) as lead:
        for state in ("nonsense", '{"tool": "worker_wait"}'):
            refused = await lead.session.call_tool(
                "worker_spawn", {"task": "x", "wait_s": 5}, request_state=state
            )
            assert isinstance(refused, types.CallToolResult) and refused.is_error
        assert not project.feed.views


def states(project: Project) -> list[str]:
    return [view.state for view in project.feed.views.values()]


async def running(project: Project, workers: int) -> None:
    with anyio.fail_after(10):
        while states(project) != ["running"] * workers:
            await project.feed.wait_for_news(project.feed.seq)


@ERAS
async def test_to_cancel_a_call_never_cancels_the_worker(
    open_project: OpenProject, mode: str
) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with open_project(driver) as project, a_lead(project, mode, Person()) as lead:
        worker = (await spawn(lead))["worker_id"]
        for workers, tool, arguments in (
            (1, "worker_wait", {"worker_ids": [worker]}),
            (2, "worker_spawn", {"task": "do it", "wait_s": 60}),
        ):
            async with anyio.create_task_group() as calling:
                calling.start_soon(lead.call_tool, tool, arguments)
                await running(project, workers)
                await anyio.wait_all_tasks_blocked()
                calling.cancel_scope.cancel()
        told(await lead.call_tool("worker_list", {}))  # what was said before has been heard
        assert states(project) == ["running"] * 2
        pause.go_on.set()
        workers = list(project.feed.views)
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": workers}))
        assert [status["state"] for status in waited["workers"]] == ["completed"] * 2
        for name in workers:
            ended = [e for e in await project.events(name) if isinstance(e, TurnEnded)]
            assert [e.state for e in ended] == ["completed"]


@ERAS
async def test_a_cancel_for_an_answered_call_is_ignored(
    open_project: OpenProject, mode: str
) -> None:
    pause = Pause()
    driver = ScriptedDriver(lambda _: [pause, say("Done.")])
    async with open_project(driver) as project, a_lead(project, mode) as lead:
        worker = (await spawn(lead))["worker_id"]
        for number in range(20):
            params = types.CancelledNotificationParams(request_id=number, reason="late")
            await lead.session.send_notification(types.CancelledNotification(params=params))
        status = told(await lead.call_tool("worker_status", {"worker_id": worker}))
        assert status["state"] in ("starting", "running")
        pause.go_on.set()
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["state"] == "completed"
