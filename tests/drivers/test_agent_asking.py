"""What is an agent's permission question about, and what do the rules say of it?"""

import json
from pathlib import Path
from typing import Any

import pytest
from agent_stage import AWAY, BASH, EDIT
from msgspec import UNSET, Raw

from goent.acp.agent_messages import ToolFields, ToolLocation
from goent.acp.message_parts import AcpDiff, AcpText, ToolContent
from goent.agents.agent_launch import refused_tools
from goent.agents.call_permissions import access_for_call
from goent.agents.worker_paths import WorkerPaths
from goent.domain.settings import PermissionAction, PermissionRule
from goent.domain.types import Preset
from goent.permissions.access_rules import decide_access
from goent.permissions.permission_rules import PRESET_RULES, rules_for

FETCH = {"kind": "fetch", "title": "x", "rawInput": {"url": "https://example.org/a"}}
READ = {"kind": "read", "title": "Read a.txt", "rawInput": {"path": "a.txt"}}
PEEK = {"kind": "read", "title": "Read", "locations": [{"path": "/etc/passwd"}]}
OTHER = {"kind": "other", "title": "deploy"}


def fields(call: dict[str, Any]) -> ToolFields:
    given = call.get("rawInput")
    return ToolFields(
        tool_call_id="c",
        kind=call.get("kind"),
        title=call.get("title"),
        locations=tuple(ToolLocation(path=each["path"]) for each in call.get("locations", ())),
        raw_input=UNSET if given is None else Raw(json.dumps(given).encode()),
    )


def judged(call: dict[str, Any], rules: tuple[PermissionRule, ...], cwd: Path) -> PermissionAction:
    """As the session does: everything has to be allowed."""
    verdicts = [
        decide_access(matter, rules) for matter in access_for_call(fields(call), WorkerPaths(cwd))
    ]
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
    tmp_path: Path, preset: Preset, verdicts: dict[str, PermissionAction]
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
    (matter,) = access_for_call(fields(call), WorkerPaths(tmp_path))
    assert (matter.permission, matter.patterns[0]) == ("bash", "rm -rf .")
    assert matter.always == ('{"command": ["rm", "-rf", "."]}',), "for this very call"
    (matter,) = access_for_call(fields(call | {"kind": "execute"}), WorkerPaths(tmp_path))
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
    tmp_path: Path, command: str, by_git: PermissionAction, by_no_rm: PermissionAction
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
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "allow", (
        "a rule for all commands covers it"
    )


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
    (matter,) = access_for_call(fields(call), WorkerPaths(tmp_path))
    assert matter.patterns == ("git log ; rm x",)
    assert judged(call, GIT, tmp_path) == "ask"


def test_a_command_that_wants_to_leave_its_confinement_is_outside(tmp_path: Path) -> None:
    call = {"kind": "execute", "rawInput": {"command": "make install", "unconfined": True}}
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "ask"
    assert judged(call, rules_for("readonly", ()), tmp_path) == "deny"
    away, _ = access_for_call(fields(call), WorkerPaths(tmp_path))
    assert (away.permission, away.detail) == ("external_directory", "make install")


@pytest.mark.parametrize("path", ["../x", "/etc/x", "link/x", "a/../../x", "~/../../x\0"])
def test_a_path_that_leads_outside_is_outside(tmp_path: Path, path: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    call = {"kind": "edit", "rawInput": {"file_path": path}}
    away, edit = access_for_call(fields(call), WorkerPaths(inside))
    assert (away.permission, edit.permission) == ("external_directory", "edit")
    assert judged(call, PRESET_RULES["auto"], inside) == "ask"


UNTOLD: list[dict[str, object]] = [
    {},
    {"path": ""},
    {"path": 5},
    {"where": "/etc/motd"},
    {"input": {"path": "/etc/motd"}},
]


@pytest.mark.parametrize("given", UNTOLD)
@pytest.mark.parametrize("kind", ["read", "edit", "delete", "move"])
def test_a_path_that_nobody_could_read_counts_as_outside(
    tmp_path: Path, kind: str, given: dict[str, object]
) -> None:
    call = {"kind": kind, "title": "x", "rawInput": given}
    away, _ = access_for_call(fields(call), WorkerPaths(tmp_path))
    assert (away.permission, away.patterns) == ("external_directory", ("/*",))
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "ask"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"source": "a", "destination": "b"}, "allow"),
        ({"old_path": "a", "new_path": "b/c"}, "allow"),
        ({"from": "a", "to": "/etc/b"}, "ask"),
        ({"from": "/etc/b", "to": "a"}, "ask"),
        ({"path": "a", "target": "../b"}, "ask"),
        ({"src": "a", "dst": "~/b"}, "ask"),
        ({"files": ["a", "b", "/etc/c"]}, "ask"),
        ({"path": "a"}, "ask"),
        ({"path": "a", "source": "./a"}, "ask"),
    ],
)
def test_a_move_is_inside_if_both_of_its_ends_are(
    tmp_path: Path, given: dict[str, object], found: PermissionAction
) -> None:
    assert judged({"kind": "move", "rawInput": given}, PRESET_RULES["auto"], tmp_path) == found


@pytest.mark.parametrize(
    "name",
    [
        *("file_path", "filePath", "target_file", "targetFile", "absolute_path", "absolutePath"),
        *("file", "filename", "uri", "url", "paths", "target_path"),
    ],
)
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.txt", "allow"),
        ("INSIDE/a%20b.txt", "allow"),
        ("file://INSIDE/a%20b.txt", "allow"),
        ("file://localhost/INSIDE/a", "allow"),
        ("~/x", "ask"),
        ("~root/x", "ask"),
        ("file:///etc/motd", "ask"),
        ("FILE:/etc/motd", "ask"),
        ("file://INSIDE/%2e%2e/x", "ask"),
        ("file://INSIDE/a?/../../x", "ask"),
        ("file://host/INSIDE/a", "ask"),
        ("ssh://host/x", "ask"),
        ("vscode-remote://x/a", "ask"),
    ],
)
def test_a_path_is_understood_however_an_agent_names_and_writes_it(
    tmp_path: Path, name: str, path: str, found: PermissionAction
) -> None:
    call = {"kind": "edit", "rawInput": {name: path.replace("INSIDE", str(tmp_path))}}
    assert judged(call, PRESET_RULES["auto"], tmp_path) == found


def test_an_address_that_is_a_file_is_outside_whatever_fetches_it(tmp_path: Path) -> None:
    call = {"kind": "fetch", "rawInput": {"url": "file:///etc/motd"}}
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "ask"
    call = {"kind": "fetch", "rawInput": {"url": "https://example.org"}}
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "allow"


OWN: list[dict[str, object]] = [
    {"kind": "read", "rawInput": {"file_path": "a.txt"}},
    {"kind": "edit", "locations": [{"path": "a.txt"}]},
    {"kind": "search", "rawInput": {"pattern": "/etc", "path": "src"}},
    {"kind": "search", "rawInput": {"pattern": "x"}},
    {"kind": "think", "rawInput": {"todos": []}},
    {"kind": "execute", "rawInput": {"command": "make"}},
    {"kind": "fetch", "rawInput": {"uri": "https://example.org"}},
]


@pytest.mark.parametrize("call", OWN)
def test_what_is_told_and_inside_is_no_question_of_outside(
    tmp_path: Path, call: dict[str, object]
) -> None:
    assert len(access_for_call(fields(call), WorkerPaths(tmp_path))) == 1


def test_a_command_elsewhere_and_a_diff_elsewhere_are_outside(tmp_path: Path) -> None:
    call = {"kind": "execute", "rawInput": {"command": "ls", "cwd": "/"}}
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "ask"
    diff = ToolFields(
        tool_call_id="c", kind="edit", content=(AcpDiff(path="/etc/motd", new_text="hi\n"),)
    )
    away, _ = access_for_call(diff, WorkerPaths(tmp_path))
    assert away.patterns == ("/etc/*",) and away.detail == "/etc/motd\n@@ -0,0 +1 @@\n+hi"


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


@pytest.mark.parametrize(("title", "permission"), [("Bash", "bash"), ("deploy", "tool")])
def test_what_is_told_as_text_alone_is_shown_and_an_always_covers_no_more(
    tmp_path: Path, title: str, permission: str
) -> None:
    content = (ToolContent(content=AcpText(text="Running: make")),)
    call = ToolFields(tool_call_id="c", title=title, content=content)
    (matter,) = access_for_call(call, WorkerPaths(tmp_path))
    told = f"{title} Running: make"
    assert (matter.permission, matter.detail, matter.always) == (permission, told, (told,))


def test_an_edit_that_names_no_file_may_be_anywhere(tmp_path: Path) -> None:
    call = {"title": "Write"}
    assert judged(call, rules_for("readonly", ()), tmp_path) == "deny"
    assert judged(call, rules_for("auto", ()), tmp_path) == "ask"


@pytest.mark.parametrize(
    "raw", ["null", "5", '"make"', "[1]", "{}", '{"command": 5}', '{"path": {}}']
)
def test_input_of_any_shape_is_taken(tmp_path: Path, raw: str) -> None:
    call = ToolFields(tool_call_id="c", kind="execute", title="make", raw_input=Raw(raw.encode()))
    (matter,) = access_for_call(call, WorkerPaths(tmp_path))
    assert (matter.permission, matter.patterns) == ("bash", ("make",))


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/pre-commit", "sub/.git/config", ".GOENT/config.yaml", ".vscode/tasks.json"),
        *("hooks/x", "./a/../.envrc", ".cursor/x", "file://INSIDE/.git/config", "~/.claude/x"),
    ],
)
@pytest.mark.parametrize("kind", ["edit", "delete", "other", "read"])
def test_a_change_of_a_guarded_file_is_asked_whatever_allows_it(
    tmp_path: Path, path: str, kind: str
) -> None:
    """Whatever a call says of itself, a difference is a change."""
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "hooks").symlink_to(".git/hooks")
    (tmp_path / "plain").mkdir()
    (tmp_path / ".cursor").symlink_to("plain")
    named = path.replace("INSIDE", str(tmp_path))
    call = ToolFields(tool_call_id="c", kind=kind, content=(AcpDiff(path=named, new_text="x"),))
    everything = rules_for("auto", (PermissionRule(tool="*", action="allow"),))
    matter = access_for_call(call, WorkerPaths(tmp_path))[-1]
    assert decide_access(matter, everything) == "ask" and "run other programs" in matter.reason
    assert decide_access(matter, rules_for("readonly", ())) == "deny"


@pytest.mark.parametrize("call", [READ, {"kind": "read", "rawInput": {"path": ".git/config"}}])
def test_looking_at_a_guarded_file_is_free(tmp_path: Path, call: dict[str, Any]) -> None:
    assert judged(call, PRESET_RULES["auto"], tmp_path) == "allow"


def test_a_worker_inside_a_guarded_folder_is_asked_only_for_what_lies_below(tmp_path: Path) -> None:
    below = tmp_path / ".goent" / "worktrees" / "w1"
    below.mkdir(parents=True)
    assert judged(EDIT, PRESET_RULES["auto"], below) == "allow"
    guarded = {"kind": "edit", "rawInput": {"file_path": ".git"}}
    assert judged(guarded, PRESET_RULES["auto"], below) == "ask"


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (".github", "workflows/ci.yml"),
        (".github/workflows", "ci.yml"),
        (".git/hooks", "pre-commit"),
        (".goent", "config.yaml"),
        (".claude", "settings.json"),
    ],
)
def test_a_guarded_folder_is_guarded_for_a_worker_in_it(
    tmp_path: Path, folder: str, name: str
) -> None:
    (tmp_path / ".git").mkdir()
    below = tmp_path / folder
    below.mkdir(parents=True, exist_ok=True)
    assert (
        judged({"kind": "edit", "rawInput": {"file_path": name}}, PRESET_RULES["auto"], below)
        == "ask"
    )


@pytest.mark.parametrize(
    ("link", "leads_to", "written"),
    [
        (".envrc", "tools/env.sh", "tools/env.sh"),
        (".claude", "tools/claude", "tools/claude/settings.json"),
        (".github", "tools/forge", "tools/forge/workflows/ci.yml"),
        (".github/workflows", "ci", "ci/new.yml"),
        (".husky/pre-commit", "tools/hook.sh", "tools/hook.sh"),
        (".git/hooks/pre-commit", "tools/hook.sh", "tools/hook.sh"),
    ],
)
def test_what_a_guarded_link_leads_to_is_guarded(
    tmp_path: Path, link: str, leads_to: str, written: str
) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / written).parent.mkdir(parents=True)
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / leads_to)
    call = ToolFields(tool_call_id="c", kind="edit", content=(AcpDiff(path=written, new_text="x"),))
    matter = access_for_call(call, WorkerPaths(tmp_path))[-1]
    assert decide_access(matter, rules_for("auto", ())) == "ask"
    assert f"{link!r} leads there" in matter.reason
    assert judged(EDIT, PRESET_RULES["auto"], tmp_path) == "allow"


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (rules_for("readonly", ()), ("Bash", "Edit", "Write")),
        (rules_for("ask", ()), ()),
        (
            rules_for("readonly", (PermissionRule(tool="bash", action="allow"),)),
            ("Bash", "Edit", "Write"),
        ),
        (rules_for("auto", (PermissionRule(tool="bash", action="deny"),)), ("Bash",)),
        (rules_for("auto", (PermissionRule(tool="bash", pattern="rm *", action="deny"),)), ()),
        (
            rules_for(
                "auto",
                (
                    PermissionRule(tool="*", action="deny"),
                    PermissionRule(tool="grep", pattern="src/*", action="allow"),
                    PermissionRule(tool="read", action="ask"),
                ),
            ),
            ("Bash", "Edit", "Write", "Glob", "TodoWrite"),
        ),
    ],
)
def test_the_own_agent_does_not_offer_what_every_call_of_is_refused(
    rules: tuple[PermissionRule, ...], refused: tuple[str, ...]
) -> None:
    assert refused_tools(rules) == refused
