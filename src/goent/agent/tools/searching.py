"""How is a folder searched: by ripgrep if there is one, else by our own, and who is asked how?

Both write the same: names end with a NUL character. Read as it comes, and ended as soon as it is enough.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from anyio.abc import ByteReceiveStream
from msgspec.structs import replace

from goent.agent.ports import Desk, ToolMistake
from goent.agent.tools.selecting import KERNELS
from goent.agent.tools.shells import ended, program
from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.proc.marks import new_mark, send
from goent.proc.supervised import supervised

TIME = 20.0  # seconds for a search
LINE = 500  # characters of a line that are shown
_LONGEST = 1 << 20  # bytes without an end that anybody could mean
_GRACE = 0.5
_SOURCE = str(Path(__file__).parents[3])
_OWN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from goent.agent.tools.own_search import main; main()"
_RECORD = re.compile(rb"([^\0]*)\0(\d+)(?:([:-])(.*))?", re.DOTALL)

_BAD_EXPRESSION = re.compile("regex|PCRE2|not allowed|parse error", re.IGNORECASE)

Mode = Literal["list", "files", "count", "content"]


class Search(Value, frozen=True, kw_only=True):
    """What is wanted. `names` are patterns of file names, any of which will do."""

    mode: Mode
    pattern: str = ""
    ignore_case: bool = False
    context: int = 0
    names: tuple[str, ...] = ()
    hidden: bool = False
    without: tuple[str, ...] = ()  # entries of the folder itself


class Found(Value, frozen=True, kw_only=True):
    """A file, or a line of one. `text` is None for a file; `number` is then its count, if counted."""

    path: str
    number: int = 0
    text: str | None = None
    hit: bool = True


class Searcher:
    """Searches for one session."""

    def __init__(self, desk: Desk) -> None:
        self._env = dict(desk.environ)
        self._owner = desk.owner
        self._ripgrep = program("rg", desk.environ.get("PATH", os.defpath))

    async def search(
        self, folder: Path, search: Search, take: Callable[[Found], bool], *, start: str = ""
    ) -> bool:
        """Below the folder, or in its file `start`; all that is found is given to `take`.

        False if `take` said that it was enough, or the time was up before the end. Raises
        `ToolMistake` for an expression that is none.
        """
        if folder == Path("/"):
            search = replace(search, without=KERNELS)
        reading = _Reading(search.mode, take)
        command = self._command(search, folder, start)
        try:
            whole, errors = await self._run(command, folder, reading)
        except WorkerCrashed as error:
            whole, errors = True, str(error)
        if not errors or reading.any:
            return whole
        if self._ripgrep and not _BAD_EXPRESSION.search(errors):  # one that cannot do what we ask
            self._ripgrep = None
            return await self.search(folder, search, take, start=start)
        raise ToolMistake(f"{search.pattern!r} is no expression to search for: {errors}")

    async def _run(
        self, command: Sequence[str], folder: Path, reading: "_Reading"
    ) -> tuple[bool, str]:
        """Whether it came to its end, and what it had to complain of if that was a bad one."""
        whole, code = False, 0
        async with supervised(
            command, cwd=folder, env=self._env, mark=new_mark(self._owner), grace=_GRACE
        ) as process:
            with anyio.move_on_after(TIME):
                whole = await reading.taken(process.stdout)
                if whole:
                    code = await ended(process)
            if not whole:
                send(process.pid, signal.SIGKILL)
            errors = process.stderr
        return whole, errors if code not in (0, 1) else ""

    def _command(self, search: Search, folder: Path, start: str) -> list[str]:
        if self._ripgrep:
            # Outside of a repository ripgrep reads no ignore files, unless it is told to; inside,
            # told so, it would not stop at the top.
            anywhere = () if _in_repository(folder) else ("--no-require-git",)
            return [self._ripgrep, *anywhere, *_flags(search), "--", f"./{start}"]
        asked = msgspec.json.encode(search).decode()
        return [sys.executable, "-I", "-S", "-c", _OWN, _SOURCE, asked, start]


def _in_repository(folder: Path) -> bool:
    return any((place / ".git").exists() for place in (folder, *folder.parents))


def _flags(search: Search) -> Iterator[str]:
    yield from ("--no-config", "--no-messages", "--color=never", "--null")
    yield "--sort=path"  # the same answer each time
    if search.hidden:
        yield from ("--hidden", "--glob=!.git")
    yield from (f"--glob=!/{name}" for name in search.without)
    # By `--glob` ripgrep would search what is ignored: a type selects, and ignore files still count.
    for name in search.names:
        yield f"--type-add=goent:{name}"
    if search.names:
        yield "--type=goent"
    match search.mode:
        case "list":
            yield "--files"
            return
        case "files":
            yield "--files-with-matches"
        case "count":
            yield from ("--count", "--with-filename")
        case "content":
            yield from ("--line-number", "--with-filename", "--no-heading")
            yield from ("--max-columns=2000", "--max-columns-preview")
            yield f"--context={search.context}"
    if search.ignore_case:
        yield "--ignore-case"
    yield from ("--crlf", "--engine=auto", f"--regexp={search.pattern}")


class _Reading:
    """Makes findings of bytes."""

    def __init__(self, mode: Mode, take: Callable[[Found], bool]) -> None:
        self._end = b"\0" if mode in ("list", "files") else b"\n"
        self._take = take
        self._rest = b""
        self._begun = b""
        self.any = False

    async def taken(self, pipe: ByteReceiveStream) -> bool:
        """False if it was enough before the end."""
        try:
            while True:
                for found in self._found(await pipe.receive()):
                    if not self._take(found):
                        return False
        except anyio.EndOfStream:
            return True

    def _found(self, data: bytes) -> Iterator[Found]:
        *records, rest = (self._rest + data).split(self._end)
        self._rest = rest[-_LONGEST:]
        for record in records:
            self.any = True
            if self._end == b"\0":
                yield Found(path=_path(record))
            elif found := _RECORD.fullmatch(self._begun + record.rstrip(b"\r")):
                self._begun = b""
                path, number, mark, text = found.groups()
                yield Found(
                    path=_path(path),
                    number=int(number),
                    text=None if mark is None else _cut(text),
                    hit=mark != b"-",
                )
            elif record not in (b"--", b"--\r"):  # a name with a line break in it
                self._begun += record + b"\n"


def _path(name: bytes) -> str:
    return os.fsdecode(name.removeprefix(b"./"))


def _cut(text: bytes) -> str:
    line = text.decode(errors="replace")
    return line if len(line) <= LINE else f"{line[:LINE]} [cut]"
