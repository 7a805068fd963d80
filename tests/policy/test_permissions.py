import pytest

from goent.domain.settings import PermissionRule, PermissionSettings
from goent.domain.types import Isolation, Preset
from goent.permissions.permission_rules import preset_for, rules_for


def decision(preset: Preset, tool: str, *extra: PermissionRule) -> str:
    """As OpenCode decides: the last rule that names the tool."""
    return [rule.action for rule in rules_for(preset, extra) if rule.tool == tool][-1]


@pytest.mark.parametrize(
    ("preset", "edit", "bash"),
    [
        ("readonly", "deny", "deny"),
        ("ask", "ask", "ask"),
        ("edit", "allow", "ask"),
        ("auto", "allow", "allow"),
    ],
)
def test_a_preset_says_what_is_free(preset: Preset, edit: str, bash: str) -> None:
    assert (decision(preset, "edit"), decision(preset, "bash")) == (edit, bash)


@pytest.mark.parametrize("preset", ["readonly", "ask", "edit", "auto"])
def test_outside_the_directory_is_always_asked(preset: Preset) -> None:
    assert decision(preset, "external_directory") == "ask"


def test_a_configured_rule_wins_over_the_preset() -> None:
    rule = PermissionRule(tool="bash", pattern="make *", action="allow")
    assert decision("ask", "bash", rule) == "allow"


@pytest.mark.parametrize("tool", ["edit", "*"])
def test_no_rule_opens_what_readonly_closes(tool: str) -> None:
    rules = rules_for("readonly", [PermissionRule(tool=tool, action="allow")])
    last = [rule.action for rule in rules if rule.tool in ("edit", "*")][-1]
    assert last == "deny"


@pytest.mark.parametrize(
    ("isolation", "expected"), [("shared", "ask"), ("dedicated", "ask"), ("worktree", "edit")]
)
def test_by_default_it_depends_on_the_harm_that_could_be_done(
    isolation: Isolation, expected: Preset
) -> None:
    assert preset_for(None, PermissionSettings(), isolation) == expected


def test_the_caller_comes_before_the_configuration() -> None:
    configured = PermissionSettings(preset="auto")
    assert preset_for("readonly", configured, "shared") == "readonly"
    assert preset_for(None, configured, "shared") == "auto"
