"""How much does a task ask to be read? Files, folders and globs that it names, counted on disk.

The one place in this room that touches the disk; it blocks, so a daemon asks it in a thread. Every
count has an end: a time, a number of files, and a sample of each file instead of all of it.
"""

import fnmatch
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from goent.domain.tasks import Context, TaskText
from goent.llm.estimate import estimate_tokens

LIMIT_S: Final = 0.25
MOST_FILES: Final = 5_000
MOST_NAMED: Final = 200  # names in one task
LONGEST_NAME: Final = 200  # characters
SAMPLE: Final = 8_192  # bytes of a file that are read
READ: Final = 50_000  # characters of a prompt in which names are looked for
MOST_CHOICES: Final = 16  # in one pair of braces
SKIPPED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"}
)

_WORD: Final = re.compile(r"[^\s\"'`()<>|;]+")
# A path has a slash, a star or an ending; what is longer than a name is not looked at.
_NAME: Final = re.compile(r"[\w.~*?\[{-][^:]*/[^:]*|/[^:]+|[^/:]*\*[^/:]*|[\w*?-][^/:]*\.\w{1,8}")
_FILE: Final = re.compile(r"[^/]*[*?\[{].*|[^/]*\.[a-z]\w{0,7}", re.IGNORECASE)
_NO_FILE: Final = re.compile(
    r"(?:e\.g|i\.e|a\.m|p\.m)|(?:node|vue|next|nuxt|react|express|three|d3|ember|backbone)\.js|asp\.net"
    r"|.*\.(?:com|org|net|io)",
    re.IGNORECASE,
)
_MAGIC: Final = re.compile(r"[*?\[{]")
_BRACE: Final = re.compile(r"\{([^{}]*)\}")


class _Ended(Exception):
    """A limit was reached."""


class _Count:
    """What was found so far; a file counts once, however often it is named."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._seen: set[tuple[int, int]] = set()
        self.tokens = 0

    @property
    def files(self) -> int:
        return len(self._seen)

    def add(self, path: str) -> None:
        self.check()
        try:
            about = os.stat(path)  # noqa: PTH116 (thousands of them, within a fraction of a second)
        except (OSError, ValueError):
            return
        if not stat.S_ISREG(about.st_mode) or (about.st_dev, about.st_ino) in self._seen:
            return
        if self.files >= MOST_FILES:
            raise _Ended
        self._seen.add((about.st_dev, about.st_ino))
        self.tokens += _tokens(path, about.st_size)

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise _Ended


def count_context(task: TaskText, cwd: Path, *, limit_s: float = LIMIT_S) -> Context:
    """What is not there, or cannot be read, counts nothing."""
    count = _Count(time.monotonic() + limit_s)
    names = named(task)
    try:
        for name in names[:MOST_NAMED]:
            for path in _paths(name, cwd, count):
                count.add(path)
    except _Ended:
        return Context(files=count.files, tokens=count.tokens, complete=False)
    return Context(files=count.files, tokens=count.tokens, complete=len(names) <= MOST_NAMED)


def named(task: TaskText) -> tuple[str, ...]:
    """The files, folders and globs that the caller listed or the text mentions, each once."""
    words = (word.lstrip("@").rstrip(".,:!?") for word in _WORD.findall(task.text[:READ]))
    fitting = (word for word in words if 1 < len(word) <= LONGEST_NAME)
    mentioned = (word for word in fitting if _NAME.fullmatch(word))
    names = dict.fromkeys((*task.files, *mentioned))
    return tuple(name for name in names if 0 < len(name) <= LONGEST_NAME and "\0" not in name)


def count_named(task: TaskText) -> int:
    """How many files it names, there or not: `and/or`, `2.3` and `example.com` are none."""
    listed = set(task.files)
    last = {name: name.rstrip("/").rpartition("/")[2] for name in named(task)}
    return sum(
        name in listed or bool(_FILE.fullmatch(end) and not _NO_FILE.fullmatch(end))
        for name, end in last.items()
    )


def _paths(name: str, cwd: Path, count: _Count) -> Iterator[str]:
    name = os.path.normpath(name)  # before a star is looked for: `*/..` has none
    whole = os.path.join(cwd, os.path.expanduser(name))  # noqa: PTH111, PTH118 (a glob is no path)
    if not _MAGIC.search(name):
        yield from _below(whole, count) if os.path.isdir(whole) else (whole,)  # noqa: PTH112 (see above)
        return
    fixed, wild = _split(os.path.normpath(whole))
    for path in _below(fixed, count):
        if any(fits(glob, path[len(fixed) + 1 :].split("/")) for glob in _either(wild)):
            yield path


def _split(glob: str) -> tuple[str, str]:
    """The folder before the first star, and the rest."""
    parts = glob.split("/")
    first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
    return "/".join(parts[:first]), "/".join(parts[first:])


@lru_cache(maxsize=64)
def _either(glob: str) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    """`{a,b}` is one or the other: a pattern a folder for each; None stands for `**`."""
    brace = _BRACE.search(glob)
    choices = brace[1].split(",")[:MOST_CHOICES] if brace else [""]
    before, after = (glob[: brace.start()], glob[brace.end() :]) if brace else (glob, "")
    return tuple(
        tuple(
            None if part == "**" else re.compile(fnmatch.translate(part))
            for part in f"{before}{choice}{after}".split("/")
        )
        for choice in choices
    )


def fits(glob: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    """Folder by folder. Only the last `**` is ever taken back, so the time is bounded."""
    at = past = 0
    star: tuple[int, int] | None = None
    while past < len(parts):
        pattern = glob[at] if at < len(glob) else ""
        if pattern is None:
            star = at, past
            at += 1
        elif pattern and pattern.match(parts[past]):
            at, past = at + 1, past + 1
        elif star:
            star = star[0], star[1] + 1
            at, past = star[0] + 1, star[1]
        else:
            return False
    return all(pattern is None for pattern in glob[at:])


def _below(folder: str, count: _Count) -> Iterator[str]:
    """Every file in a folder and its folders, in order; links to folders are not followed."""
    waiting = [os.path.normpath(folder)]
    while waiting:
        count.check()
        try:
            with os.scandir(waiting.pop()) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            count.check()
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path
            elif entry.name not in SKIPPED:
                waiting.append(entry.path)


def _tokens(path: str, size: int) -> int:
    """From its beginning, in proportion; 0 for what is no text."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
            sample = file.read(SAMPLE)
    except OSError:
        return 0
    if not sample or b"\0" in sample:
        return 0
    return round(estimate_tokens(sample.decode(errors="replace")) * max(size / len(sample), 1))
