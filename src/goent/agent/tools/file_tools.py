"""The Read, Edit and Write tools.

Of a long file only the shown lines are kept in memory, and at most `MAX_SCANNED_BYTES` are read.
Edits keep a file's line endings: a model writes line feeds, whichever the file has.
"""

import base64
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, get_close_matches
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Meta

from goent.agent.agent_events import FileLocation, ImagePart
from goent.agent.agent_ports import (
    OnToolProgress,
    ToolIntent,
    ToolInvocation,
    ToolMistake,
    ToolOutcome,
)
from goent.agent.tools.session_files import (
    MAX_WHOLE_BYTES,
    SNIFFED_BYTES,
    FileText,
    SessionFiles,
    SessionPath,
    binary_kind,
    decode_text,
    explain_os_errors,
    file_diff,
    file_kind,
    in_thread,
    open_regular_file,
    partial_diff,
    printable,
    read_up_to,
    status_of,
    valid_unicode,
)
from goent.agent.tools.typed_tool import ToolArguments, TypedTool
from goent.domain.types import Value
from goent.providers.model_messages import MessageImage

MAX_LINE_CHARS = 2000  # of a line that are shown
MAX_SHOWN_BYTES = 80_000  # of a file in one result
MAX_SCANNED_BYTES = 256_000_000  # to find a line, or to count the lines after it
CHUNK = 1 << 20
_MAX_LINE_BYTES = 4 * MAX_LINE_CHARS  # in UTF-8


class FileWindow(Value, frozen=True, kw_only=True):
    """Lines of a file from number `first`. `total` is None if the end is too far away."""

    first: int
    lines: tuple[bytes, ...]
    total: int | None

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    def numbered(self) -> str:
        """The lines as `cat -n` prints them."""
        pairs = enumerate(self.lines, start=self.first)
        return "\n".join(f"{number:>6}\t{_shown_line(line)}" for number, line in pairs)


def read_window(file: BinaryIO, first: int, limit: int) -> FileWindow:
    skipped = _skip_lines(file, first - 1)
    if skipped < first - 1:
        total = None if file.tell() > MAX_SCANNED_BYTES else skipped
        return FileWindow(first=first, lines=(), total=total)
    lines: list[bytes] = []
    room = MAX_SHOWN_BYTES
    while len(lines) < limit and room > 0 and (line := file.readline(_MAX_LINE_BYTES)):
        room -= len(line)
        lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
        if not line.endswith(b"\n") and not _skip_line(file):
            return FileWindow(first=first, lines=tuple(lines), total=None)
    after = _count_lines(file)
    total = None if after is None else skipped + len(lines) + after
    return FileWindow(first=first, lines=tuple(lines), total=total)


def _skip_lines(file: BinaryIO, wanted: int) -> int:
    """Skips that many lines, or to the end; returns how many. By chunks, as reading lines is slow."""
    skipped, start = 0, 0
    while skipped < wanted and start <= MAX_SCANNED_BYTES and (chunk := file.read(CHUNK)):
        inside = chunk.count(b"\n")
        if skipped + inside >= wanted:
            cut = -1
            for _ in range(wanted - skipped):
                cut = chunk.find(b"\n", cut + 1)
            file.seek(start + cut + 1)
            return wanted
        skipped, start = skipped + inside, start + len(chunk)
        if len(chunk) < CHUNK and not chunk.endswith(b"\n"):
            skipped += 1  # the last line, without an ending
    return skipped


def _skip_line(file: BinaryIO) -> bool:
    """Skips to the end of the line; False if it is too far away."""
    while file.tell() <= MAX_SCANNED_BYTES:
        piece = file.readline(CHUNK)
        if not piece or piece.endswith(b"\n"):
            return True
    return False


def _count_lines(file: BinaryIO) -> int | None:
    count, last = 0, b"\n"
    while chunk := file.read(CHUNK):
        if file.tell() > MAX_SCANNED_BYTES:
            return None
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


def _shown_line(line: bytes) -> str:
    text = line.decode(errors="replace")
    cut = len(text) > MAX_LINE_CHARS
    return f"{text[:MAX_LINE_CHARS]} [cut: the line is longer]" if cut else text


MAX_LINES = 2000
MAX_ENTRIES = 1000
MAX_NAMES = 5000  # of a folder that are compared with a misspelt name
MAX_IMAGE_BYTES = 5_000_000

READ_DESCRIPTION = f"""Read a file, with line numbers. A folder is listed, an image is shown to you.
Returns at most {MAX_LINES} lines; the last line of the result says how to continue. Long lines are cut.
The number and the tab before each line are not part of the file."""


class ReadArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Read."""

    file_path: Annotated[str, Meta(description="absolute, or relative to the working directory")]
    offset: Annotated[int, Meta(ge=0, description="number of the first line")] = 1
    limit: Annotated[int, Meta(ge=1, description="how many lines")] = MAX_LINES


def read_tool(files: SessionFiles) -> TypedTool[ReadArguments]:
    async def look(asked: ReadArguments) -> ToolInvocation:
        place = files.places.resolve(asked.file_path)
        line = asked.offset if asked.offset > 1 else None
        intent = ToolIntent(
            kind="read",
            title=f"Read {place.name}",
            need=place.read_need,
            runs_alone=False,
            locations=(FileLocation(path=valid_unicode(str(place.client_path)), line=line),),
        )

        async def run(_: OnToolProgress) -> ToolOutcome:
            return await _read_path(files, place, asked)

        return ToolInvocation(intent, run)

    return TypedTool("Read", ReadArguments, lambda: READ_DESCRIPTION, look)


async def _read_path(files: SessionFiles, place: SessionPath, asked: ReadArguments) -> ToolOutcome:
    files.places.recheck(place)
    with explain_os_errors(place, "read"):
        status = status_of(place.path)
    if status is not None:
        if stat.S_ISDIR(status.st_mode):
            return ToolOutcome(text=await in_thread(lambda: _list_folder(place)))
        if not stat.S_ISREG(status.st_mode):
            raise ToolMistake(f"{place.name!r} is {file_kind(status.st_mode)}: it cannot be read")
        special = await in_thread(lambda: _read_special(place, asked))
        if special is not None:
            return special
    return await _read_text(files, place, asked)


async def _read_text(files: SessionFiles, place: SessionPath, asked: ReadArguments) -> ToolOutcome:
    try:
        text = await files.load(place)
    except FileNotFoundError:
        raise ToolMistake(await in_thread(lambda: _explain_missing_file(place))) from None
    files.seen.remember(place.path, text)
    if not text.text:
        return ToolOutcome(text=f"({place.name} is empty)")
    data = io.BytesIO(text.text.encode(errors="surrogateescape"))
    window = read_window(data, max(1, asked.offset), min(MAX_LINES, asked.limit))
    return ToolOutcome(text=_numbered_text(place, window, invalid=text.has_invalid_utf8))


def _read_special(place: SessionPath, asked: ReadArguments) -> ToolOutcome | None:
    """Reads a file that is binary, or too long to be read whole; None for an ordinary one."""
    with explain_os_errors(place, "read"), open_regular_file(place) as (file, status):
        head = os.read(file, SNIFFED_BYTES)
        kind = binary_kind(head)
        if kind and kind.startswith("image/"):
            return _read_image(place, kind, status.st_size, file, head)
        if kind:
            return ToolOutcome(text=f"({place.name} is not text: {kind}, {status.st_size:,} bytes)")
        if status.st_size <= MAX_WHOLE_BYTES:
            return None
        with open(os.dup(file), "rb") as stream:  # noqa: PTH123 (a descriptor, not a path)
            stream.seek(0)
            window = read_window(stream, max(1, asked.offset), min(MAX_LINES, asked.limit))
            return ToolOutcome(text=_numbered_text(place, window))


def _read_image(place: SessionPath, kind: str, size: int, file: int, head: bytes) -> ToolOutcome:
    if size > MAX_IMAGE_BYTES:
        return ToolOutcome(
            text=f"({place.name}: {kind}, {size:,} bytes, too large to be shown: the limit is"
            f" {MAX_IMAGE_BYTES:,}. Scale it down with Bash.)"
        )
    data = base64.b64encode(head + read_up_to(file, MAX_IMAGE_BYTES - len(head))).decode()
    return ToolOutcome(
        text=f"({place.name}: {kind}, {size:,} bytes)",
        images=(MessageImage(media_type=kind, data=data),),
        shown=(ImagePart(media_type=kind, data=data),),
    )


def _numbered_text(place: SessionPath, window: FileWindow, *, invalid: bool = False) -> str:
    first, last, total = window.first, window.last, window.total
    if not window.lines:
        if total is None:
            raise ToolMistake(
                f"line {first} of {place.name!r} is beyond the first {MAX_SCANNED_BYTES:,} bytes:"
                " use Bash (sed -n, tail)"
            )
        raise ToolMistake(f"{place.name!r} has only {total} lines: offset {first} is too large")
    if total is None:
        notes = [f"lines {first}-{last} of a very long file"]
    elif (first, last) == (1, total):
        notes = [f"{total} lines" if total > 1 else "1 line"]
    else:
        notes = [f"lines {first}-{last} of {total}"]
    if last != total:
        notes.append(f"continue with offset {last + 1}")
    if invalid:
        notes.append("not all of it is UTF-8: other bytes are shown as \N{REPLACEMENT CHARACTER}")
    return f"{window.numbered()}\n({'; '.join(notes)})"


def _list_folder(place: SessionPath) -> str:
    with explain_os_errors(place, "list"), os.scandir(place.path) as entries:
        names = [
            printable(entry.name) + ("/" if entry.is_dir(follow_symlinks=False) else "")
            for entry in islice(entries, MAX_ENTRIES + 1)
        ]
    if not names:
        return f"({place.name} is an empty folder)"
    more = f"\n(more than {MAX_ENTRIES}: use Glob)" if len(names) > MAX_ENTRIES else ""
    return "\n".join(sorted(names[:MAX_ENTRIES])) + more


def _explain_missing_file(place: SessionPath) -> str:
    """Suggests similar names, if there are any."""
    parent = place.path.parent
    while not parent.is_dir():
        parent = parent.parent
    if parent != place.path.parent:
        return f"there is no {place.name!r}: its folder does not exist in {str(parent)!r}"
    try:
        names = [entry.name for entry in islice(os.scandir(parent), MAX_NAMES)]
    except OSError:
        names = []
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(place.path.name.casefold(), folded, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(repr(_sibling(place, folded[name])) for name in near)}?"
    return f"there is no {place.name!r}.{hint if near else ' Glob finds files by pattern.'}"


def _sibling(place: SessionPath, name: str) -> str:
    return printable(str(Path(place.name).parent / name))


MAX_NEAR_MATCHES = 3  # that are shown when the old text is not found
MAX_COMPARED_LINES = 20_000  # that are searched for them
MAX_CLOSE_COMPARISONS = 50  # of which are compared closely, which is slow
COMPARED_CHARS = 200  # of a line
MIN_SIMILARITY = 0.6  # as in `difflib`
MAX_NAMED_LINES = 10  # that are named when the old text is found more than once
_NUMBERED = re.compile(r" *\d+\t")


class ReplacementError(Exception):
    """Nothing was replaced; the message says why, and what may help."""


class TextReplacement(Value, frozen=True, kw_only=True):
    """The new text; `line` is the first changed one."""

    text: str
    line: int
    count: int


def replace_text(text: str, old: str, new: str, *, everywhere: bool = False) -> TextReplacement:
    """Raises `ReplacementError`."""
    # Where lines end in CR LF, a line feed alone would match inside an ending.
    spans = [] if "\r\n" in text else list(_spans(text, old))
    if not spans:
        old, new = _as_lines(old), _as_lines(new)
        spans = list(_spans_of_any_ending(text, old))
    if not spans and old.endswith("\n") and text.endswith(old[:-1]):  # the last line, unterminated
        spans, new = [(len(text) - len(old) + 1, len(text))], new.removesuffix("\n")
    if not spans:
        raise ReplacementError(explain_missing_text(text, old))
    if len(spans) > 1 and not everywhere:
        raise ReplacementError(_explain_ambiguous(text, spans))
    pieces, end = list[str](), 0
    for start, stop in spans:
        pieces += text[end:start], _with_endings_of(text, start, new)
        end = stop
    return TextReplacement(
        text="".join([*pieces, text[end:]]), line=_line_number(text, spans[0][0]), count=len(spans)
    )


def _spans(text: str, old: str) -> Iterator[tuple[int, int]]:
    start = text.find(old)
    while start >= 0:
        yield start, start + len(old)
        start = text.find(old, start + len(old))


def _spans_of_any_ending(text: str, old: str) -> Iterator[tuple[int, int]]:
    pattern = r"\r?\n".join(map(re.escape, old.split("\n")))
    return (match.span() for match in re.finditer(pattern, text))


def _as_lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _with_endings_of(text: str, start: int, new: str) -> str:
    """The new text with the line endings of the line in which it begins, or the one before."""
    end = text.find("\n", start)
    if end < 0:
        end = text.rfind("\n", 0, start)
    if end > 0 and text[end - 1] == "\r":
        return _as_lines(new).replace("\n", "\r\n")
    return new


def _line_number(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _explain_ambiguous(text: str, spans: Sequence[tuple[int, int]]) -> str:
    lines = ", ".join(str(_line_number(text, start)) for start, _ in spans[:MAX_NAMED_LINES])
    more = ", ..." if len(spans) > MAX_NAMED_LINES else ""
    return (
        f"old_string is found {len(spans)} times, in lines {lines}{more}: add surrounding lines"
        " until it is unique, or set replace_all"
    )


def explain_missing_text(text: str, old: str) -> str:
    """Why the old text is not found, as far as can be seen."""
    wanted = old.split("\n")
    if not old.strip():
        return "old_string is only whitespace, and not found: add the lines around it"
    if all(_NUMBERED.match(line) for line in wanted if line):
        return "old_string is not found: leave out the line numbers and tabs that Read adds"
    lines = list(islice((line.rstrip("\r") for line in text.split("\n")), MAX_COMPARED_LINES))
    if (found := _find_ignoring_spaces(lines, wanted)) is not None:
        shown = _numbered_lines(lines, found, found + len(_without_spaces(wanted)))
        return f"old_string is not found, but this differs only in spaces or tabs:\n{shown}"
    near = sorted(_similar_lines(lines, wanted))
    if not near:
        return "old_string is not found, nor anything similar: Read the file again"
    shown = "\n".join(_numbered_lines(lines, start, start + 1) for start in near)
    return f"old_string is not found. The most similar lines:\n{shown}"


def _find_ignoring_spaces(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    sought = _without_spaces(wanted)
    bare = ["".join(line.split()) for line in lines]
    starts = (n for n, line in enumerate(bare) if line == sought[0])
    return next((n for n in starts if bare[n : n + len(sought)] == sought), None)


def _without_spaces(wanted: Sequence[str]) -> list[str]:
    return "\n".join("".join(line.split()) for line in wanted).strip("\n").split("\n")


def _similar_lines(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The numbers of lines that are similar to the longest wanted one."""
    longest = max(wanted, key=len).strip()[:COMPARED_CHARS]
    matcher = SequenceMatcher(b=longest, autojunk=False)

    def upper_bound(line: str) -> float:
        matcher.set_seq1(line.strip()[:COMPARED_CHARS])
        return min(matcher.real_quick_ratio(), matcher.quick_ratio())

    def similarity(line: str) -> float:
        matcher.set_seq1(line.strip()[:COMPARED_CHARS])
        return matcher.ratio()

    bounds = ((upper_bound(line), -n) for n, line in enumerate(lines))
    candidates = nlargest(MAX_CLOSE_COMPARISONS, bounds)
    scored = [(similarity(lines[-n]), n) for bound, n in candidates if bound > MIN_SIMILARITY]
    return [-n for ratio, n in nlargest(MAX_NEAR_MATCHES, scored) if ratio > MIN_SIMILARITY]


def _numbered_lines(lines: Sequence[str], start: int, end: int) -> str:
    pairs = enumerate(lines[start : min(end, start + MAX_NAMED_LINES)], start=start + 1)
    return "\n".join(f"{number:>6}\t{line[:500]}" for number, line in pairs)


EDIT_DESCRIPTION = """Replace a part of a file. old_string must match exactly, spaces included, and only once: give as many lines as that takes.
replace_all replaces every occurrence. Line endings of the file are kept."""


class EditArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Edit."""

    file_path: Annotated[str, Meta(description="absolute, or relative to the working directory")]
    old_string: Annotated[str, Meta(description="the current text, without line numbers")]
    new_string: Annotated[str, Meta(description="the text to put in its place")]
    replace_all: Annotated[bool, Meta(description="replace every occurrence")] = False


class _EditedText(TextReplacement, frozen=True, kw_only=True):
    before: FileText
    after: FileText


def edit_tool(files: SessionFiles) -> TypedTool[EditArguments]:
    async def look(asked: EditArguments) -> ToolInvocation:
        if asked.old_string == asked.new_string:
            raise ToolMistake("old_string and new_string are the same: nothing would change")
        if not asked.old_string:
            raise ToolMistake("old_string is empty: give the text to replace, or use Write")
        place = files.places.resolve(asked.file_path)
        # A file outside is not read before the user has permitted it.
        known = place.root or files.seen.knows(place.path)
        planned = await _apply_edit(files, place, asked) if known else None
        intent = ToolIntent(
            kind="edit",
            title=f"Edit {place.name}",
            need=place.write_need,
            shown=(
                file_diff(place, planned.before, planned.after)
                if planned
                else partial_diff(place, asked.old_string, asked.new_string),
            ),
            locations=_edit_locations(place, planned),
        )

        async def run(_: OnToolProgress) -> ToolOutcome:
            edited = await _apply_edit(files, place, asked)
            await files.save(place, edited.after)
            times = f"{edited.count} times, first " if edited.count > 1 else ""
            return ToolOutcome(
                text=f"Edited {place.name} ({times}in line {edited.line})",
                shown=(file_diff(place, edited.before, edited.after),),
                locations=_edit_locations(place, edited),
            )

        return ToolInvocation(intent, run)

    return TypedTool("Edit", EditArguments, lambda: EDIT_DESCRIPTION, look)


async def _apply_edit(files: SessionFiles, place: SessionPath, asked: EditArguments) -> _EditedText:
    try:
        before = await files.load(place)
    except FileNotFoundError:
        raise ToolMistake(f"there is no {place.name!r} to edit: use Write for a new file") from None
    if files.seen.knows(place.path) and not files.seen.is_current(place.path, before):
        raise ToolMistake(f"{place.name!r} has changed since you read it: Read it again")
    if before.has_invalid_utf8 and not asked.new_string.isascii():
        raise ToolMistake(f"{place.name!r} is not UTF-8: Edit can insert only ASCII")
    try:
        done = await in_thread(
            lambda: replace_text(
                before.text, asked.old_string, asked.new_string, everywhere=asked.replace_all
            )
        )
    except ReplacementError as miss:
        raise ToolMistake(valid_unicode(f"{place.name}: {miss}")) from None
    return _EditedText(
        text=done.text,
        line=done.line,
        count=done.count,
        before=before,
        after=FileText(text=done.text, has_bom=before.has_bom),
    )


def _edit_locations(place: SessionPath, edited: _EditedText | None) -> tuple[FileLocation, ...]:
    line = edited.line if edited else None
    return (FileLocation(path=valid_unicode(str(place.client_path)), line=line),)


WRITE_DESCRIPTION = """Write a whole file. Folders are created as needed.
An existing file must have been read before; to change a part of it, Edit is better."""


class WriteArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Write."""

    file_path: Annotated[str, Meta(description="absolute, or relative to the working directory")]
    content: Annotated[str, Meta(description="the whole content of the file")]


def write_tool(files: SessionFiles) -> TypedTool[WriteArguments]:
    async def look(asked: WriteArguments) -> ToolInvocation:
        place = files.places.resolve(asked.file_path)
        new = decode_text(asked.content)
        # A file outside is not read before the user has permitted it.
        known = place.root or files.seen.knows(place.path)
        old = await _text_to_replace(files, place) if known else None
        intent = ToolIntent(
            kind="edit",
            title=f"Write {place.name}",
            need=place.write_need,
            shown=(file_diff(place, old, new),),
            locations=(FileLocation(path=valid_unicode(str(place.client_path))),),
        )

        async def run(_: OnToolProgress) -> ToolOutcome:
            before = await _text_to_replace(files, place)
            await files.save(place, new)
            return ToolOutcome(
                text=f"{'Replaced' if before else 'Created'} {place.name} ({_line_count(new.text)})",
                shown=(file_diff(place, before, new),),
                locations=intent.locations,
            )

        return ToolInvocation(intent, run)

    return TypedTool("Write", WriteArguments, lambda: WRITE_DESCRIPTION, look)


async def _text_to_replace(files: SessionFiles, place: SessionPath) -> FileText | None:
    """The current text, which the model must have read; None if there is no file."""
    with explain_os_errors(place, "write"):
        status = status_of(place.path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is {file_kind(status.st_mode)}: it cannot be written")
    try:
        old = await files.load(place)
    except FileNotFoundError:
        return None
    if not files.seen.knows(place.path):
        raise ToolMistake(f"{place.name!r} exists, but you have not read it: Read it first")
    if not files.seen.is_current(place.path, old):
        raise ToolMistake(f"{place.name!r} has changed since you read it: Read it again")
    return old


def _line_count(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    return "1 line" if count == 1 else f"{count} lines"
