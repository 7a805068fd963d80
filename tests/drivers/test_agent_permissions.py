"""What an agent asks for is judged by the worker's rules; what they leave open, by its owner."""

import json
import os
from pathlib import Path

import anyio
import pytest
from agent_stage import AWAY, BASH, EDIT, Stage, ask, during

from goent.acp.agent_messages import (
    AcpPermissionOption,
    OptionSelected,
    PermissionCancelled,
    PermissionRequest,
    ToolFields,
)
from goent.agents.open_questions import permission_outcome
from goent.domain.errors import PermissionDenied, RequestError
from goent.domain.settings import PermissionRule
from goent.domain.types import PermissionAnswer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    ("answer", "kinds", "chosen"),
    [
        ("allow_once", ("allow_once", "allow_always"), "allow_once"),
        ("allow_once", ("allow_always", "reject_once"), None),
        ("allow_always", ("allow_once", "allow_always"), "allow_once"),
        ("allow_always", ("allow_always",), "allow_always"),
        ("reject", ("reject_always", "allow_once"), "reject_always"),
        ("reject", ("allow_once",), None),
        (None, ("allow_once", "reject_once"), None),
    ],
)
def test_an_answer_is_one_of_the_offered_ones_and_never_more_than_was_said(
    answer: PermissionAnswer | None, kinds: tuple[str, ...], chosen: str | None
) -> None:
    request = PermissionRequest(
        session_id="s",
        tool_call=ToolFields(tool_call_id="c"),
        options=tuple(AcpPermissionOption(option_id=kind, kind=kind) for kind in kinds),
    )
    expected = OptionSelected(option_id=chosen) if chosen else PermissionCancelled()
    assert permission_outcome(request, answer) == expected


async def test_what_the_rules_decide_needs_nobody(tmp_path: Path) -> None:
    deny = PermissionRule(tool="bash", pattern="rm *", action="deny")
    remove = {"kind": "execute", "rawInput": {"command": "rm -r x"}}
    async with Stage(tmp_path).running() as stage:
        async with stage.open(permissions="auto", extra=(deny,)) as session:
            heard = await ask(session, f"ask {json.dumps([EDIT, BASH, remove])}")
        assert heard.text == "[y][y][n]", "it was told, and went on"
        assert not heard.questions
        assert [notice.text for notice in heard.notices] == ["refused by a rule: bash rm -r x"]


async def test_what_the_rules_leave_open_is_asked_and_an_always_lasts(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"ask {json.dumps([EDIT, EDIT, BASH, BASH])}") as turn:
            first = await turn.heard.question()
            assert (first.tool, first.detail) == ("edit", "a.txt")
            with pytest.raises(RequestError, match="no question 'p9' is open"):
                await session.answer("p9", "allow_once")
            await session.answer(first.id, "allow_always")
            second = await turn.heard.question(2)
            assert (second.tool, second.detail) == ("bash", "make")
            await session.answer(second.id, "allow_once")
            third = await turn.heard.question(3)
            await session.answer(third.id, "reject")
        assert turn.heard.text == "[y][y][y][n]", "the agent itself is told no always"
        assert (turn.reason, len(turn.heard.questions)) == ("end", 3)
        async with during(session, f"ask {json.dumps([EDIT])}") as turn:
            pass
        assert turn.heard.text == "[y]" and not turn.heard.questions


async def test_an_always_for_a_command_is_for_no_other(tmp_path: Path) -> None:
    """A star in a command is the shell's, and none of ours."""
    calls = [{"kind": "execute", "rawInput": {"command": c}} for c in ("rm *.o", "rm x; y.o")]
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"ask {json.dumps([calls[0], *calls])}") as turn:
            await session.answer((await turn.heard.question()).id, "allow_always")
            second = await turn.heard.question(2)
            assert second.detail == "rm x; y.o"
            await session.answer(second.id, "reject")
        assert turn.heard.text == "[y][y][n]"


UNTOLD = {"kind": "edit", "title": "Edit"}
LEAVE = {"kind": "execute", "rawInput": {"command": "make install", "unconfined": True}}


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (EDIT, {"kind": "edit", "rawInput": {"file_path": "b.txt"}}),
        (
            {"kind": "edit", "rawInput": {"file_path": "*"}},
            {"kind": "edit", "rawInput": {"file_path": "b.txt"}},
        ),
        (
            {"kind": "fetch", "rawInput": {"url": "https://example.org/a"}},
            {"kind": "fetch", "rawInput": {"url": "https://example.com/a"}},
        ),
        (
            {"kind": "fetch", "rawInput": {"url": "https://*/a"}},
            {"kind": "fetch", "rawInput": {"url": "https://example.com/a"}},
        ),
        (
            {"kind": "read", "rawInput": {"path": "/opt/a/x"}},
            {"kind": "read", "rawInput": {"path": "/opt/a/b/x"}},
        ),
        (UNTOLD, {"kind": "read", "rawInput": {"path": "/opt/a/x"}}),
        (UNTOLD, {**UNTOLD, "toolCallId": "another"}),
        (LEAVE, {"kind": "execute", "rawInput": {"command": "make clean", "unconfined": True}}),
    ],
)
async def test_an_always_is_for_nothing_wider_than_what_was_asked(
    tmp_path: Path, first: dict[str, object], other: dict[str, object]
) -> None:
    allowed = tuple(PermissionRule(tool=tool, action="allow") for tool in ("bash", "read"))
    async with Stage(tmp_path).running() as stage, stage.open(extra=allowed) as session:
        async with during(session, f"ask {json.dumps([first, other])}") as turn:
            await turn.heard.question()
            asked = 0
            while "[y]" not in turn.heard.text:
                for question in turn.heard.questions[asked:]:
                    asked += 1
                    await session.answer(question.id, "allow_always")
                await anyio.sleep(0.01)
            refused = await turn.heard.question(asked + 1)
            await session.answer(refused.id, "reject")
        assert turn.heard.text == "[y][n]"


async def test_an_always_for_an_address_is_for_its_site(tmp_path: Path) -> None:
    addresses = ("https://example.org/a", "https://EXAMPLE.org/b/c?d")
    calls = [{"kind": "fetch", "rawInput": {"url": address}} for address in addresses]
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"ask {json.dumps(calls)}") as turn:
            await session.answer((await turn.heard.question()).id, "allow_always")
        assert (turn.heard.text, len(turn.heard.questions)) == ("[y][y]", 1)


async def test_outside_is_a_question_of_its_own(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open(permissions="edit") as session:
        async with during(session, f"ask {json.dumps([AWAY])}") as turn:
            question = await turn.heard.question()
            assert (question.tool, question.detail) == ("external_directory", "/etc/motd")
            await session.answer(question.id, "reject")
        assert turn.heard.text == "[n]"


async def test_a_question_of_a_call_that_was_told_before_knows_its_input(tmp_path: Path) -> None:
    """Some agents name the call, and nothing else."""
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"tell {json.dumps(BASH)}") as turn:
            question = await turn.heard.question()
            assert (question.tool, question.detail) == ("bash", "make")
            await session.answer(question.id, "allow_once")
        assert turn.heard.text == "[y]"


async def test_a_cancelled_turn_takes_its_question_along(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"ask {json.dumps([BASH])}") as turn:
            await turn.heard.question()
            await session.cancel()
        assert turn.reason == "cancelled"
        assert turn.heard.text == "[cancelled]"


async def test_a_question_of_an_agent_that_dies_is_withdrawn(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"ask {json.dumps([BASH])}") as turn:
            question = await turn.heard.question()
            (agent,) = stage.at_work()
            os.kill(agent, 9)
        assert [gone.id for gone in turn.heard.withdrawn] == [question.id]


async def test_a_refusal_that_ends_the_agents_turn_is_told_as_such(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "--sulky")
    async with stage.running(), stage.open(permissions="readonly") as session:
        async with during(session, f"ask {json.dumps([BASH])}") as turn:
            pass
        assert isinstance(turn.error, PermissionDenied)
        assert "permission 'bash' was refused for 'make'" in str(turn.error)
