"""How does one commit differ from another, file by file?"""

from collections.abc import Iterator
from pathlib import Path

from goent.domain.types import FileChange, Value
from goent.git.command import Git
from goent.git.names import readable

LINK = b"160000"  # the mode of an entry that is another repository's commit


class Changes(Value, frozen=True, kw_only=True):
    """`inner` are repositories that are new inside: of them git keeps a commit's name, and no file."""

    files: tuple[FileChange, ...] = ()
    inner: tuple[str, ...] = ()


async def changes(git: Git, repository: Path, base: str, commit: str) -> Changes:
    """A renamed file is one change, `old => new`; of a binary one no lines are counted."""
    if base == commit:
        return Changes()
    answer = await git.do(
        *("diff-tree", "-r", "-z", "--raw", "--numstat", "-M", "--no-ext-diff", "--no-textconv"),
        *(base, commit),
        env={"GIT_DIR": str(repository)},
    )
    return parse(answer.output)


def parse(output: bytes) -> Changes:
    """Of `diff-tree -z --raw --numstat`: first what happened to each file, then the lines."""
    fields = iter(output.split(b"\0"))
    files: list[FileChange] = []
    inner: list[str] = []
    for field in fields:
        if field.startswith(b":"):
            new = _raw(field, fields)
            if new is not None:
                inner.append(readable(new))
        elif field:
            files.append(_counted(field, fields))
    return Changes(files=tuple(files), inner=tuple(inner))


def _raw(field: bytes, rest: Iterator[bytes]) -> bytes | None:
    """The path, if it is a repository that was none before."""
    old, new, _, _, status = field[1:].split(b" ")
    path = next(rest)
    if status[:1] in (b"R", b"C"):
        path = next(rest)
    return path if new == LINK and old != LINK else None


def _counted(field: bytes, rest: Iterator[bytes]) -> FileChange:
    added, removed, path = field.split(b"\t", 2)
    name = readable(path) if path else f"{readable(next(rest))} => {readable(next(rest))}"
    return FileChange(path=name, added=_count(added), removed=_count(removed))


def _count(digits: bytes) -> int | None:
    return None if digits == b"-" else int(digits)
