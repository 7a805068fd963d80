"""What may a call do without asking? Pure."""

import pytest

from goent.agent.agent_events import ToolKind
from goent.agent.agent_ports import PermissionNeed, ToolIntent
from goent.agent.tool_runner import PERMISSION_MODES, PermissionMode, SessionPermissions
from goent.domain.errors import RequestError

EDIT = PermissionNeed(permission="edit", patterns=("/p/a.py",), always=("/p/*",))
OUTSIDE = PermissionNeed(permission="outside", patterns=("/etc/hosts",), always=("/etc/hosts",))
GIT = PermissionNeed(permission="bash", patterns=("git status",), always=("git status *",))


def intent(need: PermissionNeed | None, kind: ToolKind = "edit") -> ToolIntent:
    return ToolIntent(kind=kind, title="", need=need)


@pytest.mark.parametrize("mode", PERMISSION_MODES)
def test_what_needs_nothing_is_allowed(mode: PermissionMode) -> None:
    assert SessionPermissions(mode).judge(intent(None)).action == "allow"


@pytest.mark.parametrize(
    ("mode", "need", "kind", "action"),
    [
        ("ask", EDIT, "edit", "ask"),
        ("ask", GIT, "execute", "ask"),
        ("ask", OUTSIDE, "read", "ask"),
        ("accept-edits", EDIT, "edit", "allow"),
        ("accept-edits", GIT, "execute", "ask"),
        ("accept-edits", OUTSIDE, "edit", "ask"),
        ("plan", EDIT, "edit", "deny"),
        ("plan", GIT, "execute", "deny"),
        ("plan", OUTSIDE, "read", "ask"),
        ("plan", OUTSIDE, "edit", "deny"),
    ],
)
def test_the_mode_decides(
    mode: PermissionMode, need: PermissionNeed, kind: ToolKind, action: str
) -> None:
    verdict = SessionPermissions(mode).judge(intent(need, kind))
    assert verdict.action == action
    assert bool(verdict.reason) == (action == "deny")


def test_an_always_covers_what_it_says_and_no_more() -> None:
    permits = SessionPermissions()
    permits.grant(GIT)
    for command, action in (
        ("git status", "allow"),
        ("git status --short", "allow"),
        ("git statusx", "ask"),
        ("git push", "ask"),
    ):
        need = PermissionNeed(permission="bash", patterns=(command,))
        assert permits.judge(intent(need)).action == action
    edit = PermissionNeed(permission="edit", patterns=("git status",))
    assert permits.judge(intent(edit)).action == "ask", "another permission"


def test_of_a_command_that_could_do_more_only_its_own_words_are_covered() -> None:
    permits = SessionPermissions()
    permits.grant(GIT)
    more = "git status; rm -rf /"
    need = PermissionNeed(permission="bash", patterns=(more,), always=(more,), exact=True)
    assert permits.judge(intent(need)).action == "ask"
    permits.grant(need)
    assert permits.judge(intent(need)).action == "allow"


def test_a_need_without_patterns_is_never_covered() -> None:
    permits = SessionPermissions()
    permits.grant(PermissionNeed(permission="mcp", patterns=("*",)))
    assert permits.judge(intent(PermissionNeed(permission="mcp", patterns=()))).action == "ask"


def test_a_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(RequestError, match="'yolo'"):
        SessionPermissions().set_mode("yolo")
