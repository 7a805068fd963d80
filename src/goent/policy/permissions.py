"""What may a worker do without asking?

A preset is a list of rules in OpenCode's words; the last rule that matches decides. Tools that
no rule names keep OpenCode's own default (reading is free, `.env` files are asked).
"""

from collections.abc import Sequence

from goent.domain.settings import Action, PermissionRule, PermissionSettings
from goent.domain.types import Isolation, Preset


def _rules(**actions: Action) -> tuple[PermissionRule, ...]:
    return tuple(PermissionRule(tool=tool, action=action) for tool, action in actions.items())


# Nobody reads a question of the model's own at a worker's keyboard, so it is never offered.
# A loop of identical calls is asked about everywhere: it is how money runs away.
_ALWAYS = _rules(question="deny", external_directory="ask", doom_loop="ask")

PRESETS: dict[Preset, tuple[PermissionRule, ...]] = {
    "readonly": _rules(edit="deny", bash="deny", webfetch="ask") + _ALWAYS,
    "ask": _rules(edit="ask", bash="ask", webfetch="ask") + _ALWAYS,
    "edit": _rules(edit="allow", bash="ask", webfetch="ask") + _ALWAYS,
    "auto": _rules(edit="allow", bash="allow", webfetch="allow") + _ALWAYS,
}


def preset_for(asked: Preset | None, settings: PermissionSettings, isolation: Isolation) -> Preset:
    """The caller's preset, else the configured one, else by how much the worker could harm."""
    if asked or settings.preset:
        return asked or settings.preset or "ask"
    return "edit" if isolation in ("worktree", "copy") else "ask"


def rules_for(
    preset: Preset, extra: Sequence[PermissionRule], inside: str = ""
) -> tuple[PermissionRule, ...]:
    """The preset's rules, then the configured ones, which win; but what is closed stays closed.

    `inside` is where the worker's directory lies below the top of its git checkout: to OpenCode
    the whole checkout is inside, to us only that directory is.
    """
    rules = PRESETS[preset]
    if inside:
        rules = tuple(narrow for rule in rules for narrow in _narrowed(rule, inside))
    return (*rules, *extra, *(rule for rule in rules if rule.action == "deny"))


def _narrowed(rule: PermissionRule, inside: str) -> tuple[PermissionRule, ...]:
    if (rule.tool, rule.action) != ("edit", "allow"):
        return (rule,)
    elsewhere = PermissionRule(tool="edit", action="ask")
    return elsewhere, PermissionRule(tool="edit", pattern=f"{inside}/*", action="allow")
