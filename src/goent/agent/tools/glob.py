"""Glob: which files have such names?"""

from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Meta

from goent.agent.content import Location
from goent.agent.ports import Intent, Outcome, Report, ToolMistake
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.agent.tools.files import in_thread
from goent.agent.tools.places import Places, printable
from goent.agent.tools.searching import Found, Search, Searcher
from goent.agent.tools.selecting import Selected, searchable
from goent.agent.tools.texts import clean

LIMIT = 100
LOOKED = 100_000  # files whose times are compared
FOLLOWED = 20
_MAGIC = frozenset("*?[{")

DESCRIPTION = f"""Find files by a pattern of their paths: **/*.py, src/**/test_*.{{ts,tsx}}. A pattern without / is about names in any folder.
What .gitignore names is passed over, and hidden files too unless the pattern names them. The newest come first, at most {LIMIT}."""


class GlobArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Glob."""

    pattern: Annotated[str, Meta(min_length=1, description="with *, **, ?, [a-z] and {a,b}")]
    path: Annotated[str, Meta(description="folder; default: the working directory")] = "."


def glob_tool(places: Places, searcher: Searcher) -> ToolOf[GlobArguments]:
    async def look(asked: GlobArguments) -> Prepared:
        path, pattern = _apart(asked)
        place = places.find(path)
        selected = Selected(pattern)
        where = "" if asked.path == "." else f" in {place.name}"
        intent = Intent(
            kind="search",
            title=f"Glob {printable(asked.pattern)}{where}",
            need=place.reading,
            alone=False,
        )

        async def run(_: Report) -> Outcome:
            if not searchable(places, place):
                raise ToolMistake(f"{place.name!r} is a file: Glob looks into folders")
            found: list[str] = []

            def take(one: Found) -> bool:
                if one.path in selected:
                    found.append(one.path)
                return len(found) < LOOKED

            search = Search(mode="list", names=selected.names, hidden=selected.hidden)
            whole = await searcher.search(place.path, search, take)
            newest = await in_thread(lambda: _newest_first(place.path, found))
            return _told(places, place.known, newest, whole=whole)

        return Prepared(intent, run)

    return ToolOf("Glob", GlobArguments, lambda: DESCRIPTION, look)


def _apart(asked: GlobArguments) -> tuple[str, str]:
    """Folder and pattern; of an absolute pattern its beginning is the folder."""
    if not asked.pattern.startswith("/") or asked.path != ".":
        return asked.path, asked.pattern
    parts = PurePosixPath(asked.pattern).parts
    plain = next((n for n, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
    return str(PurePosixPath(*parts[:plain])), "/" + "/".join(parts[plain:])


def _newest_first(folder: Path, paths: list[str]) -> list[str]:
    def age(path: str) -> tuple[int, str]:
        try:
            return -(folder / path).lstat().st_mtime_ns, path
        except OSError:  # gone, or its name is too long
            return 0, path

    return sorted(paths, key=age)


def _told(places: Places, base: Path, paths: list[str], *, whole: bool) -> Outcome:
    if not paths:
        return Outcome(text="(no such files)" if whole else "(none found before the time was up)")
    shown = [base / path for path in paths[:LIMIT]]
    notice = ""
    if len(paths) > LIMIT or not whole:
        count = f"{len(paths)}{'' if whole else ' or more'}"
        notice = f"\n(the newest {len(shown)} of {count}: a narrower pattern tells the others)"
    return Outcome(
        text="\n".join(places.name(path) for path in shown) + notice,
        locations=tuple(Location(path=clean(str(path))) for path in shown[:FOLLOWED]),
    )
