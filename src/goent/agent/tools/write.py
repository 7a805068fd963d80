"""Write: make this file, or replace what is in it."""

import stat
from typing import Annotated

from msgspec import Meta

from goent.agent.content import Location
from goent.agent.ports import Intent, Outcome, Report, ToolMistake
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.agent.tools.files import Files, difference
from goent.agent.tools.places import Place, kind_of, status_of, trouble
from goent.agent.tools.texts import Written, clean, written

DESCRIPTION = """Write a whole file. Folders are made as needed.
A file that exists must have been read before; to change a part of it, Edit is better."""


class WriteArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Write."""

    file_path: Annotated[str, Meta(description="absolute, or relative to the working directory")]
    content: Annotated[str, Meta(description="all that the file shall contain")]


def write_tool(files: Files) -> ToolOf[WriteArguments]:
    async def look(asked: WriteArguments) -> Prepared:
        place = files.places.find(asked.file_path)
        new = written(asked.content)
        # What lies outside is not looked at before somebody has permitted it.
        known = place.root or files.seen.knows(place.path)
        old = await _replaced(files, place) if known else None
        intent = Intent(
            kind="edit",
            title=f"Write {place.name}",
            need=place.writing,
            shown=(difference(place, old, new),),
            locations=(Location(path=clean(str(place.known))),),
        )

        async def run(_: Report) -> Outcome:
            before = await _replaced(files, place)
            await files.save(place, new)
            return Outcome(
                text=f"{'Replaced' if before else 'Created'} {place.name} ({_lines(new.text)})",
                shown=(difference(place, before, new),),
                locations=intent.locations,
            )

        return Prepared(intent, run)

    return ToolOf("Write", WriteArguments, lambda: DESCRIPTION, look)


async def _replaced(files: Files, place: Place) -> Written | None:
    """What is there now, which the model must know; None if nothing is."""
    with trouble(place, "write"):
        status = status_of(place.path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is {kind_of(status.st_mode)}: it cannot be written")
    try:
        old = await files.load(place)
    except FileNotFoundError:
        return None
    if not files.seen.knows(place.path):
        raise ToolMistake(f"{place.name!r} exists, and you have not read it: Read it first")
    if not files.seen.is_current(place.path, old):
        raise ToolMistake(f"{place.name!r} has changed since you read it: Read it again")
    return old


def _lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    return "1 line" if count == 1 else f"{count} lines"
