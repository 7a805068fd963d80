"""Read: what is in this file?"""

import base64
import io
import os
import stat
from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from goent.agent.content import Location, Picture
from goent.agent.ports import Intent, Outcome, Report, ToolMistake
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.agent.tools.files import WHOLE, Files, in_thread, read_up_to
from goent.agent.tools.places import Place, kind_of, opened, printable, status_of, trouble
from goent.agent.tools.texts import SNIFFED, clean, kind_of_data
from goent.agent.tools.windows import LOOKED, Window, window
from goent.llm.talk import Image

LINES = 2000
ENTRIES = 1000
NAMES = 5000  # of a folder, that are looked at for one that is meant
PICTURE = 5_000_000  # bytes

DESCRIPTION = f"""Read a file, with line numbers. A folder is listed, an image is shown to you.
At most {LINES} lines come at once; the last line of the answer says how to go on. Long lines are cut.
The number and the tab before each line are not part of the file."""


class ReadArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Read."""

    file_path: Annotated[str, Meta(description="absolute, or relative to the working directory")]
    offset: Annotated[int, Meta(ge=0, description="number of the first line")] = 1
    limit: Annotated[int, Meta(ge=1, description="how many lines")] = LINES


def read_tool(files: Files) -> ToolOf[ReadArguments]:
    async def look(asked: ReadArguments) -> Prepared:
        place = files.places.find(asked.file_path)
        line = asked.offset if asked.offset > 1 else None
        intent = Intent(
            kind="read",
            title=f"Read {place.name}",
            need=place.reading,
            alone=False,
            locations=(Location(path=clean(str(place.known)), line=line),),
        )

        async def run(_: Report) -> Outcome:
            return await _read(files, place, asked)

        return Prepared(intent, run)

    return ToolOf("Read", ReadArguments, lambda: DESCRIPTION, look)


async def _read(files: Files, place: Place, asked: ReadArguments) -> Outcome:
    files.places.again(place)
    with trouble(place, "read"):
        status = status_of(place.path)
    if status is not None:
        if stat.S_ISDIR(status.st_mode):
            return Outcome(text=await in_thread(lambda: _listed(place)))
        if not stat.S_ISREG(status.st_mode):
            raise ToolMistake(f"{place.name!r} is {kind_of(status.st_mode)}: it cannot be read")
        special = await in_thread(lambda: _special(place, asked))
        if special is not None:
            return special
    return await _text(files, place, asked)


async def _text(files: Files, place: Place, asked: ReadArguments) -> Outcome:
    try:
        text = await files.load(place)
    except FileNotFoundError:
        raise ToolMistake(await in_thread(lambda: _missing(place))) from None
    files.seen.note(place.path, text)
    if not text.text:
        return Outcome(text=f"({place.name} is empty)")
    data = io.BytesIO(text.text.encode(errors="surrogateescape"))
    found = window(data, max(1, asked.offset), min(LINES, asked.limit))
    return Outcome(text=_told(place, found, odd=text.odd))


def _special(place: Place, asked: ReadArguments) -> Outcome | None:
    """What is no text, or too long to be read whole; None for an ordinary file."""
    with trouble(place, "read"), opened(place) as (file, status):
        head = os.read(file, SNIFFED)
        kind = kind_of_data(head)
        if kind and kind.startswith("image/"):
            return _picture(place, kind, status.st_size, file, head)
        if kind:
            return Outcome(text=f"({place.name} is no text: {kind}, {status.st_size:,} bytes)")
        if status.st_size <= WHOLE:
            return None
        with open(os.dup(file), "rb") as stream:  # noqa: PTH123 (a descriptor, no path)
            stream.seek(0)
            return Outcome(
                text=_told(place, window(stream, max(1, asked.offset), min(LINES, asked.limit)))
            )


def _picture(place: Place, kind: str, size: int, file: int, head: bytes) -> Outcome:
    if size > PICTURE:
        return Outcome(
            text=f"({place.name}: {kind}, {size:,} bytes: too large to be shown,"
            f" at most {PICTURE:,}. Scale it down with Bash.)"
        )
    data = base64.b64encode(head + read_up_to(file, PICTURE - len(head))).decode()
    return Outcome(
        text=f"({place.name}: {kind}, {size:,} bytes)",
        images=(Image(media_type=kind, data=data),),
        shown=(Picture(media_type=kind, data=data),),
    )


def _told(place: Place, found: Window, *, odd: bool = False) -> str:
    if not found.lines:
        if found.total is None:
            raise ToolMistake(
                f"line {found.first} of {place.name!r} lies behind the first {LOOKED:,} bytes:"
                " use Bash (sed -n, tail)"
            )
        raise ToolMistake(f"{place.name!r} has only {found.total} lines: offset {found.first}")
    notes: list[str] = []
    if found.total is None:
        notes.append(f"lines {found.first}-{found.last} of a very long file")
    elif (found.first, found.last) == (1, found.total):
        notes.append(f"{found.total} lines" if found.total > 1 else "1 line")
    else:
        notes.append(f"lines {found.first}-{found.last} of {found.total}")
    if found.last != found.total:
        notes.append(f"go on with offset {found.last + 1}")
    if odd:
        notes.append("not all of it is UTF-8: other bytes are shown as \N{REPLACEMENT CHARACTER}")
    return f"{found.numbered()}\n({'; '.join(notes)})"


def _listed(place: Place) -> str:
    with trouble(place, "list"), os.scandir(place.path) as entries:
        names = [
            printable(entry.name) + ("/" if entry.is_dir(follow_symlinks=False) else "")
            for entry in islice(entries, ENTRIES + 1)
        ]
    if not names:
        return f"({place.name} is an empty folder)"
    more = f"\n(more than {ENTRIES}: use Glob)" if len(names) > ENTRIES else ""
    return "\n".join(sorted(names[:ENTRIES])) + more


def _missing(place: Place) -> str:
    """Says what is there instead, if anything comes near."""
    from difflib import get_close_matches  # noqa: PLC0415 (only for a miss)

    parent = place.path.parent
    while not parent.is_dir():
        parent = parent.parent
    if parent != place.path.parent:
        return f"there is no {place.name!r}: there is not even its folder in {str(parent)!r}"
    try:
        names = [entry.name for entry in islice(os.scandir(parent), NAMES)]
    except OSError:
        names = []
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(place.path.name.casefold(), folded, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(repr(_beside(place, folded[name])) for name in near)}?"
    return f"there is no {place.name!r}.{hint if near else ' Glob finds files by pattern.'}"


def _beside(place: Place, name: str) -> str:
    return printable(str(Path(place.name).parent / name))
