"""What do permission rules say of a question, read as OpenCode reads them?

OpenCode judges a session by its own rules, but a subagent's session gets none of its parent's:
it starts with `task: deny` alone, and rules that are set while it runs have no effect. So it falls
back on the process's "ask", its questions come to us, and we answer what the rules decide.
"""

from collections.abc import Sequence
from typing import Literal

from goent.domain.settings import Action, PermissionRule
from goent.policy.wildcards import matches

ANYTHING = "\0"  # a command that only a rule for all of them covers
OversightLevel = Literal["readonly", "asking", "free"]


def judge(rules: Sequence[PermissionRule], permission: str, patterns: Sequence[str]) -> Action:
    """The strictest verdict over all patterns; for each the last rule that matches."""
    verdicts = {_verdict(rules, permission, pattern) for pattern in patterns or ("*",)}
    if "deny" in verdicts:
        return "deny"
    return "allow" if verdicts == {"allow"} else "ask"


def refused_outright(rules: Sequence[PermissionRule], permission: str) -> bool:
    """Whether nothing of the kind can ever be allowed, so that there is no use in offering it."""
    for rule in reversed(rules):
        if matches(rule.tool, permission) and rule.action != "deny":
            return False
        if matches(rule.tool, permission) and rule.pattern == "*":
            return True
    return False


def oversight_level(rules: Sequence[PermissionRule]) -> OversightLevel:
    """How closely an agent has to be held to these rules."""
    if refused_outright(rules, "edit"):
        return "readonly"
    both = {judge(rules, "edit", (ANYTHING,)), judge(rules, "bash", (ANYTHING,))}
    return "free" if both == {"allow"} else "asking"


def _verdict(rules: Sequence[PermissionRule], permission: str, pattern: str) -> Action:
    for rule in reversed(rules):
        if matches(rule.tool, permission) and matches(rule.pattern, pattern):
            return rule.action
    return "ask"
