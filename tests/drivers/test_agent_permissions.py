"""What an agent asks for is judged by the worker's rules; what they leave open, by its owner."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from agent_stage import Stage, ask, during
from msgspec import UNSET, Raw

from goent.acp.asks import Cancelled, PermissionOption, PermissionRequest, Selected
from goent.acp.content import Diff
from goent.acp.updates import Location, ToolFields
from goent.domain.errors import PermissionDenied, RequestError
from goent.domain.settings import Action, PermissionRule
from goent.domain.types import Answer, Preset
from goent.drivers.agent.asking import Ground, matters, verdict
from goent.drivers.questions import outcome
from goent.policy.permissions import PRESETS, rules_for

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

EDIT = {"kind": "edit", "title": "Edit a.txt", "rawInput": {"file_path": "a.txt"}}
BASH = {"kind": "execute", "title": "make", "rawInput": {"command": "make"}}
FETCH = {"kind": "fetch", "title": "x", "rawInput": {"url": "https://example.org/a"}}
READ = {"kind": "read", "title": "Read a.txt", "rawInput": {"path": "a.txt"}}
AWAY = {"kind": "edit", "title": "Edit", "locations": [{"path": "/etc/motd"}]}
PEEK = {"kind": "read", "title": "Read", "locations": [{"path": "/etc/passwd"}]}
OTHER = {"kind": "other", "title": "deploy"}


def fields(call: dict[str, Any]) -> ToolFields:
    given = call.get("rawInput")
    return ToolFields(
        tool_call_id="c",
        kind=call.get("kind"),
        title=call.get("title"),
        locations=tuple(Location(path=each["path"]) for each in call.get("locations", ())),
        raw_input=UNSET if given is None else Raw(json.dumps(given).encode()),
    )


def judged(call: dict[str, Any], rules: tuple[PermissionRule, ...], cwd: Path) -> Action:
    """As the session does: everything has to be allowed."""
    verdicts = [verdict(matter, rules) for matter in matters(fields(call), Ground(cwd))]
    if "deny" in verdicts:
        return "deny"
    return "ask" if "ask" in verdicts else "allow"


@pytest.mark.parametrize(
    ("preset", "verdicts"),
    [
        ("readonly", {"edit": "deny", "bash": "deny", "fetch": "ask", "away": "deny"}),
        ("ask", {"edit": "ask", "bash": "ask", "fetch": "ask", "away": "ask"}),
        ("edit", {"edit": "allow", "bash": "ask", "fetch": "ask", "away": "ask"}),
        ("auto", {"edit": "allow", "bash": "allow", "fetch": "allow", "away": "ask"}),
    ],
)
def test_the_presets_mean_for_agents_what_they_mean_for_all(
    tmp_path: Path, preset: Preset, verdicts: dict[str, Action]
) -> None:
    rules = rules_for(preset, ())
    calls = {"edit": EDIT, "bash": BASH, "fetch": FETCH, "away": AWAY}
    assert {name: judged(call, rules, tmp_path) for name, call in calls.items()} == verdicts
    assert judged(READ, rules, tmp_path) == "allow", "looking inside is free"
    assert judged(PEEK, rules, tmp_path) == "ask"
    assert judged(OTHER, rules, tmp_path) == "ask", "nobody can tell what it does"


@pytest.mark.parametrize("kind", ["read", "think", "edit", "other", None])
def test_a_command_is_bash_whatever_its_kind_is_said_to_be(
    tmp_path: Path, kind: str | None
) -> None:
    call = {"kind": kind, "rawInput": {"command": ["rm", "-rf", "."]}}
    (matter,) = matters(fields(call), Ground(tmp_path))
    assert (matter.permission, matter.patterns) == ("bash", ("rm -rf .",))
    assert matter.always == ("rm -rf .",), "an always for a command is for this very command"


GIT = rules_for("ask", (PermissionRule(tool="bash", pattern="git *", action="allow"),))
NO_RM = rules_for("auto", (PermissionRule(tool="bash", pattern="rm *", action="deny"),))


@pytest.mark.parametrize(
    ("command", "by_git", "by_no_rm"),
    [
        ("git status", "allow", "allow"),
        ("git log --format='%h; %s' | git patch-id", "allow", "allow"),
        ("git status > /dev/null 2>&1 && git diff", "allow", "allow"),
        ("git status; rm -rf .", "ask", "deny"),
        ("git status && rm x", "ask", "deny"),
        ("git status\nrm x", "ask", "deny"),
        ("git status & rm x", "ask", "deny"),
        ("git status | (rm x)", "ask", "deny"),
        ('git commit -m "$(rm x)"', "ask", "allow"),
        ("git commit -m `rm x`", "ask", "allow"),
        ("git diff > ~/.bashrc", "ask", "allow"),
        ("git diff <(rm x)", "ask", "deny"),
        ("git commit -m 'it", "ask", "allow"),
        ("git commit -m 'a;b' -m \"c;d\" -m e\\;f", "allow", "allow"),
        ("git commit -m 'rm $(x)'", "allow", "allow"),
    ],
)
def test_every_command_of_a_line_is_judged(
    tmp_path: Path, command: str, by_git: Action, by_no_rm: Action
) -> None:
    call = {"kind": "execute", "rawInput": {"command": command}}
    assert judged(call, GIT, tmp_path) == by_git
    assert judged(call, NO_RM, tmp_path) == by_no_rm


@pytest.mark.parametrize(
    "command",
    [
        *("git status &2>/dev/null touch pwned", "git status &>/dev/null touch pwned"),
        *("git status & >/dev/null touch x", "git status |& touch x", "git status &2>&1 touch x"),
        *("git log >&1x", "git log >&1$x", 'git log >&1"x"', "git log 2>&1\\x", "git log >&1-"),
        *("git log >/dev/null.txt", "git log >/dev/null\\\nx", 'git log >/dev/null"x"'),
        *("git log >>x", "git log >|x", "git log &>x", "git log <>x", "git log >& x"),
        "git status # don't\ntouch pwned # won't",
        "git status \\\n# don't\ntouch pwned # won't",
        "git status;# don't\ntouch pwned # won't",
        "git status | git log 2>&1 # don't\ntouch pwned # won't",
        "git commit -F - <<EOF\nit's $(touch pwned)'\nEOF",
        *("git log <<<x", "git log >(touch pwned)", "git log <(touch pwned)"),
        *('git log "$\\\n(touch pwned)"', "git log $\\\n(touch pwned)", "git log $\\\n'a\\'; x '"),
        *(
            "git log $'a\\'; touch pwned; \\''",
            'git log $"a"',
            'git log "${x@P}"',
            'git log "$[x]"',
        ),
        *("git log ${x@P}", "git log $[x]", "git {log,status}", "{ git log; touch x; }"),
        *("git log\rtouch pwned", "git log '\x03\rtouch pwned'", 'git log "$\0(touch x)"'),
        *("git() { touch x; }; git log", "git(){ git|git& };git", "function git { touch x; }"),
        *("GIT_PAGER=x git log", "time git log; touch x", "exec git log", "coproc git log"),
        *("! git log", "if git log; then touch x; fi", "case x in git) touch x;; esac"),
        *("git log &! touch x", "git log;& touch x", "git log ;; touch x", "eval git log"),
        *("git log \\", "git log '", 'git log "a', "\u2003git log", "alias git=touch; git x"),
    ],
)
def test_what_a_shell_may_read_otherwise_is_asked(tmp_path: Path, command: str) -> None:
    call = {"kind": "execute", "rawInput": {"command": command}}
    assert judged(call, GIT, tmp_path) == "ask"
    assert judged(call, PRESETS["auto"], tmp_path) == "allow", "a rule for all commands covers it"


@pytest.mark.parametrize(
    "command",
    [
        *("git status 2>&1", "git log 2>/dev/null | git patch-id", "git log >&2; git status"),
        *("git log &>/dev/null", "git log &> /dev/null && git diff", "git log >/dev/null 2>&1"),
        *("git show HEAD:a#b", "git commit -m '# a'", 'git commit -m "closes #7"', "git log \\#"),
        *("git log \\\n  --oneline", 'git commit -m "\\$(x)"', 'git add "$file" $other'),
        *("(git log)", "git log &", "git commit -m 'one\ntwo; three'"),
    ],
)
def test_a_line_that_runs_nothing_else_needs_no_question(tmp_path: Path, command: str) -> None:
    call = {"kind": "execute", "rawInput": {"command": command}}
    assert judged(call, GIT, tmp_path) == "allow"


def test_the_arguments_of_a_command_are_a_part_of_it(tmp_path: Path) -> None:
    call = {"kind": "execute", "rawInput": {"command": "git", "args": ["log", ";", "rm", "x"]}}
    (matter,) = matters(fields(call), Ground(tmp_path))
    assert matter.patterns == ("git log ; rm x",)
    assert judged(call, GIT, tmp_path) == "ask"


def test_a_command_that_wants_to_leave_its_confinement_is_outside(tmp_path: Path) -> None:
    call = {"kind": "execute", "rawInput": {"command": "make install", "unconfined": True}}
    assert judged(call, PRESETS["auto"], tmp_path) == "ask"
    assert judged(call, rules_for("readonly", ()), tmp_path) == "deny"
    away, _ = matters(fields(call), Ground(tmp_path))
    assert (away.permission, away.detail) == ("external_directory", "make install")


@pytest.mark.parametrize("path", ["../x", "/etc/x", "link/x", "a/../../x", "~/../../x\0"])
def test_a_path_that_leads_outside_is_outside(tmp_path: Path, path: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    call = {"kind": "edit", "rawInput": {"file_path": path}}
    away, edit = matters(fields(call), Ground(inside))
    assert (away.permission, edit.permission) == ("external_directory", "edit")
    assert judged(call, PRESETS["auto"], inside) == "ask"


def test_a_command_elsewhere_and_a_diff_elsewhere_are_outside(tmp_path: Path) -> None:
    call = {"kind": "execute", "rawInput": {"command": "ls", "cwd": "/"}}
    assert judged(call, PRESETS["auto"], tmp_path) == "ask"
    diff = ToolFields(
        tool_call_id="c", kind="edit", content=(Diff(path="/etc/motd", new_text="hi\n"),)
    )
    away, _ = matters(diff, Ground(tmp_path))
    assert away.patterns == ("/etc/*",) and away.detail == "/etc/motd\n+hi"


def test_edits_are_named_from_the_top_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    below = tmp_path / "sub"
    below.mkdir()
    rules = rules_for("edit", (), "sub")
    assert judged(EDIT, rules, below) == "allow"
    assert judged({"kind": "edit", "rawInput": {"path": "../b.txt"}}, rules, below) == "ask"
    docs = PermissionRule(tool="edit", pattern="sub/docs/*", action="deny")
    held = rules_for("edit", (docs,), "sub")
    assert judged({"kind": "edit", "rawInput": {"path": "docs/x.md"}}, held, below) == "deny"


@pytest.mark.parametrize(
    "raw", ["null", "5", '"make"', "[1]", "{}", '{"command": 5}', '{"path": {}}']
)
def test_input_of_any_shape_is_taken(tmp_path: Path, raw: str) -> None:
    call = ToolFields(tool_call_id="c", kind="execute", title="make", raw_input=Raw(raw.encode()))
    (matter,) = matters(call, Ground(tmp_path))
    assert (matter.permission, matter.patterns) == ("bash", ("make",))


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
    answer: Answer | None, kinds: tuple[str, ...], chosen: str | None
) -> None:
    request = PermissionRequest(
        session_id="s",
        tool_call=ToolFields(tool_call_id="c"),
        options=tuple(PermissionOption(option_id=kind, kind=kind) for kind in kinds),
    )
    expected = Selected(option_id=chosen) if chosen else Cancelled()
    assert outcome(request, answer) == expected


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
        other = {"kind": "edit", "rawInput": {"file_path": "b.txt"}}
        async with during(session, f"ask {json.dumps([EDIT, other, BASH, BASH])}") as turn:
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
        async with during(session, f"ask {json.dumps([other])}") as turn:
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
