"""What did a file say, and where? YAML and JSON become the same small tree."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import PurePath
from typing import Final, Literal, TypeAlias

from goent.domain.errors import ConfigError, RulesMistaken
from goent.domain.types import Value

QUOTED: Final = 60  # characters of a value that a message repeats
LISTED: Final = 16  # names that a message offers
RULES: Final = "routing.yaml"
TRUE: Final = frozenset({"true", "yes", "on"})


class Place(Value, frozen=True, kw_only=True):
    """Where something was said. A higher `layer` overrides a lower one."""

    file: str
    line: int = 0
    key: str = ""
    layer: int = 0

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}" if self.line else self.file
        return f"{head}: {self.key}" if self.key else head

    def below(self, key: str, line: int | None = None) -> "Place":
        """The place of an entry of the table at this place."""
        joined = f"{self.key}.{key}" if self.key and not key.startswith("[") else self.key + key
        return Place(
            file=self.file,
            line=self.line if line is None else line,
            key=joined,
            layer=self.layer,
        )


class Scalar(Value, frozen=True, kw_only=True):
    """A single value, as written: numbers keep every digit, and `Yes` stays `Yes`."""

    place: Place
    kind: Literal["text", "number", "bool", "null"]
    text: str

    @property
    def is_true(self) -> bool:
        """What it says where a flag is read."""
        return self.text.lower() in TRUE


class Items(Value, frozen=True, kw_only=True):
    """A list."""

    place: Place
    items: tuple["Node", ...] = ()


class Table(Value, frozen=True, kw_only=True):
    """Names and what they stand for, in the order of the file."""

    place: Place
    entries: Mapping[str, "Node"] = {}


Node: TypeAlias = Scalar | Items | Table


def merge(earlier: Node, later: Node) -> Node:
    """Tables are merged key by key; of anything else the later one stands.

    `null` says nothing of a table: what an earlier file has in it stays.
    """
    if isinstance(earlier, Table) and isinstance(later, Table):
        return merge_tables(earlier, later)
    if isinstance(later, Scalar) and later.kind == "null":
        silent = not later.text  # `budget:` with every line below it commented out
        return earlier if silent or isinstance(earlier, Table) else later
    return later


def merge_tables(earlier: Table, later: Table) -> Table:
    entries = dict(earlier.entries)
    for key, node in later.entries.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    return Table(place=later.place, entries=entries)


def describe(node: Node) -> str:
    """The value as a message quotes it."""
    if isinstance(node, Table):
        return "a table"
    if isinstance(node, Items):
        return "a list"
    text = node.text if len(node.text) <= QUOTED else node.text[: QUOTED - 1] + "…"
    return repr(text) if node.kind == "text" else text or "nothing"


class Problems:
    """Every mistake of every file, told at once."""

    def __init__(self) -> None:
        self._found: dict[str, Place] = {}
        self.unreadable = False

    @property
    def count(self) -> int:
        return len(self._found)

    def note(self, place: Place, message: str) -> None:
        self._found.setdefault(f"{place}: {message}", place)

    def note_unreadable(self, place: Place, message: str) -> None:
        """A whole file is missing from the picture: what others say about it cannot be judged."""
        self.unreadable = True
        self.note(place, message)

    def check(self) -> None:
        """Raise all that was noted, one line each."""
        if self._found:
            ordered = sorted(self._found.items(), key=lambda found: (found[1].file, found[1].line))
            rules = all(PurePath(place.file).name == RULES for place in self._found.values())
            kind = RulesMistaken if rules else ConfigError
            raise kind("\n".join(line for line, _ in ordered))


def suggestion(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """The remedy for a name that does not exist."""
    close = get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not known:
        return "there is none"
    more = ", …" if len(known) > LISTED else ""
    return f"one of {', '.join(list(known)[:LISTED])}{more}"
