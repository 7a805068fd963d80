"""The Grep and Glob tools, on ripgrep where it is installed.

Both write the same: names end with a NUL character. Read as it comes, and ended as soon as it is enough.
"""

import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import anyio
import msgspec
from anyio.abc import ByteReceiveStream
from msgspec import Meta
from msgspec.structs import replace

from goent.agent.agent_events import FileLocation
from goent.agent.agent_ports import (
    OnToolProgress,
    ToolContext,
    ToolIntent,
    ToolInvocation,
    ToolMistake,
    ToolOutcome,
)
from goent.agent.tools.command_shell import find_absolute_program, wait_for_exit
from goent.agent.tools.path_patterns import PathGlob, TooManyAlternatives, alternatives
from goent.agent.tools.session_files import (
    SessionPath,
    SessionPaths,
    explain_os_errors,
    file_kind,
    in_thread,
    printable,
    status_of,
    valid_unicode,
)
from goent.agent.tools.typed_tool import ToolArguments, TypedTool
from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.proc.child_process import supervised
from goent.proc.process_table import new_mark, send_signal

KERNEL_FOLDERS = ("proc", "sys", "dev")  # folders of `/` that hold no files of anybody's


class PathFilter:
    """Tells whether a path, relative to the folder that is searched, is meant."""

    def __init__(self, pattern: str) -> None:
        try:
            ways = alternatives(pattern)
            self._glob = PathGlob(pattern) if pattern else None
        except TooManyAlternatives as error:
            raise ToolMistake(str(error)) from None
        parts = [part for way in ways for part in way.split("/")]
        if ".." in parts or "\0" in pattern or "\n" in pattern:
            raise ToolMistake(f"{pattern!r} is no pattern to search by: name the folder as path")
        lasts = {way.rpartition("/")[2] for way in ways}
        self.names = () if lasts & {"", "**"} else tuple(sorted(lasts))
        self.hidden = any(part.startswith(".") and part != "." for part in parts)

    def __contains__(self, path: str) -> bool:
        return self._glob is None or self._glob.matches(path)


def is_searchable_folder(places: SessionPaths, place: SessionPath) -> bool:
    """Whether it is a folder. Raises `ToolMistake` if it cannot be searched."""
    places.recheck(place)
    if len(place.path.parts) > 1 and place.path.parts[1] in KERNEL_FOLDERS:
        raise ToolMistake(f"{place.name!r} is the kernel's: there is nothing to search in")
    with explain_os_errors(place, "search"):
        status = status_of(place.path)
    if status is None:
        raise ToolMistake(f"there is no {place.name!r} to search in")
    if stat.S_ISDIR(status.st_mode):
        return True
    if not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is {file_kind(status.st_mode)}: it cannot be searched")
    return False


SEARCH_S = 20.0  # seconds for a search
MAX_LINE_CHARS = 500  # characters of a line that are shown
_MAX_RECORD_BYTES = 1 << 20  # bytes without an end that anybody could mean
_GRACE_S = 0.5
_SOURCE_ROOT = str(Path(__file__).parents[3])
_FALLBACK_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from goent.agent.tools.fallback_search import main; main()"
_RECORD = re.compile(rb"([^\0]*)\0(\d+)(?:([:-])(.*))?", re.DOTALL)

_BAD_EXPRESSION = re.compile("regex|PCRE2|not allowed|parse error", re.IGNORECASE)

SearchMode = Literal["list", "files", "count", "content"]


class FileSearch(Value, frozen=True, kw_only=True):
    """What is wanted. `names` are patterns of file names, any of which will do."""

    mode: SearchMode
    pattern: str = ""
    ignore_case: bool = False
    context: int = 0
    names: tuple[str, ...] = ()
    hidden: bool = False
    without: tuple[str, ...] = ()  # entries of the folder itself


class SearchHit(Value, frozen=True, kw_only=True):
    """A file, or a line of one. `text` is None for a file; `number` is then its count, if counted."""

    path: str
    number: int = 0
    text: str | None = None
    hit: bool = True


class FileSearcher:
    """Searches for one session."""

    def __init__(self, desk: ToolContext) -> None:
        self._env = dict(desk.environ)
        self._owner = desk.owner
        self._ripgrep = find_absolute_program("rg", desk.environ.get("PATH", os.defpath))

    async def search(
        self,
        folder: Path,
        search: FileSearch,
        take: Callable[[SearchHit], bool],
        *,
        start: str = "",
    ) -> bool:
        """Below the folder, or in its file `start`; all that is found is given to `take`.

        False if `take` said that it was enough, or the time was up before the end. Raises
        `ToolMistake` for an expression that is none.
        """
        if folder == Path("/"):
            search = replace(search, without=KERNEL_FOLDERS)
        reading = _OutputReader(search.mode, take)
        command = self._command(search, folder, start)
        try:
            whole, errors = await self._run(command, folder, reading)
        except WorkerCrashed as error:
            whole, errors = True, str(error)
        if not errors or reading.found_any:
            return whole
        if self._ripgrep and not _BAD_EXPRESSION.search(errors):  # one that cannot do what we ask
            self._ripgrep = None
            return await self.search(folder, search, take, start=start)
        raise ToolMistake(f"{search.pattern!r} is no expression to search for: {errors}")

    async def _run(
        self, command: Sequence[str], folder: Path, reading: "_OutputReader"
    ) -> tuple[bool, str]:
        """Whether it came to its end, and what it had to complain of if that was a bad one."""
        whole, code = False, 0
        async with supervised(
            command, cwd=folder, env=self._env, mark=new_mark(self._owner), grace=_GRACE_S
        ) as process:
            with anyio.move_on_after(SEARCH_S):
                whole = await reading.read_all(process.stdout)
                if whole:
                    code = await wait_for_exit(process)
            if not whole:
                send_signal(process.pid, signal.SIGKILL)
            errors = process.stderr
        return whole, errors if code not in (0, 1) else ""

    def _command(self, search: FileSearch, folder: Path, start: str) -> list[str]:
        if self._ripgrep:
            # Outside of a repository ripgrep reads no ignore files, unless it is told to; inside,
            # told so, it would not stop at the top.
            anywhere = () if _in_repository(folder) else ("--no-require-git",)
            return [self._ripgrep, *anywhere, *_flags(search), "--", f"./{start}"]
        asked = msgspec.json.encode(search).decode()
        return [sys.executable, "-I", "-S", "-c", _FALLBACK_CODE, _SOURCE_ROOT, asked, start]


def _in_repository(folder: Path) -> bool:
    return any((place / ".git").exists() for place in (folder, *folder.parents))


def _flags(search: FileSearch) -> Iterator[str]:
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


class _OutputReader:
    """Makes findings of bytes."""

    def __init__(self, mode: SearchMode, take: Callable[[SearchHit], bool]) -> None:
        self._end = b"\0" if mode in ("list", "files") else b"\n"
        self._take = take
        self._unread = b""
        self._partial_record = b""
        self.found_any = False

    async def read_all(self, pipe: ByteReceiveStream) -> bool:
        """False if it was enough before the end."""
        try:
            while True:
                for found in self._parse(await pipe.receive()):
                    if not self._take(found):
                        return False
        except anyio.EndOfStream:
            return True

    def _parse(self, data: bytes) -> Iterator[SearchHit]:
        *records, rest = (self._unread + data).split(self._end)
        self._unread = rest[-_MAX_RECORD_BYTES:]
        for record in records:
            self.found_any = True
            if self._end == b"\0":
                yield SearchHit(path=_path(record))
            elif found := _RECORD.fullmatch(self._partial_record + record.rstrip(b"\r")):
                self._partial_record = b""
                path, number, mark, text = found.groups()
                yield SearchHit(
                    path=_path(path),
                    number=int(number),
                    text=None if mark is None else _shorten_line(text),
                    hit=mark != b"-",
                )
            elif record not in (b"--", b"--\r"):  # a name with a line break in it
                self._partial_record += record + b"\n"


def _path(name: bytes) -> str:
    return os.fsdecode(name.removeprefix(b"./"))


def _shorten_line(text: bytes) -> str:
    line = text.decode(errors="replace")
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [cut]"


GREP_DEFAULT_LIMIT = 200
GREP_MAX_LIMIT = 2000
GREP_MAX_CHARS = 30_000  # characters
GREP_TITLE_CHARS = 100
GREP_MAX_LOCATIONS = 20  # files that an editor is told of

GREP_DESCRIPTION = """Search files for a regular expression, line by line. What .gitignore names, hidden and binary files are passed over.
output_mode content tells the lines with their numbers, files only which files, count how many lines in each."""

OutputMode = Literal["content", "files", "count"]


class GrepArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Grep."""

    pattern: Annotated[str, Meta(min_length=1, description="regular expression")]
    path: Annotated[str, Meta(description="file or folder; default: the working directory")] = "."
    glob: Annotated[str, Meta(description="which files, such as *.py or src/**/*.{ts,tsx}")] = ""
    output_mode: Annotated[
        OutputMode, Meta(description="matching lines, names of files, or lines per file")
    ] = "content"
    case_insensitive: Annotated[bool, Meta(description="ignore case")] = False
    context: Annotated[int, Meta(ge=0, le=50, description="lines around each match")] = 0
    head_limit: Annotated[int, Meta(ge=1, description="matches or files at most")] = (
        GREP_DEFAULT_LIMIT
    )


def grep_tool(places: SessionPaths, searcher: FileSearcher) -> TypedTool[GrepArguments]:
    async def look(asked: GrepArguments) -> ToolInvocation:
        if "\n" in asked.pattern or "\0" in asked.pattern:
            raise ToolMistake("lines are searched one by one: the pattern has a line break in it")
        place = places.resolve(asked.path)
        selected = PathFilter(asked.glob)
        where = "" if asked.path == "." else f" in {place.name}"
        intent = ToolIntent(
            kind="search",
            title=f"Grep {printable(asked.pattern)[:GREP_TITLE_CHARS]}{where}",
            need=place.read_need,
            runs_alone=False,
        )

        async def run(_: OnToolProgress) -> ToolOutcome:
            told = _GrepReply(places, place, asked, folder=is_searchable_folder(places, place))
            search = FileSearch(
                mode=asked.output_mode,
                pattern=asked.pattern,
                ignore_case=asked.case_insensitive,
                context=asked.context,
                names=selected.names if told.folder else (),
                hidden=selected.hidden,
            )

            def take(found: SearchHit) -> bool:
                return (told.folder and found.path not in selected) or told.take(found)

            folder, start = place.path, ""
            if not told.folder:
                folder, start = place.path.parent, place.path.name
            whole = await searcher.search(folder, search, take, start=start)
            return told.outcome(whole=whole)

        return ToolInvocation(intent, run)

    return TypedTool("Grep", GrepArguments, lambda: GREP_DESCRIPTION, look)


class _GrepReply:
    """The answer, as it grows."""

    def __init__(
        self, places: SessionPaths, place: SessionPath, asked: GrepArguments, *, folder: bool
    ) -> None:
        self.folder = folder
        self._places = places
        self._base = place.client_path if folder else place.client_path.parent
        self._asked = asked
        self._lines: list[str] = []
        self._limit = min(asked.head_limit, GREP_MAX_LIMIT)
        self._room = GREP_MAX_CHARS
        self._hits = 0
        self._last: SearchHit | None = None
        self._last_hit: SearchHit | None = None
        self._locations: list[FileLocation] = []

    def take(self, found: SearchHit) -> bool:
        """False if it is not taken any more."""
        if self._room <= 0 or (self._hits >= self._limit and not self._is_context(found)):
            return False
        last, self._last = self._last, found
        new = last is None or last.path != found.path
        path = self._base / found.path
        if new and len(self._locations) < GREP_MAX_LOCATIONS:
            line = found.number if found.text is not None else None
            self._locations.append(FileLocation(path=valid_unicode(str(path)), line=line))
        if found.text is None:
            count = f": {found.number}" if found.number else ""
            self._add(f"{self._places.name(path)}{count}")
        else:
            if new:
                self._add(f"{chr(10) if last else ''}{self._places.name(path)}")
            elif last and self._asked.context and found.number != last.number + 1:
                self._add("--")
            self._add(f"{found.number}{':' if found.hit else '-'}{found.text}")
        self._hits += found.hit
        self._last_hit = found if found.hit else self._last_hit
        return True

    def _is_context(self, found: SearchHit) -> bool:
        """It is of the lines after the last match."""
        hit = self._last_hit
        if found.hit or hit is None or hit.path != found.path:
            return False
        return found.number <= hit.number + self._asked.context

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._room -= len(line) + 1

    def outcome(self, *, whole: bool) -> ToolOutcome:
        if not self._lines:
            text = (
                "(nothing found)"
                if whole
                else "(nothing found before the time was up: narrow the search)"
            )
            return ToolOutcome(text=text)
        notice = "" if whole else "\n(there is more: narrow the search, or raise head_limit)"
        return ToolOutcome(text="\n".join(self._lines) + notice, locations=tuple(self._locations))


GLOB_LIMIT = 100
GLOB_MAX_COMPARED = 100_000  # files whose times are compared
GLOB_MAX_LOCATIONS = 20
_WILDCARDS = frozenset("*?[{")

GLOB_DESCRIPTION = f"""Find files by a pattern of their paths: **/*.py, src/**/test_*.{{ts,tsx}}. A pattern without / is about names in any folder.
What .gitignore names is passed over, and hidden files too unless the pattern names them. The newest come first, at most {GLOB_LIMIT}."""


class GlobArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Glob."""

    pattern: Annotated[str, Meta(min_length=1, description="with *, **, ?, [a-z] and {a,b}")]
    path: Annotated[str, Meta(description="folder; default: the working directory")] = "."


def glob_tool(places: SessionPaths, searcher: FileSearcher) -> TypedTool[GlobArguments]:
    async def look(asked: GlobArguments) -> ToolInvocation:
        path, pattern = _split_pattern(asked)
        place = places.resolve(path)
        selected = PathFilter(pattern)
        where = "" if asked.path == "." else f" in {place.name}"
        intent = ToolIntent(
            kind="search",
            title=f"Glob {printable(asked.pattern)}{where}",
            need=place.read_need,
            runs_alone=False,
        )

        async def run(_: OnToolProgress) -> ToolOutcome:
            if not is_searchable_folder(places, place):
                raise ToolMistake(f"{place.name!r} is a file: Glob looks into folders")
            found: list[str] = []

            def take(one: SearchHit) -> bool:
                if one.path in selected:
                    found.append(one.path)
                return len(found) < GLOB_MAX_COMPARED

            search = FileSearch(mode="list", names=selected.names, hidden=selected.hidden)
            whole = await searcher.search(place.path, search, take)
            newest = await in_thread(lambda: _newest_first(place.path, found))
            return _glob_reply(places, place.client_path, newest, whole=whole)

        return ToolInvocation(intent, run)

    return TypedTool("Glob", GlobArguments, lambda: GLOB_DESCRIPTION, look)


def _split_pattern(asked: GlobArguments) -> tuple[str, str]:
    """Folder and pattern; of an absolute pattern its beginning is the folder."""
    if not asked.pattern.startswith("/") or asked.path != ".":
        return asked.path, asked.pattern
    parts = PurePosixPath(asked.pattern).parts
    plain = next((n for n, part in enumerate(parts) if _WILDCARDS & set(part)), len(parts) - 1)
    return str(PurePosixPath(*parts[:plain])), "/" + "/".join(parts[plain:])


def _newest_first(folder: Path, paths: list[str]) -> list[str]:
    def age(path: str) -> tuple[int, str]:
        try:
            return -(folder / path).lstat().st_mtime_ns, path
        except OSError:  # gone, or its name is too long
            return 0, path

    return sorted(paths, key=age)


def _glob_reply(places: SessionPaths, base: Path, paths: list[str], *, whole: bool) -> ToolOutcome:
    if not paths:
        return ToolOutcome(
            text="(no such files)" if whole else "(none found before the time was up)"
        )
    shown = [base / path for path in paths[:GLOB_LIMIT]]
    notice = ""
    if len(paths) > GLOB_LIMIT or not whole:
        count = f"{len(paths)}{'' if whole else ' or more'}"
        notice = f"\n(the newest {len(shown)} of {count}: a narrower pattern tells the others)"
    return ToolOutcome(
        text="\n".join(places.name(path) for path in shown) + notice,
        locations=tuple(
            FileLocation(path=valid_unicode(str(path))) for path in shown[:GLOB_MAX_LOCATIONS]
        ),
    )
