"""Edit: replace this part of a file with that."""

from typing import Annotated

from msgspec import Meta

from goent.agent.content import Location
from goent.agent.ports import Intent, Outcome, Report, ToolMistake
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.agent.tools.files import Files, difference, in_thread, replacement
from goent.agent.tools.places import Place
from goent.agent.tools.replacing import NotReplaced, Replaced, replaced
from goent.agent.tools.texts import Written, clean

DESCRIPTION = """Replace a part of a file. old_string must be in it exactly, spaces included, and only once: give as many lines as that takes.
replace_all replaces it everywhere. Line endings of the file are kept."""


class EditArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Edit."""

    file_path: Annotated[str, Meta(description="absolute, or relative to the working directory")]
    old_string: Annotated[str, Meta(description="what is there now, without line numbers")]
    new_string: Annotated[str, Meta(description="what shall be there instead")]
    replace_all: Annotated[bool, Meta(description="every place, not just one")] = False


class _Edited(Replaced, frozen=True, kw_only=True):
    before: Written
    after: Written


def edit_tool(files: Files) -> ToolOf[EditArguments]:
    async def look(asked: EditArguments) -> Prepared:
        if asked.old_string == asked.new_string:
            raise ToolMistake("old_string and new_string are the same: nothing would change")
        if not asked.old_string:
            raise ToolMistake("old_string is empty: say what is to be replaced, or use Write")
        place = files.places.find(asked.file_path)
        # What lies outside is not looked at before somebody has permitted it.
        known = place.root or files.seen.knows(place.path)
        planned = await _edited(files, place, asked) if known else None
        intent = Intent(
            kind="edit",
            title=f"Edit {place.name}",
            need=place.writing,
            shown=(
                difference(place, planned.before, planned.after)
                if planned
                else replacement(place, asked.old_string, asked.new_string),
            ),
            locations=_locations(place, planned),
        )

        async def run(_: Report) -> Outcome:
            edited = await _edited(files, place, asked)
            await files.save(place, edited.after)
            times = f"{edited.count} times, first " if edited.count > 1 else ""
            return Outcome(
                text=f"Edited {place.name} ({times}in line {edited.line})",
                shown=(difference(place, edited.before, edited.after),),
                locations=_locations(place, edited),
            )

        return Prepared(intent, run)

    return ToolOf("Edit", EditArguments, lambda: DESCRIPTION, look)


async def _edited(files: Files, place: Place, asked: EditArguments) -> _Edited:
    try:
        before = await files.load(place)
    except FileNotFoundError:
        raise ToolMistake(f"there is no {place.name!r} to edit: Write makes a new file") from None
    if files.seen.knows(place.path) and not files.seen.is_current(place.path, before):
        raise ToolMistake(f"{place.name!r} has changed since you read it: Read it again")
    if before.odd and not asked.new_string.isascii():
        raise ToolMistake(f"{place.name!r} is not UTF-8: Edit can put only ASCII into it")
    try:
        done = await in_thread(
            lambda: replaced(
                before.text, asked.old_string, asked.new_string, everywhere=asked.replace_all
            )
        )
    except NotReplaced as miss:
        raise ToolMistake(clean(f"{place.name}: {miss}")) from None
    return _Edited(
        text=done.text,
        line=done.line,
        count=done.count,
        before=before,
        after=Written(text=done.text, marked=before.marked),
    )


def _locations(place: Place, edited: _Edited | None) -> tuple[Location, ...]:
    return (Location(path=clean(str(place.known)), line=edited.line if edited else None),)
