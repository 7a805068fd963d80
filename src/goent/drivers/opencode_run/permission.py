"""How are ordered permission rules said in OpenCode's configuration?

The configuration groups patterns by tool, and the last match decides. An order of rules that jumps
between a tool and a wildcard that covers it cannot be said that way; such rules are refused, because
a permission that means something else than was written is worse than none.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from goent.domain.errors import RequestError
from goent.domain.settings import Action, PermissionRule
from goent.drivers.opencode.content import Permissions
from goent.policy.wildcards import matches

# OpenCode's configuration accepts no patterns for these, and does not start with them.
WHOLE = frozenset({"doom_loop", "question", "todowrite", "webfetch", "websearch"})


def as_permissions(rules: Sequence[PermissionRule]) -> Permissions:
    """The same verdict on every question; raises `RequestError` where there is no such grouping."""
    telling = [
        rule
        for n, rule in enumerate(rules)
        if not any(_covers(later, rule) for later in rules[n + 1 :])
    ]
    grouped: dict[str, dict[str, Action]] = {}
    for rule in telling:
        patterns = grouped.pop(rule.tool, {})
        grouped[rule.tool] = {**patterns, rule.pattern: rule.action}
    _check_order(telling, list(grouped))
    return {tool: _plain(tool, patterns) for tool, patterns in grouped.items()}


def _plain(tool: str, patterns: Mapping[str, Action]) -> Action | Mapping[str, Action]:
    if list(patterns) == ["*"]:
        return patterns["*"]
    if tool in WHOLE:
        raise RequestError(
            f"by the method 'cli' there are no patterns for the permission {tool!r} "
            f"({', '.join(map(repr, patterns))}): decide it as a whole, or use the method 'acp'"
        )
    return patterns


def _covers(later: PermissionRule, rule: PermissionRule) -> bool:
    """Whatever the rule decides, the later one decides after it."""
    whole = later.pattern in ("*", rule.pattern)
    return whole and (later.tool == rule.tool or _is_wildcard_for(later.tool, rule.tool))


def _check_order(telling: Sequence[PermissionRule], tools: Sequence[str]) -> None:
    place = {tool: n for n, tool in enumerate(tools)}
    for first, second in combinations(telling, 2):
        swapped = place[first.tool] > place[second.tool]
        if swapped and first.action != second.action and _may_meet(first.tool, second.tool):
            raise RequestError(
                f"the method 'cli' cannot keep the order of these permission rules: "
                f"{_said(first)}, then {_said(second)}, then {first.tool!r} again; put the rules "
                f"of {first.tool!r} together, or use the method 'acp'"
            )


def _may_meet(one: str, other: str) -> bool:
    both_wild = _is_wild(one) and _is_wild(other)
    return both_wild or _is_wildcard_for(one, other) or _is_wildcard_for(other, one)


def _is_wildcard_for(wildcard: str, tool: str) -> bool:
    return _is_wild(wildcard) and (
        wildcard == "*" or (not _is_wild(tool) and matches(wildcard, tool))
    )


def _is_wild(tool: str) -> bool:
    return "*" in tool or "?" in tool


def _said(rule: PermissionRule) -> str:
    return f"{rule.tool!r} {rule.pattern!r} {rule.action}"
