"""The Grep and Glob tools, on ripgrep where it is installed, else on `fallback_search`.

Both programs write the same format. It is parsed as it arrives, and the search ends as soon as
there are enough results.
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

KERNEL_FOLDERS = ("proc", "sys", "dev")  # below `/`, without ordinary files


class PathFilter:
    """Selects paths, relative to the searched folder, by a glob pattern."""

    def __init__(self, pattern: str) -> None:
        try:
            ways = alternatives(pattern)
            self._glob = PathGlob(pattern) if pattern else None
        except TooManyAlternatives as error:
            raise ToolMistake(str(error)) from None
        parts = [part for way in ways for part in way.split("/")]
        if ".." in parts or "\0" in pattern or "\n" in pattern:
            raise ToolMistake(f"{pattern!r} cannot be searched for: give the folder as path")
        lasts = {way.rpartition("/")[2] for way in ways}
        self.names = () if lasts & {"", "**"} else tuple(sorted(lasts))
        self.hidden = any(part.startswith(".") and part != "." for part in parts)

    def __contains__(self, path: str) -> bool:
        return self._glob is None or self._glob.matches(path)


def is_searchable_folder(places: SessionPaths, place: SessionPath) -> bool:
    """True for a folder, False for a file. Raises `ToolMistake` if it cannot be searched."""
    places.recheck(place)
    if place.path.parts[1:2] and place.path.parts[1] in KERNEL_FOLDERS:
        raise ToolMistake(f"{place.name!r} belongs to the kernel: it has no files to search")
    with explain_os_errors(place, "search"):
        status = status_of(place.path)
    if status is None:
        raise ToolMistake(f"there is no {place.name!r} to search")
    if stat.S_ISDIR(status.st_mode):
        return True
    if not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is {file_kind(status.st_mode)}: it cannot be searched")
    return False


SEARCH_S = 20.0
MAX_LINE_CHARS = 500  # of a line that are shown
_MAX_RECORD_BYTES = 1 << 20
_GRACE_S = 0.5
_SOURCE_ROOT = str(Path(__file__).parents[3])
_FALLBACK_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from goent.agent.tools.fallback_search import main; main()"
_RECORD = re.compile(rb"([^\0]*)\0(\d+)(?:([:-])(.*))?", re.DOTALL)

_BAD_EXPRESSION = re.compile("regex|PCRE2|not allowed|parse error", re.IGNORECASE)

SearchMode = Literal["list", "files", "count", "content"]


class FileSearch(Value, frozen=True, kw_only=True):
    """A search. `names` are patterns of file names, any of which may match."""

    mode: SearchMode
    pattern: str = ""
    ignore_case: bool = False
    context: int = 0
    names: tuple[str, ...] = ()
    hidden: bool = False
    without: tuple[str, ...] = ()  # excluded entries of the folder itself


class SearchHit(Value, frozen=True, kw_only=True):
    """A line of a file; or a file, if `text` is None: `number` is then its count, if counted."""

    path: str
    number: int = 0
    text: str | None = None
    hit: bool = True


class FileSearcher:
    """Searches for one session."""

    def __init__(self, context: ToolContext) -> None:
        self._env = dict(context.environ)
        self._owner = context.owner
        self._ripgrep = find_absolute_program("rg", context.environ.get("PATH", os.defpath))

    async def search(
        self,
        folder: Path,
        search: FileSearch,
        take: Callable[[SearchHit], bool],
        *,
        start: str = "",
    ) -> bool:
        """Searches the folder, or only its file `start`, and passes each hit to `take`.

        False if `take` stopped the search by returning False, or the time was up. Raises
        `ToolMistake` for an invalid expression.
        """
        if folder == Path("/"):
            search = replace(search, without=KERNEL_FOLDERS)
        reader = _OutputReader(search.mode, take)
        command = self._command(search, folder, start)
        try:
            complete, errors = await self._run(command, folder, reader)
        except WorkerCrashed as error:
            complete, errors = True, str(error)
        if not errors or reader.found_any:
            return complete
        if self._ripgrep and not _BAD_EXPRESSION.search(errors):  # a ripgrep that is too old
            self._ripgrep = None
            return await self.search(folder, search, take, start=start)
        raise ToolMistake(f"{search.pattern!r} is not a valid expression: {errors}")

    async def _run(
        self, command: Sequence[str], folder: Path, reader: "_OutputReader"
    ) -> tuple[bool, str]:
        """Whether the search was complete, and its errors if it failed."""
        complete, code = False, 0
        async with supervised(
            command, cwd=folder, env=self._env, mark=new_mark(self._owner), grace=_GRACE_S
        ) as process:
            with anyio.move_on_after(SEARCH_S):
                complete = await reader.read_all(process.stdout)
                if complete:
                    code = await wait_for_exit(process)
            if not complete:
                send_signal(process.pid, signal.SIGKILL)
            errors = process.stderr
        return complete, errors if code not in (0, 1) else ""

    def _command(self, search: FileSearch, folder: Path, start: str) -> list[str]:
        if self._ripgrep:
            # Outside a repository ripgrep reads ignore files only with this flag; inside one, the
            # flag would make it read those above the repository, too.
            in_repository = any((each / ".git").exists() for each in (folder, *folder.parents))
            flags = (*(() if in_repository else ("--no-require-git",)), *_flags(search))
            return [self._ripgrep, *flags, "--", f"./{start}"]
        request = msgspec.json.encode(search).decode()
        return [sys.executable, "-I", "-S", "-c", _FALLBACK_CODE, _SOURCE_ROOT, request, start]


def _flags(search: FileSearch) -> Iterator[str]:
    yield from ("--no-config", "--no-messages", "--color=never", "--null")
    yield "--sort=path"  # for the same result each time
    if search.hidden:
        yield from ("--hidden", "--glob=!.git")
    yield from (f"--glob=!/{name}" for name in search.without)
    # With `--glob` ripgrep would search ignored files; with a type, ignore files still apply.
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
    """Parses a search's output into hits."""

    def __init__(self, mode: SearchMode, take: Callable[[SearchHit], bool]) -> None:
        self._end = b"\0" if mode in ("list", "files") else b"\n"
        self._take = take
        self._unread = b""
        self._partial_record = b""
        self.found_any = False

    async def read_all(self, pipe: ByteReceiveStream) -> bool:
        """Reads to the end; False if `take` stopped it."""
        try:
            while True:
                for hit in self._parse(await pipe.receive()):
                    if not self._take(hit):
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
GREP_MAX_CHARS = 30_000
GREP_TITLE_CHARS = 100
GREP_MAX_LOCATIONS = 20  # files that an editor can follow

GREP_DESCRIPTION = """Search files for a regular expression, line by line. Ignored (.gitignore), hidden and binary files are skipped.
output_mode content returns the lines with their numbers, files only the files, count the number of lines in each."""

OutputMode = Literal["content", "files", "count"]


class GrepArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Grep."""

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
            raise ToolMistake(
                "the pattern contains a line break, but lines are searched one by one"
            )
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
            reply = _GrepReply(places, place, asked, folder=is_searchable_folder(places, place))
            search = FileSearch(
                mode=asked.output_mode,
                pattern=asked.pattern,
                ignore_case=asked.case_insensitive,
                context=asked.context,
                names=selected.names if reply.folder else (),
                hidden=selected.hidden,
            )

            def take(hit: SearchHit) -> bool:
                return (reply.folder and hit.path not in selected) or reply.take(hit)

            folder, start = place.path, ""
            if not reply.folder:
                folder, start = place.path.parent, place.path.name
            complete = await searcher.search(folder, search, take, start=start)
            return reply.outcome(complete=complete)

        return ToolInvocation(intent, run)

    return TypedTool("Grep", GrepArguments, lambda: GREP_DESCRIPTION, look)


class _GrepReply:
    """Collects the hits of a Grep call into its result."""

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

    def take(self, hit: SearchHit) -> bool:
        """False if there are enough hits."""
        if self._room <= 0 or (self._hits >= self._limit and not self._is_context(hit)):
            return False
        last, self._last = self._last, hit
        new = last is None or last.path != hit.path
        path = self._base / hit.path
        if new and len(self._locations) < GREP_MAX_LOCATIONS:
            line = hit.number if hit.text is not None else None
            self._locations.append(FileLocation(path=valid_unicode(str(path)), line=line))
        if hit.text is None:
            count = f": {hit.number}" if hit.number else ""
            self._add(f"{self._places.name(path)}{count}")
        else:
            if new:
                self._add(f"{chr(10) if last else ''}{self._places.name(path)}")
            elif last and self._asked.context and hit.number != last.number + 1:
                self._add("--")
            self._add(f"{hit.number}{':' if hit.hit else '-'}{hit.text}")
        self._hits += hit.hit
        self._last_hit = hit if hit.hit else self._last_hit
        return True

    def _is_context(self, line: SearchHit) -> bool:
        """Whether the line belongs to the context after the last match."""
        match = self._last_hit
        if line.hit or match is None or match.path != line.path:
            return False
        return line.number <= match.number + self._asked.context

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._room -= len(line) + 1

    def outcome(self, *, complete: bool) -> ToolOutcome:
        if not self._lines:
            late = "" if complete else " before the time was up: narrow the search"
            return ToolOutcome(text=f"(nothing found{late})")
        notice = "" if complete else "\n(there is more: narrow the search, or raise head_limit)"
        return ToolOutcome(text="\n".join(self._lines) + notice, locations=tuple(self._locations))


GLOB_LIMIT = 100
GLOB_MAX_COMPARED = 100_000  # files whose times are compared
GLOB_MAX_LOCATIONS = 20
_WILDCARDS = frozenset("*?[{")

GLOB_DESCRIPTION = f"""Find files by a pattern of their paths: **/*.py, src/**/test_*.{{ts,tsx}}. A pattern without / matches names in any folder.
Ignored files (.gitignore) are skipped, and hidden ones unless the pattern names them. Newest first, at most {GLOB_LIMIT}."""


class GlobArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Glob."""

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
                raise ToolMistake(f"{place.name!r} is a file: Glob searches folders")
            found: list[str] = []

            def take(hit: SearchHit) -> bool:
                if hit.path in selected:
                    found.append(hit.path)
                return len(found) < GLOB_MAX_COMPARED

            search = FileSearch(mode="list", names=selected.names, hidden=selected.hidden)
            complete = await searcher.search(place.path, search, take)
            newest = await in_thread(lambda: _newest_first(place.path, found))
            return _glob_reply(places, place.client_path, newest, complete=complete)

        return ToolInvocation(intent, run)

    return TypedTool("Glob", GlobArguments, lambda: GLOB_DESCRIPTION, look)


def _split_pattern(asked: GlobArguments) -> tuple[str, str]:
    """Folder and pattern; the beginning of an absolute pattern is its folder."""
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


def _glob_reply(
    places: SessionPaths, base: Path, paths: list[str], *, complete: bool
) -> ToolOutcome:
    if not paths:
        text = "(no such files)" if complete else "(none found before the time was up)"
        return ToolOutcome(text=text)
    shown = [base / path for path in paths[:GLOB_LIMIT]]
    notice = ""
    if len(paths) > GLOB_LIMIT or not complete:
        count = f"{len(paths)}{'' if complete else ' or more'}"
        notice = f"\n(the newest {len(shown)} of {count}: use a narrower pattern for others)"
    locations = (FileLocation(path=valid_unicode(str(p))) for p in shown[:GLOB_MAX_LOCATIONS])
    return ToolOutcome(
        text="\n".join(places.name(path) for path in shown) + notice, locations=tuple(locations)
    )
