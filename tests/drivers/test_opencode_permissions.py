"""Nothing that is to be asked is done unasked, by a worker or by its subagents."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from opencode_stage import ALLOW, ASK, Heard, Stage

from goent.domain.errors import PermissionDenied, RequestError
from goent.domain.ports import TurnStopReason, WorkerSession
from goent.domain.settings import PermissionRule
from goent.domain.types import Prompt

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
DENY = (*ALLOW, PermissionRule(tool="edit", action="deny"))


class Turn:
    """A turn that runs beside the test."""

    def __init__(self, session: WorkerSession) -> None:
        self.session = session
        self.heard = Heard()
        self.end: TurnStopReason | Exception | None = None

    async def run(self, text: str) -> None:
        try:
            self.end = await self.session.prompt(Prompt(text=text), self.heard.emit)
        except PermissionDenied as error:
            self.end = error


@asynccontextmanager
async def asking(stage: Stage, cwd: Path, text: str, rules: Sequence[PermissionRule] = ASK):
    async with stage.driver.open(stage.spec(cwd, rules=rules)) as session:
        turn = Turn(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run, text)
            yield turn


def fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


async def test_a_question_tells_the_edit_and_waits_for_its_answer(
    shared: Stage, project: Path
) -> None:
    path = fresh(project / "asked.txt")
    async with asking(shared, project, "write asked.txt") as turn:
        question = await turn.heard.question()
        assert (question.id, question.tool) == ("p1", "edit")
        assert str(path) in question.detail
        assert "+x" in question.detail
        assert [option.id for option in question.options] == [
            "allow_once",
            "allow_always",
            "reject",
        ]
        assert not path.exists()
        await turn.session.answer("p1", "allow_once")
    assert turn.end == "end"
    assert path.read_text() == "x\n"


async def test_a_rejection_ends_the_turn_and_names_tool_and_pattern(
    shared: Stage, project: Path
) -> None:
    path = fresh(project / "one.txt")
    async with asking(shared, project, "run two commands") as turn:
        question = await turn.heard.question()
        assert (question.tool, question.detail) == ("bash", "echo one > one.txt")
        await turn.session.answer(question.id, "reject")
    assert isinstance(turn.end, PermissionDenied)
    assert "'bash'" in str(turn.end)
    assert "echo one" in str(turn.end)
    assert not path.exists()


async def test_always_covers_this_very_command_and_no_other(shared: Stage, project: Path) -> None:
    async with asking(shared, project, "run two commands") as turn:
        await turn.session.answer((await turn.heard.question()).id, "allow_always")
        second = await turn.heard.question(2)
        assert second.detail == "echo two > two.txt"
        await turn.session.answer(second.id, "allow_once")
    assert turn.end == "end"
    assert (project / "two.txt").read_text() == "two\n"


async def test_always_said_to_one_worker_is_not_said_to_another(
    shared: Stage, project: Path
) -> None:
    path = fresh(project / "part-ran.txt")
    async with asking(shared, project, "run two commands") as first:
        for number in (1, 2):
            await first.session.answer((await first.heard.question(number)).id, "allow_always")
    async with asking(shared, project, "delegate running") as second:
        question = await second.heard.question()
        assert not path.exists()
        await second.session.answer(question.id, "allow_once")
    assert path.exists()


async def test_an_answer_to_no_question_is_refused(shared: Stage, project: Path) -> None:
    async with shared.driver.open(shared.spec(project)) as session:
        with pytest.raises(RequestError, match="no question 'p9' is open; open: none"):
            await session.answer("p9", "allow_once")


async def test_what_is_denied_is_not_offered_and_the_turn_goes_on(
    shared: Stage, project: Path
) -> None:
    path = fresh(project / "asked.txt")
    async with asking(shared, project, "write asked.txt", DENY) as turn:
        pass
    assert turn.end == "end"
    assert not turn.heard.questions
    assert not path.exists()


@pytest.mark.spec("P06")
async def test_a_turn_that_waits_for_an_answer_can_be_cancelled_and_the_next_may_ask(
    shared: Stage, project: Path
) -> None:
    async with shared.driver.open(shared.spec(project, rules=ASK)) as session:
        for n in (1, 2):
            turn = Turn(session)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn.run, "write asked.txt")
                assert (await turn.heard.question()).id == f"p{n}"
                await session.cancel()
            assert turn.end == "cancelled"


async def test_a_subagents_question_is_the_workers_question(shared: Stage, project: Path) -> None:
    path = fresh(project / "part.txt")
    async with asking(shared, project, "delegate writing") as turn:
        question = await turn.heard.question()
        assert question.tool == "edit"
        assert str(path) in question.detail
        assert not path.exists()
        await turn.session.answer(question.id, "allow_once")
    assert turn.end == "end"
    assert turn.heard.text == "Delegated."
    assert path.read_text() == "p\n"


async def test_a_subagent_may_do_what_its_worker_may(shared: Stage, project: Path) -> None:
    path = fresh(project / "part-ran.txt")
    async with asking(shared, project, "delegate running", ALLOW) as turn:
        pass
    assert turn.end == "end"
    assert not turn.heard.questions
    assert path.read_text() == "ran\n"


async def test_a_subagent_may_not_do_what_its_worker_may_not(shared: Stage, project: Path) -> None:
    path = fresh(project / "part.txt")
    async with asking(shared, project, "delegate writing", DENY) as turn:
        pass
    assert turn.end == "end"
    assert not turn.heard.questions
    assert not path.exists()


async def test_a_subagent_hears_of_a_no_and_its_worker_goes_on(
    shared: Stage, project: Path
) -> None:
    path = fresh(project / "part.txt")
    async with asking(shared, project, "delegate writing") as turn:
        await turn.session.answer((await turn.heard.question()).id, "reject")
    assert turn.end == "end"
    assert not path.exists()


async def test_several_questions_may_be_open_at_once(shared: Stage, project: Path) -> None:
    written, ran = fresh(project / "part.txt"), fresh(project / "part-ran.txt")
    async with asking(shared, project, "delegate twice") as turn:
        await turn.heard.question(2)
        by_tool = {question.tool: question.id for question in turn.heard.questions}
        assert by_tool.keys() == {"edit", "bash"}
        await turn.session.answer(by_tool["bash"], "allow_once")
        await turn.session.answer(by_tool["edit"], "reject")
    assert turn.end == "end"
    assert ran.exists()
    assert not written.exists()


async def test_cancelling_while_a_subagent_asks_ends_the_turn(shared: Stage, project: Path) -> None:
    async with asking(shared, project, "delegate writing") as turn:
        await turn.heard.question()
        await turn.session.cancel()
    assert turn.end == "cancelled"
