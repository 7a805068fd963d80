"""What may the agent do unasked, what does it have to ask, and which tools does it have at all?

OpenCode knows rules alone: the last one that matches a permission decides, and a tool whose last rule
denies everything is not offered to the model. So a switch for a tool is a rule at the end.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from goent.domain.settings import PermissionRule
from goent.evals.targets.opencode.settings import EDITING, OpenCodeSettings, Permissions
from goent.policy.wildcards import matches

# An attempt that reads the network is another one each time, and nobody is there for questions.
OFF: Final[Mapping[str, bool]] = {
    "webfetch": False,
    "websearch": False,
    "codesearch": False,
    "question": False,
}
ASKED: Final = tuple(
    PermissionRule(tool=tool, action="ask")
    for tool in (
        *("edit", "bash", "webfetch", "websearch", "codesearch"),
        *("external_directory", "doom_loop"),
    )
)


# Where somebody else's configuration is in force too: MCP tools (`server_tool`) may be in it, and agents that
# do more unasked. A subagent's session has none of our rules, so whether there is one is asked here.
ASKED_OF_OTHERS: Final = (
    PermissionRule(tool="*_*", action="ask"),
    PermissionRule(tool="plan_*", action="deny"),  # as OpenCode has it
    PermissionRule(tool="task", action="ask"),
)


def session_rules(told: OpenCodeSettings) -> tuple[PermissionRule, ...]:
    """For the session of an attempt; the last that matches decides."""
    others = () if told.is_ours_alone else ASKED_OF_OTHERS
    allowed = (*others, *ASKED, *_written(told.permission))
    return (*allowed, *_switches({**OFF, **told.tools}, allowed))


def _written(permission: Permissions | None) -> Iterator[PermissionRule]:
    """The target's own rules, as OpenCode's configuration has them."""
    if isinstance(permission, str):
        yield PermissionRule(tool="*", action=permission)
        return
    for tool, what in (permission or {}).items():
        name = _permission(tool)
        if isinstance(what, str):
            yield PermissionRule(tool=name, action=what)
        else:
            for pattern, action in what.items():
                yield PermissionRule(tool=name, pattern=pattern, action=action)


def _switches(
    tools: Mapping[str, bool], allowed: Iterable[PermissionRule]
) -> Iterator[PermissionRule]:
    """Off is a denial. On takes back an earlier one, such as of `*`: what held before holds again."""
    denied = list[str]()
    for tool, on in tools.items():
        name = _permission(tool)
        if not on:
            denied.append(name)
            yield PermissionRule(tool=name, action="deny")
        elif any(matches(off, name) for off in denied):
            yield PermissionRule(tool=name, action="allow")
            for rule in allowed:
                if matches(rule.tool, name):
                    yield PermissionRule(tool=name, pattern=rule.pattern, action=rule.action)


def _permission(tool: str) -> str:
    return "edit" if tool in EDITING else tool
