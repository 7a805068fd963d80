"""What a worker may do without asking: presets, wildcards, and files that are always guarded.

A preset is a list of rules in OpenCode's terms; the last matching rule decides. Tools that no rule
names keep OpenCode's default (reading is allowed, `.env` files are asked).

Files that git, an editor, an agent or a CI service acts on are guarded: whoever writes one can have
commands run later, outside all rules.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import PurePath

from goent.domain.settings import PermissionAction, PermissionRule, PermissionSettings
from goent.domain.types import Isolation, Preset


def wildcard_matches(wildcard: str, text: str) -> bool:
    """Whether the wildcard covers the whole text."""
    return _compiled_pattern(wildcard).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled_pattern(wildcard: str) -> re.Pattern[str]:
    """`*` is any text, `?` one character; a final ` *` is optional: `git *` matches `git`."""
    bare = wildcard.removesuffix(" *")
    source = re.escape(bare).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(source + ("( .*)?" if bare != wildcard else ""), re.DOTALL)


def _rules(**actions: PermissionAction) -> tuple[PermissionRule, ...]:
    return tuple(PermissionRule(tool=tool, action=action) for tool, action in actions.items())


# Nobody sits at a worker to answer the model's own questions, so that tool is never offered.
# A loop of identical calls is asked about in every preset: it can cost a lot of money.
_ALWAYS_RULES = _rules(question="deny", external_directory="ask", doom_loop="ask")

PRESET_RULES: dict[Preset, tuple[PermissionRule, ...]] = {
    "readonly": _rules(edit="deny", bash="deny", webfetch="ask") + _ALWAYS_RULES,
    "ask": _rules(edit="ask", bash="ask", webfetch="ask") + _ALWAYS_RULES,
    "edit": _rules(edit="allow", bash="ask", webfetch="ask") + _ALWAYS_RULES,
    "auto": _rules(edit="allow", bash="allow", webfetch="allow") + _ALWAYS_RULES,
}


def preset_for(asked: Preset | None, settings: PermissionSettings, isolation: Isolation) -> Preset:
    """The caller's preset, else the configured one, else one by the worker's isolation."""
    if asked or settings.preset:
        return asked or settings.preset or "ask"
    return "edit" if isolation in ("worktree", "copy") else "ask"


def rules_for(
    preset: Preset, extra: Sequence[PermissionRule], inside: str = ""
) -> tuple[PermissionRule, ...]:
    """The preset's rules, then the configured ones, which win, except over a preset's "deny".

    `inside` is the worker's directory below the top of its git checkout. To OpenCode the whole
    checkout is inside; these rules narrow that to the directory.
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
# Names of files and folders, at any depth; in lower case, because some disks ignore case.
_GUARDED_NAMES = {
    "git": (".git", ".gitmodules"),
    "go-ent": (".goent",),
    "OpenCode": (".opencode", "opencode.json", "opencode.jsonc"),
    "MCP clients": (".mcp.json",),
    "Claude Code": (".claude", ".claude.json"),
    "Codex": (".codex",),
    "Gemini CLI": (".gemini",),
    "Qwen Code": (".qwen",),
    "Cursor": (".cursor",),
    "Zed": (".zed",),
    "VS Code": (".vscode",),
    "JetBrains IDEs": (".idea",),
    "Windsurf": (".windsurf",),
    "Kiro": (".kiro",),
    "Roo Code": (".roo",),
    "Continue": (".continue",),
    "Kimi CLI": (".kimi",),
    "editors": (".devcontainer", ".devcontainer.json"),
    "direnv": (".envrc",),
    "mise": (".mise.toml", "mise.toml"),
    "git hooks": (".husky", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml"),
    "GitLab CI": (".gitlab-ci.yml", ".gitlab-ci.yaml"),
    "CircleCI": (".circleci",),
    "Buildkite": (".buildkite",),
    "Travis CI": (".travis.yml",),
    "Cirrus CI": (".cirrus.yml",),
    "AppVeyor": (".appveyor.yml", "appveyor.yml"),
    "Semaphore": (".semaphore",),
    "TeamCity": (".teamcity",),
    "Tekton": (".tekton",),
    "Cloud Build": ("cloudbuild.yaml",),
    "Drone": (".drone.yml",),
    "Woodpecker": (".woodpecker", ".woodpecker.yml", ".woodpecker.yaml"),
    "Jenkins": ("jenkinsfile",),
    "Azure Pipelines": ("azure-pipelines.yml", "azure-pipelines.yaml", ".azure-pipelines"),
    "Bitbucket Pipelines": ("bitbucket-pipelines.yml",),
}
_PROGRAMS_BY_NAME = {name: program for program, names in _GUARDED_NAMES.items() for name in names}
# Folders that are guarded only inside another one.
_PROGRAMS_BY_FOLDERS = {
    (".github", "workflows"): "GitHub Actions",
    (".github", "actions"): "GitHub Actions",
    (".gitlab", "ci"): "GitLab CI",
    (".gitea", "workflows"): "Gitea Actions",
    (".forgejo", "workflows"): "Forgejo Actions",
}


def guard_reason(path: PurePath) -> str | None:
    """Why a change of this file is always asked; None for an ordinary file."""
    parts = [part.casefold() for part in path.parts]
    by_name = (_PROGRAMS_BY_NAME.get(part) for part in parts)
    by_folders = (_PROGRAMS_BY_FOLDERS.get(pair) for pair in pairwise(parts))
    program = next(filter(None, chain(by_name, by_folders)), None)
    return _GUARD_REASON.format(program) if program else None
