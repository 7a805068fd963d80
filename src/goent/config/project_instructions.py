"""Finds a project's instructions for agents: `AGENTS.md` or `CLAUDE.md`.

What is read here is sent to a provider, and a repository can contain links: a link is followed only to a
Markdown file of the same project.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from goent.domain.types import Value

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")  # the first readable one in a folder counts
MARKDOWN_SUFFIX = ".md"


class ProjectInstructions(Value, frozen=True, kw_only=True):
    """The files to read, with no link in their paths below the folder, and why others are not."""

    files: tuple[Path, ...] = ()
    skipped: tuple[str, ...] = ()


def git_top(folder: Path) -> Path:
    """The top of the git checkout that the folder lies in; itself where there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def find_instructions(
    folders: Sequence[Path], *, project: Path | None = None
) -> ProjectInstructions:
    """Of each folder at most one file, in their order; links may lead into its checkout or `project`."""
    files, skipped = list[Path](), list[str]()
    for folder in dict.fromkeys(folders):
        homes = [Path(os.path.realpath(home)) for home in (git_top(folder), project) if home]
        for path in (folder / name for name in INSTRUCTION_FILES):
            # The target of a link may be hidden from this process; a link that leads out is reported still.
            if not (path.is_symlink() or _is_file(path)):
                continue
            if refusal := _skip_reason(path, homes):
                skipped.append(refusal)
            elif _is_file(path):
                files.append(path)
                break
    return ProjectInstructions(files=tuple(files), skipped=tuple(skipped))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _skip_reason(path: Path, homes: Sequence[Path]) -> str:
    real = Path(os.path.realpath(path))
    if real == Path(os.path.realpath(path.parent)) / path.name:
        return ""
    if not any(real.is_relative_to(home) for home in homes):
        return f"{str(path)!r} is not read: it is a link that leads out of the project, to {str(real)!r}"
    if real.suffix.lower() != MARKDOWN_SUFFIX:
        return (
            f"{str(path)!r} is not read: it is a link to {str(real)!r}, which is no Markdown file"
        )
    return ""
