"""What a worker may do without asking: presets, wildcards, and files that are always guarded.

A preset is a list of rules in OpenCode's words; the last rule that matches decides. Tools that
no rule names keep OpenCode's own default (reading is free, `.env` files are asked).

A file that git, an editor, an agent or a CI service obeys is more than text: whoever writes it
runs commands later, outside every rule of ours.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath

from goent.domain.settings import PermissionAction, PermissionRule, PermissionSettings
from goent.domain.types import Isolation, Preset


def wildcard_matches(wildcard: str, text: str) -> bool:
    """Whether it covers the whole text."""
    return _compiled_pattern(wildcard).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled_pattern(wildcard: str) -> re.Pattern[str]:
    """`*` is any text, `?` one character, and a last ` *` may be missing: `git *` is `git` too."""
    bare = wildcard.removesuffix(" *")
    source = re.escape(bare).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(source + ("( .*)?" if bare != wildcard else ""), re.DOTALL)


def _rules(**actions: PermissionAction) -> tuple[PermissionRule, ...]:
    return tuple(PermissionRule(tool=tool, action=action) for tool, action in actions.items())


# Nobody reads a question of the model's own at a worker's keyboard, so it is never offered.
# A loop of identical calls is asked about everywhere: it is how money runs away.
_ALWAYS_RULES = _rules(question="deny", external_directory="ask", doom_loop="ask")

PRESET_RULES: dict[Preset, tuple[PermissionRule, ...]] = {
    "readonly": _rules(edit="deny", bash="deny", webfetch="ask") + _ALWAYS_RULES,
    "ask": _rules(edit="ask", bash="ask", webfetch="ask") + _ALWAYS_RULES,
    "edit": _rules(edit="allow", bash="ask", webfetch="ask") + _ALWAYS_RULES,
    "auto": _rules(edit="allow", bash="allow", webfetch="allow") + _ALWAYS_RULES,
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
    rules = PRESET_RULES[preset]
    if inside:
        rules = tuple(narrow for rule in rules for narrow in _narrowed(rule, inside))
    return (*rules, *extra, *(rule for rule in rules if rule.action == "deny"))


def _narrowed(rule: PermissionRule, inside: str) -> tuple[PermissionRule, ...]:
    if (rule.tool, rule.action) != ("edit", "allow"):
        return (rule,)
    elsewhere = PermissionRule(tool="edit", action="ask")
    return elsewhere, PermissionRule(tool="edit", pattern=f"{inside}/*", action="allow")


_GUARD_REASON = "a change there can make {} run other programs"
# By the name of a file or folder, at any depth; lower case, for some disks do not tell cases apart.
_PROGRAMS_BY_NAME = {
    ".git": "git",
    ".gitmodules": "git",
    ".goent": "go-ent",
    ".opencode": "OpenCode",
    "opencode.json": "OpenCode",
    "opencode.jsonc": "OpenCode",
    ".mcp.json": "MCP clients",
    ".claude": "Claude Code",
    ".claude.json": "Claude Code",
    ".codex": "Codex",
    ".gemini": "Gemini CLI",
    ".qwen": "Qwen Code",
    ".cursor": "Cursor",
    ".zed": "Zed",
    ".vscode": "VS Code",
    ".idea": "JetBrains IDEs",
    ".windsurf": "Windsurf",
    ".kiro": "Kiro",
    ".roo": "Roo Code",
    ".continue": "Continue",
    ".kimi": "Kimi CLI",
    ".devcontainer": "editors",
    ".devcontainer.json": "editors",
    ".envrc": "direnv",
    ".mise.toml": "mise",
    "mise.toml": "mise",
    ".husky": "git hooks",
    ".pre-commit-config.yaml": "git hooks",
    "lefthook.yml": "git hooks",
    ".lefthook.yml": "git hooks",
    ".gitlab-ci.yml": "GitLab CI",
    ".gitlab-ci.yaml": "GitLab CI",
    ".circleci": "CircleCI",
    ".buildkite": "Buildkite",
    ".travis.yml": "Travis CI",
    ".cirrus.yml": "Cirrus CI",
    ".appveyor.yml": "AppVeyor",
    "appveyor.yml": "AppVeyor",
    ".semaphore": "Semaphore",
    ".teamcity": "TeamCity",
    ".tekton": "Tekton",
    "cloudbuild.yaml": "Cloud Build",
    ".drone.yml": "Drone",
    ".woodpecker": "Woodpecker",
    ".woodpecker.yml": "Woodpecker",
    ".woodpecker.yaml": "Woodpecker",
    "jenkinsfile": "Jenkins",
    "azure-pipelines.yml": "Azure Pipelines",
    "azure-pipelines.yaml": "Azure Pipelines",
    ".azure-pipelines": "Azure Pipelines",
    "bitbucket-pipelines.yml": "Bitbucket Pipelines",
}
# A folder inside another one that is harmless by itself.
_PROGRAMS_BY_FOLDERS = {
    (".github", "workflows"): "GitHub Actions",
    (".github", "actions"): "GitHub Actions",
    (".gitlab", "ci"): "GitLab CI",
    (".gitea", "workflows"): "Gitea Actions",
    (".forgejo", "workflows"): "Forgejo Actions",
}


def guard_reason(path: PurePath) -> str | None:
    """Why a change of this file is always asked; None if it is an ordinary one."""
    parts = [part.casefold() for part in path.parts]
    who = next((_PROGRAMS_BY_NAME[part] for part in parts if part in _PROGRAMS_BY_NAME), None)
    who = who or next(
        (_PROGRAMS_BY_FOLDERS[pair] for pair in pairwise(parts) if pair in _PROGRAMS_BY_FOLDERS),
        None,
    )
    return _GUARD_REASON.format(who) if who else None
