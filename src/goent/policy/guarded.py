"""Which files of a project make other programs act, so that changing one is always asked?

A file that git, an editor, an agent or a CI service obeys is more than text: whoever writes it
runs commands later, outside every rule of ours.
"""

from itertools import pairwise
from pathlib import PurePath

_PROGRAMS = "a change there can make {} run other programs"
# By the name of a file or folder, at any depth; lower case, for some disks do not tell cases apart.
_NAMES = {
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
_PAIRS = {
    (".github", "workflows"): "GitHub Actions",
    (".github", "actions"): "GitHub Actions",
    (".gitlab", "ci"): "GitLab CI",
    (".gitea", "workflows"): "Gitea Actions",
    (".forgejo", "workflows"): "Forgejo Actions",
}


def guard_reason(path: PurePath) -> str | None:
    """Why a change of this file is always asked; None if it is an ordinary one."""
    parts = [part.casefold() for part in path.parts]
    who = next((_NAMES[part] for part in parts if part in _NAMES), None)
    who = who or next((_PAIRS[pair] for pair in pairwise(parts) if pair in _PAIRS), None)
    return _PROGRAMS.format(who) if who else None
