"""What a repository's own configuration would make git run, as something that a person can allow."""

from collections.abc import Callable
from pathlib import Path

from goent.domain.trust import Act, Material, act, digest
from goent.git.local_config import MOST_BYTES, acting_lines, read_texts
from goent.plain_files import read_plain


def git_acts(folder: Path) -> tuple[Act, ...]:
    """Of the repository around a folder; nothing if there is none, or its configuration runs nothing."""
    home = read_texts(folder, None).home
    return repository_acts(home.common) if home else ()


def repository_acts(common: Path) -> tuple[Act, ...]:
    """Of a repository, by the directory that its checkouts share."""
    paths = (
        *(common / "config", common / "config.worktree"),
        *sorted(common.glob("worktrees/*/config.worktree")),
    )
    texts = {path: text for path in paths if (text := _text(path))}
    lines = [line for text in texts.values() for line in acting_lines(text)]
    if not lines:
        return ()
    materials = [
        Material(name=str(path.relative_to(common)), digest=digest(text))
        for path, text in texts.items()
    ]
    says = f"git runs or follows what it says: {'; '.join(line for line, _ in lines)}"
    if any(word == "path" for _, word in lines):  # an included file may say something else tomorrow
        says = f"{says}. Other files are included in it, so go-ent's git stays deaf to it"
        return (Act(file=str(common / "config"), key="", kind="git", says=says, digest=""),)
    return (act(file=str(common / "config"), kind="git", says=says, materials=materials),)


def trusted_by(allowed: Callable[[Act], bool]) -> Callable[[Path], bool]:
    """Whether a repository may run its own programs, for `Git`."""

    def is_trusted(common: Path) -> bool:
        acts = repository_acts(common)
        return bool(acts) and all(map(allowed, acts))

    return is_trusted


def _text(path: Path) -> bytes:
    try:
        return read_plain(path, MOST_BYTES)
    except OSError:
        return b""
