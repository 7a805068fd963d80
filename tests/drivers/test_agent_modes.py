"""Which of an agent's own modes is chosen, and what it does unasked nevertheless."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_stage import EDIT, Stage, ask, during
from msgspec import Raw

from goent.acp.agent_messages import ToolFields
from goent.acp.client_messages import NewSession, SessionMode
from goent.acp.message_parts import AcpDiff
from goent.agents import call_permissions
from goent.agents.call_permissions import changed_names, list_files
from goent.agents.oversight import find_mode_offer, fitting_mode
from goent.domain.errors import PermissionBypassed, PermissionDenied
from goent.domain.settings import PermissionRule
from goent.domain.types import Preset
from goent.permissions.access_rules import OversightLevel, oversight_level
from goent.permissions.permission_rules import rules_for

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

KIMI = "default plan auto yolo"
CLAUDE = "default acceptEdits plan dontAsk bypassPermissions"
CODEX = "read-only auto full-access"
GEMINI = "default auto_edit yolo plan"
GOOSE = "auto approve smart_approve chat"
OPENCODE = "build plan"
ZED = "ask architect code"
URLS = "https://example.org/modes#agent https://example.org/modes#plan https://example.org/modes#autopilot"


@pytest.mark.parametrize(
    ("modes", "readonly", "asking"),
    [
        (KIMI, "plan", "default"),
        (CLAUDE, "plan", "default"),
        (CODEX, "read-only", "read-only"),
        (GEMINI, "plan", "default"),
        (GOOSE, "approve", "approve"),
        (OPENCODE, "plan", None),
        (ZED, "ask", "ask"),
        (URLS, "https://example.org/modes#plan", None),
        ("yolo auto-plan plan-and-accept full-read-only", None, None),
        ("always-approve approve-all no-ask dont-ask skip-approval", None, None),
        ("autoReadOnly autoplan bypassPlan YOLO_plan", None, None),
        ("planet explanation task basket", None, None),
        ("ReadOnly Build", "ReadOnly", "ReadOnly"),
        ("READ_ONLY", "READ_ONLY", "READ_ONLY"),
        ("", None, None),
    ],
)
def test_a_mode_is_chosen_by_what_its_name_says(
    modes: str, readonly: str | None, asking: str | None
) -> None:
    offered = [SessionMode(id=name, name="") for name in modes.split()]
    for level, expected in (("readonly", readonly), ("asking", asking), ("free", None)):
        found = fitting_mode(offered, _care(level))
        assert (found and found.id) == expected, level


@pytest.mark.parametrize(
    ("identity", "name", "fits"),
    [
        ("m1", "Plan Mode", True),
        ("m1", "Always Ask", True),
        ("m1", "Always Allow", False),
        ("plan", "Plan, then do everything", False),
        ("default", "Don't Ask", False),
        ("m1", "Read Only", True),
        ("m1", "Read & write, only here", False),
    ],
)
def test_name_and_id_must_both_be_harmless(identity: str, name: str, *, fits: bool) -> None:
    found = fitting_mode([SessionMode(id=identity, name=name)], "readonly")
    assert (found is not None) == fits


@pytest.mark.parametrize(
    ("preset", "level"),
    [("readonly", "readonly"), ("ask", "asking"), ("edit", "asking"), ("auto", "free")],
)
def test_rules_say_how_much_an_agent_is_held_back(preset: Preset, level: OversightLevel) -> None:
    assert oversight_level(rules_for(preset, ())) == level
    deny = PermissionRule(tool="edit", action="deny")
    assert oversight_level(rules_for(preset, (deny,))) == "readonly"


@pytest.mark.parametrize("raw", [b"null", b"5", b"{}", b'{"currentModeId": 1}'])
def test_modes_of_any_shape_are_taken(raw: bytes) -> None:
    assert find_mode_offer(NewSession(session_id="s", modes=Raw(raw))) is None


@pytest.mark.parametrize("by", ["list", "option"])
@pytest.mark.parametrize(
    ("preset", "mode"),
    [("readonly", "plan"), ("ask", "default"), ("edit", "default"), ("auto", "yolo")],
)
async def test_an_agent_is_put_into_the_mode_that_fits(
    tmp_path: Path, preset: Preset, mode: str, by: str
) -> None:
    stage = Stage(tmp_path, "--modes", "yolo,default,plan", "--modes-by", by)
    async with stage.running(), stage.open(permissions=preset) as session:
        heard = await ask(session, "mode yolo")
        assert heard.text == mode
        told = [notice.text for notice in heard.notices]
        assert told == ([f"actor works in its mode {mode!r}"] if preset != "auto" else [])
        heard = await ask(session, "mode")
        assert heard.text == mode, "it had left the mode by itself, and was put back"
        assert not heard.notices


async def test_a_mode_that_was_not_taken_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "--modes", "yolo,plan", "--stubborn", "--modes-by", "option")
    async with stage.running(), stage.open(permissions="readonly") as session:
        heard = await ask(session, "mode")
        assert heard.text == "yolo"
        (notice,) = heard.notices
        assert notice.text == "actor was asked to use its mode 'plan' and is in 'yolo'"


@pytest.mark.parametrize("flags", [(), ("--modes", "yolo,build")])
async def test_an_agent_without_such_a_mode_is_told_of(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    async with Stage(tmp_path, *flags).running() as stage, stage.open() as session:
        (notice,) = (await ask(session, "say hi")).notices
        assert "no mode of its own that fits" in notice.text
        assert ("yolo, build" if flags else "none") in notice.text


# What it does unasked


def done(**fields: object) -> str:
    return f"act {json.dumps([{'status': 'pending', **fields}, {'status': 'completed'}])}"


WROTE = {"kind": "edit", "title": "Write", "rawInput": {"file_path": "a.txt"}}
RAN = {"kind": "execute", "title": "Shell", "rawInput": {"command": "make"}}
DIFF = {"kind": "other", "content": [{"type": "diff", "path": "a.txt", "newText": "x"}]}
SAID_READ = {**DIFF, "kind": "read"}
MOVED = {"kind": "move", "rawInput": {"source": "a", "destination": "b"}}
AWAY = {"kind": "edit", "rawInput": {"file_path": "../a.txt"}}


@pytest.mark.parametrize(
    ("preset", "call"),
    [
        *((preset, call) for preset in ("readonly", "ask") for call in (WROTE, DIFF, SAID_READ)),
        *((preset, RAN) for preset in ("readonly", "ask", "edit")),
        *(("readonly", MOVED), ("ask", MOVED), ("edit", AWAY)),
    ],
)
async def test_what_it_did_unasked_ends_the_turn(
    tmp_path: Path, preset: Preset, call: dict[str, Any]
) -> None:
    async with Stage(tmp_path).running() as stage, stage.open(permissions=preset) as session:
        async with during(session, done(**call)) as turn:
            pass
        assert isinstance(turn.error, PermissionBypassed)
        assert (turn.error.kind, turn.error.retryable) == ("permission_bypassed", False)
        assert any(word in str(turn.error) for word in ("edit '", "bash 'make'", "directory '"))
        assert turn.heard.ended_tools, "what it told is kept"
        assert (await ask(session, "say on")).text == "on", "the worker can be told more"


async def test_an_agent_that_does_not_stop_then_is_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "--deaf", grace=1.0)
    async with stage.running(), stage.open() as session:
        async with during(session, done(**RAN)) as turn:
            pass
        assert isinstance(turn.error, PermissionBypassed)


@pytest.mark.parametrize(
    ("preset", "call"),
    [
        *(("edit", WROTE), ("edit", DIFF), ("auto", WROTE), ("auto", RAN), ("auto", AWAY)),
        ("readonly", {"kind": "read", "rawInput": {"path": "a.txt"}}),
        ("readonly", {"kind": "search", "rawInput": {"pattern": "x"}}),
        ("readonly", {"kind": "other", "title": "notes"}),
        ("readonly", {**WROTE, "status": "failed"}),
    ],
)
async def test_what_a_rule_allows_or_was_only_looked_at_is_no_bypass(
    tmp_path: Path, preset: Preset, call: dict[str, Any]
) -> None:
    updates = [{"status": "pending", **call}, {"status": call.get("status", "completed")}]
    async with Stage(tmp_path).running() as stage, stage.open(permissions=preset) as session:
        await ask(session, f"call {json.dumps(updates)}")


async def test_what_was_asked_and_allowed_may_be_done(tmp_path: Path) -> None:
    """By the call's name, by what it is about under another name, and by an always."""
    completed = [{**EDIT, "toolCallId": name, "status": "completed"} for name in ("c0", "other")]
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"then {json.dumps([[EDIT], completed])}") as turn:
            await session.answer((await turn.heard.question()).id, "allow_always")
        assert (turn.reason, turn.error) == ("end", None)
        await ask(session, f"call {json.dumps(completed)}")


async def test_what_was_asked_and_refused_may_not(tmp_path: Path) -> None:
    completed = [{**EDIT, "toolCallId": "c0", "status": "completed"}]
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"then {json.dumps([[EDIT], completed])}") as turn:
            await session.answer((await turn.heard.question()).id, "reject")
        assert isinstance(turn.error, PermissionBypassed)


@pytest.mark.parametrize("preset", ["readonly", "ask"])
async def test_a_file_that_changed_although_nothing_was_told_fails_the_turn(
    tmp_path: Path, preset: Preset
) -> None:
    async with Stage(tmp_path).running() as stage, stage.open(permissions=preset) as session:
        assert (await ask(session, "say hi")).text == "hi"
        for path in ("sub/made.txt", "sub/made.txt", ".git/hooks/pre-commit"):
            async with during(session, f"make {stage.project / path}") as turn:
                pass
            assert isinstance(turn.error, PermissionBypassed) and path in str(turn.error)
            assert turn.heard.text == "looked around", "what it said is kept"


async def test_where_edits_are_allowed_a_changed_file_is_no_matter(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open(permissions="edit") as session:
        heard = await ask(session, f"make {stage.project / 'b.txt'}")
        assert len(heard.notices) == 1, "of its mode"


async def test_where_others_work_too_it_is_told_and_fails_nobody(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.shared = True
    async with stage.running(), stage.open(permissions="readonly") as session:
        heard = await ask(session, f"make {stage.project / 'a.txt'}")
        assert any("by actor or by others" in notice.text for notice in heard.notices)


def test_a_listing_sees_what_came_went_and_changed(tmp_path: Path) -> None:
    for name in ("kept", "grown", "gone", ".git/objects/x", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("/")
    before = list_files(tmp_path)
    (tmp_path / "grown").write_text("xy")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").mkdir()
    (tmp_path / ".git/index").write_text("git looks around")
    (tmp_path / ".git/objects/y").write_text("x")
    (tmp_path / ".git/config").write_text("[core]\n")
    after = list_files(tmp_path)
    assert before and after
    assert changed_names(before, after) == (".git/config", "gone", "grown", "new")


def test_of_a_tree_that_is_too_large_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_permissions, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / str(number)).touch()
    assert list_files(tmp_path) is None


# Words with a no


async def test_words_that_end_a_turn_go_with_the_next_prompt(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "--sulky")
    async with stage.running(), stage.open() as session:
        async with during(session, f"ask {json.dumps([EDIT])}") as turn:
            await session.answer((await turn.heard.question()).id, "reject", "use b.txt")
        assert isinstance(turn.error, PermissionDenied)
        heard = await ask(session, "say on")
        assert heard.text == "on"
        assert (await ask(session, "history")).text.splitlines()[0].endswith("use b.txt")


async def test_words_that_an_agent_cannot_hear_are_told_to_be_unheard(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, f"ask {json.dumps([EDIT])}") as turn:
            asked = await turn.heard.question()
            assert not await session.answer(asked.id, "reject", "use b.txt")
        assert turn.heard.text == "[n]" and turn.reason == "end"
        assert "without your message" in turn.heard.notices[-1].text


def test_a_difference_is_an_act_whatever_its_kind() -> None:
    call = ToolFields(tool_call_id="c", kind="think", content=(AcpDiff(path="a", new_text="x"),))
    assert call_permissions.is_action(call)


def _care(word: str) -> OversightLevel:
    return "readonly" if word == "readonly" else "asking" if word == "asking" else "free"
