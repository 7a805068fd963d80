"""Grep: where is this in the files?"""

from typing import Annotated, Literal

from msgspec import Meta

from goent.agent.content import Location
from goent.agent.ports import Intent, Outcome, Report, ToolMistake
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.agent.tools.places import Place, Places, printable
from goent.agent.tools.searching import Found, Search, Searcher
from goent.agent.tools.selecting import Selected, searchable
from goent.agent.tools.texts import clean

LIMIT = 200
MOST = 2000
SHOWN = 30_000  # characters
TITLE = 100
FOLLOWED = 20  # files that an editor is told of

DESCRIPTION = """Search files for a regular expression, line by line. What .gitignore names, hidden and binary files are passed over.
output_mode content tells the lines with their numbers, files only which files, count how many lines in each."""

OutputMode = Literal["content", "files", "count"]


class GrepArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Grep."""

    pattern: Annotated[str, Meta(min_length=1, description="regular expression")]
    path: Annotated[str, Meta(description="file or folder; default: the working directory")] = "."
    glob: Annotated[str, Meta(description="which files, such as *.py or src/**/*.{ts,tsx}")] = ""
    output_mode: Annotated[
        OutputMode, Meta(description="matching lines, names of files, or lines per file")
    ] = "content"
    case_insensitive: Annotated[bool, Meta(description="ignore case")] = False
    context: Annotated[int, Meta(ge=0, le=50, description="lines around each match")] = 0
    head_limit: Annotated[int, Meta(ge=1, description="matches or files at most")] = LIMIT


def grep_tool(places: Places, searcher: Searcher) -> ToolOf[GrepArguments]:
    async def look(asked: GrepArguments) -> Prepared:
        if "\n" in asked.pattern or "\0" in asked.pattern:
            raise ToolMistake("lines are searched one by one: the pattern has a line break in it")
        place = places.find(asked.path)
        selected = Selected(asked.glob)
        where = "" if asked.path == "." else f" in {place.name}"
        intent = Intent(
            kind="search",
            title=f"Grep {printable(asked.pattern)[:TITLE]}{where}",
            need=place.reading,
            alone=False,
        )

        async def run(_: Report) -> Outcome:
            told = _Told(places, place, asked, folder=searchable(places, place))
            search = Search(
                mode=asked.output_mode,
                pattern=asked.pattern,
                ignore_case=asked.case_insensitive,
                context=asked.context,
                names=selected.names if told.folder else (),
                hidden=selected.hidden,
            )

            def take(found: Found) -> bool:
                return (told.folder and found.path not in selected) or told.take(found)

            folder, start = place.path, ""
            if not told.folder:
                folder, start = place.path.parent, place.path.name
            whole = await searcher.search(folder, search, take, start=start)
            return told.outcome(whole=whole)

        return Prepared(intent, run)

    return ToolOf("Grep", GrepArguments, lambda: DESCRIPTION, look)


class _Told:
    """The answer, as it grows."""

    def __init__(self, places: Places, place: Place, asked: GrepArguments, *, folder: bool) -> None:
        self.folder = folder
        self._places = places
        self._base = place.known if folder else place.known.parent
        self._asked = asked
        self._lines: list[str] = []
        self._limit = min(asked.head_limit, MOST)
        self._room = SHOWN
        self._hits = 0
        self._last: Found | None = None
        self._hit: Found | None = None
        self._locations: list[Location] = []

    def take(self, found: Found) -> bool:
        """False if it is not taken any more."""
        if self._room <= 0 or (self._hits >= self._limit and not self._belongs(found)):
            return False
        last, self._last = self._last, found
        new = last is None or last.path != found.path
        path = self._base / found.path
        if new and len(self._locations) < FOLLOWED:
            line = found.number if found.text is not None else None
            self._locations.append(Location(path=clean(str(path)), line=line))
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
        self._hit = found if found.hit else self._hit
        return True

    def _belongs(self, found: Found) -> bool:
        """It is of the lines after the last match."""
        hit = self._hit
        if found.hit or hit is None or hit.path != found.path:
            return False
        return found.number <= hit.number + self._asked.context

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._room -= len(line) + 1

    def outcome(self, *, whole: bool) -> Outcome:
        if not self._lines:
            text = (
                "(nothing found)"
                if whole
                else "(nothing found before the time was up: narrow the search)"
            )
            return Outcome(text=text)
        notice = "" if whole else "\n(there is more: narrow the search, or raise head_limit)"
        return Outcome(text="\n".join(self._lines) + notice, locations=tuple(self._locations))
