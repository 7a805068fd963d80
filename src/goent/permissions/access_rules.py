"""Decides whether permission rules allow a request, deny it, or ask. Pure.

OpenCode applies a session's rules itself, but a subagent's session gets none of its parent's: it
starts with `task: deny` alone, and rules that are set while it runs have no effect. It falls back on
the process's "ask", so its questions reach go-ent, which answers by the rules.

A rule that allows `git *` must not allow `git status; rm -rf .`, so each command of a line is decided
separately. Where the shell would do more than is written (substitutions, redirections), or may parse
the line differently (comments, unclosed quotes), only a rule for every command can allow it.
"""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from goent.domain.settings import PermissionAction, PermissionRule
from goent.domain.types import Value
from goent.permissions.permission_rules import wildcard_matches

ANY_COMMAND = "\0"  # a command that only a rule for all of them covers
OversightLevel = Literal["readonly", "asking", "free"]


def strictest_action(
    rules: Sequence[PermissionRule], permission: str, patterns: Sequence[str]
) -> PermissionAction:
    """The strictest action over all patterns; for each, the last matching rule decides."""
    verdicts = {_last_match(rules, permission, pattern) for pattern in patterns or ("*",)}
    if "deny" in verdicts:
        return "deny"
    return "allow" if verdicts == {"allow"} else "ask"


def is_always_denied(rules: Sequence[PermissionRule], permission: str) -> bool:
    """Whether nothing of the kind can ever be allowed, so that it need not be offered."""
    for rule in reversed(rules):
        if wildcard_matches(rule.tool, permission):
            if rule.action != "deny":
                return False
            if rule.pattern == "*":
                return True
    return False


def oversight_level(rules: Sequence[PermissionRule]) -> OversightLevel:
    """How closely an agent has to be supervised under these rules."""
    if is_always_denied(rules, "edit"):
        return "readonly"
    both = {
        strictest_action(rules, "edit", (ANY_COMMAND,)),
        strictest_action(rules, "bash", (ANY_COMMAND,)),
    }
    return "free" if both == {"allow"} else "asking"


def _last_match(rules: Sequence[PermissionRule], permission: str, pattern: str) -> PermissionAction:
    for rule in reversed(rules):
        if wildcard_matches(rule.tool, permission) and wildcard_matches(rule.pattern, pattern):
            return rule.action
    return "ask"


# Quoted text, an escaped character, a redirection that writes nothing, or the end of a command.
# Some shells parse `&>` as `&` and `>`, so it is harmless only where no command can follow.
_TOKEN = re.compile(
    r"""
      (?P<single>'[^']*')
    | (?P<double>"(?:[^"\\]|\\.)*")
    | (?P<escaped>\\[^\n]|(?<=[ \t])\\\n)
    | (?P<harmless>\d?>(?:&\d|[ \t]*/dev/null)(?=[ \t\n;&|)]|\Z)
                 | &>[ \t]*/dev/null(?=[ \t]*(?:[\n;&|)]|\Z)))
    | (?P<unclear>`|\$[({\["']|[<>'"\\]|(?<![\w./:=-])\#|\([ \t\n]*\))
    | (?P<end>\n|;|&&?|\|[|&]?|[(){}])
    """,
    re.VERBOSE | re.DOTALL,
)
# Double quotes do not prevent a substitution, even one split by a line continuation.
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[({\[]|\\\n)")
# Shells drop some of these, and terminals treat them as keys.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK = " \t\n"


class ShellLine(Value, frozen=True, kw_only=True):
    """The commands of a line; `clear` if it does nothing but run them."""

    commands: tuple[str, ...]
    clear: bool


def parse_shell_line(text: str) -> ShellLine:
    commands, begin, clear = list[str](), 0, not _CONTROL.search(text)
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "end":
                commands.append(text[begin : token.start()].strip(_BLANK))
                begin = token.end()
            case "unclear":
                clear = False
            case "double" if _SUBSTITUTION.search(token.group()):
                clear = False
            case _:
                pass
    commands.append(text[begin:].strip(_BLANK))
    return ShellLine(commands=tuple(filter(None, commands)), clear=clear)


# Reading inside the directory is allowed: no preset covers it, and a later rule may.
_FREE_RULES = tuple(PermissionRule(tool=tool, action="allow") for tool in ("read", "grep", "think"))


class AccessRequest(Value, frozen=True, kw_only=True):
    """What a worker asks permission for.

    `always` are the patterns that "always" would cover; with `exact` they are literal, because a `*`
    in a command belongs to the shell. `reason` says why it is asked although a rule would allow it.
    If no rule names the permission, those for `falls_back_to` decide.
    """

    permission: str
    patterns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    exact: bool = False
    detail: str = ""
    reason: str = ""
    falls_back_to: str = ""

    @property
    def can_be_always(self) -> bool:
        """Whether an "always" would cover more than this one call."""
        return bool(self.always) and not self.reason


def decide_access(matter: AccessRequest, rules: Sequence[PermissionRule]) -> PermissionAction:
    """The rules' decision. No rule allows what is asked for a `reason`."""
    found = _decide(matter, rules)
    return "ask" if found == "allow" and matter.reason else found


def _decide(matter: AccessRequest, rules: Sequence[PermissionRule]) -> PermissionAction:
    if matter.falls_back_to and not any(
        wildcard_matches(rule.tool, matter.permission) for rule in rules
    ):
        return _decide(replace(matter, permission=matter.falls_back_to, falls_back_to=""), rules)
    if matter.permission != "bash":
        return strictest_action((*_FREE_RULES, *rules), matter.permission, matter.patterns)
    lines = [parse_shell_line(pattern) for pattern in matter.patterns]
    commands = [command for line in lines for command in line.commands]
    found = strictest_action(rules, "bash", commands)
    if found == "allow" and not all(line.clear for line in lines):
        return strictest_action(rules, "bash", (*commands, ANY_COMMAND))
    return found
