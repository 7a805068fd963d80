"""The tree of a settings file: values with their places, read by name and type.

A mistake is collected and the default used instead, so that one pass finds all mistakes.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, TypeVar, overload
from urllib.parse import urlsplit

from goent.domain.errors import ConfigError, RulesMistaken
from goent.domain.input_mistakes import quote_value, suggestion
from goent.domain.types import Value

RULES_FILE: Final = "routing.yaml"
TRUE_WORDS: Final = frozenset({"true", "yes", "on"})


class SettingPlace(Value, frozen=True, kw_only=True):
    """The place of a value in a file. A higher `layer` overrides a lower one."""

    file: str
    line: int = 0
    key: str = ""
    layer: int = 0

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}" if self.line else self.file
        return f"{head}: {self.key}" if self.key else head

    def entry(self, key: str, line: int | None = None) -> "SettingPlace":
        """The place of an entry of the table at this place."""
        joined = f"{self.key}.{key}" if self.key and not key.startswith("[") else self.key + key
        line = self.line if line is None else line
        return SettingPlace(file=self.file, line=line, key=joined, layer=self.layer)


class Scalar(Value, frozen=True, kw_only=True):
    """A single value, as written: numbers keep every digit, and `Yes` stays `Yes`."""

    place: SettingPlace
    kind: Literal["text", "number", "bool", "null"]
    text: str

    @property
    def is_true(self) -> bool:
        """Its value as a flag."""
        return self.text.lower() in TRUE_WORDS


class Items(Value, frozen=True, kw_only=True):
    """A list."""

    place: SettingPlace
    items: tuple["Node", ...] = ()


class Table(Value, frozen=True, kw_only=True):
    """Entries by name, in the order of the file."""

    place: SettingPlace
    entries: Mapping[str, "Node"] = {}


Node: TypeAlias = Scalar | Items | Table


def merge_nodes(earlier: Node, later: Node) -> Node:
    """Tables are merged key by key; of anything else the later value counts.

    `null` for a table leaves the earlier table as it is.
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
        entries[key] = merge_nodes(entries[key], node) if key in entries else node
    return Table(place=later.place, entries=entries)


def describe_node(node: Node) -> str:
    """The value as a message quotes it."""
    if isinstance(node, Table):
        return "a table"
    if isinstance(node, Items):
        return "a list"
    return quote_value(node.text) if node.kind == "text" else node.text or "nothing"


class Problems:
    """The mistakes of all files, collected to be reported together."""

    def __init__(self) -> None:
        self._found: dict[str, SettingPlace] = {}
        self.unreadable = False

    @property
    def mistake_count(self) -> int:
        return len(self._found)

    def note(self, place: SettingPlace, message: str) -> None:
        self._found.setdefault(f"{place}: {message}", place)

    def note_unreadable(self, place: SettingPlace, message: str) -> None:
        """A whole file could not be read, so references to what it defines cannot be checked."""
        self.unreadable = True
        self.note(place, message)

    def raise_all(self) -> None:
        """Raise everything that was noted, one line each."""
        if self._found:
            ordered = sorted(self._found.items(), key=lambda found: (found[1].file, found[1].line))
            rules = all(PurePath(place.file).name == RULES_FILE for place in self._found.values())
            kind = RulesMistaken if rules else ConfigError
            raise kind("\n".join(line for line, _ in ordered))


T = TypeVar("T")
D = TypeVar("D")
ChoiceT = TypeVar("ChoiceT", bound=str)

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_NUMBER: Final = 10**12

TextCheck = Callable[[str], str | None]


def empty_reason(text: str) -> str | None:
    """Why a blank text is refused; None for any other."""
    return None if text.strip() else "must not be empty"


class Mention(Value, frozen=True, kw_only=True):
    """A name that refers to something defined elsewhere, and where it is used."""

    name: str
    place: SettingPlace


def read_table(
    table: Table,
    read: Callable[["SettingsFields"], T],
    problems: Problems,
    *,
    name: str = "",
    strict: bool = True,
) -> T:
    """What `read` makes of a table; if `strict`, an entry that it does not read is a mistake."""
    fields = SettingsFields(table, problems, name=name, strict=strict)
    value = read(fields)
    if strict:
        fields.note_unknown()
    return value


class SettingsFields:
    """The entries of one table, taken one by one."""

    def __init__(self, table: Table, problems: Problems, *, name: str, strict: bool) -> None:
        self.name = name
        self.problems = problems
        self._table = table
        self._strict = strict
        self._read_keys: dict[str, None] = {}

    @property
    def place(self) -> SettingPlace:
        return self._table.place

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._table.entries)

    def note_mistake(self, key: str, message: str) -> None:
        node = self._table.entries.get(key)
        self.problems.note(node.place if node else self.place.entry(key), message)

    def has(self, key: str) -> bool:
        return self.node(key) is not None

    def node(self, key: str) -> Node | None:
        """The value, whatever its kind; None if there is none, or `null`."""
        self._read_keys[key] = None
        node = self._table.entries.get(key)
        return None if isinstance(node, Scalar) and node.kind == "null" else node

    def shape(self, key: str) -> Literal["value", "list", "table"] | None:
        node = self.node(key)
        if node is None or isinstance(node, Scalar):
            return "value" if node else None
        return "list" if isinstance(node, Items) else "table"

    def text(self, key: str, default: D) -> str | D:
        mention = self.mention(key)
        return mention.name if mention else default

    def required_text(self, key: str, remedy: str) -> str:
        """A text that must be there."""
        if not self.has(key):
            self.note_mistake(key, f"is missing; {remedy}")
        return self.text(key, "")

    def mention(self, key: str) -> Mention | None:
        scalar = self._scalar(key, "text")
        return self._as_mention(scalar) if scalar else None

    def mentions(self, key: str, refused: TextCheck = empty_reason) -> tuple[Mention, ...]:
        """A list of texts, or a single text; `refused` gives the reason why one is not accepted."""
        node = self.node(key)
        nodes = node.items if isinstance(node, Items) else (node,) if node else ()
        named: list[Mention] = []
        for item in nodes:
            if not isinstance(item, Scalar):
                self.problems.note(
                    item.place, f"expected a list of texts, not {describe_node(item)}"
                )
            elif mention := self._as_mention(item, refused):
                named.append(mention)
        return tuple(named)

    def texts(self, key: str, refused: TextCheck = empty_reason) -> tuple[str, ...]:
        return tuple(mention.name for mention in self.mentions(key, refused))

    def number(self, key: str, default: D, *, least: float = 0, above: bool = False) -> Decimal | D:
        """At least `least`; if `above`, more than that."""
        scalar = self._scalar(key, "a number")
        if scalar is None:
            return default
        if scalar.kind != "number":
            self.note_mistake(key, f"expected a number, not {describe_node(scalar)}")
            return default
        value = Decimal(scalar.text.replace("_", ""))
        if value < least or (above and value == least):
            bound = "more than" if above else "at least"
            self.note_mistake(key, f"must be {bound} {least}, not {scalar.text}")
            return default
        if value > MAX_NUMBER:
            self.note_mistake(key, f"must be at most {MAX_NUMBER}, not {scalar.text}")
            return default
        return value

    def integer(self, key: str, default: D, *, least: int = 0) -> int | D:
        value = self.number(key, None, least=least)
        if value is None:
            return default
        if value != value.to_integral_value():
            self.note_mistake(key, f"must be a whole number, not {value}")
            return default
        return int(value)

    def amount(self, key: str, default: D, *, least: float = 0, above: bool = False) -> float | D:
        value = self.number(key, None, least=least, above=above)
        return default if value is None else float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        scalar = self._scalar(key, "true or false")
        if scalar is None:
            return default
        if scalar.kind != "bool":
            self.note_mistake(key, f"expected true or false, not {describe_node(scalar)}")
            return default
        return scalar.is_true

    @overload
    def choice(self, key: str, options: tuple[ChoiceT, ...], default: ChoiceT) -> ChoiceT: ...
    @overload
    def choice(self, key: str, options: tuple[ChoiceT, ...], default: None) -> ChoiceT | None: ...
    def choice(
        self, key: str, options: tuple[ChoiceT, ...], default: ChoiceT | None
    ) -> ChoiceT | None:
        node = self.node(key)
        written = node.text if isinstance(node, Scalar) else None  # YAML reads `off` as a boolean
        for option in options:
            if option == written:
                return option
        mention = self.mention(key)
        if mention is None:
            return default
        one_of = ", ".join(options)
        self.note_mistake(key, f"unknown {key} {mention.name!r}; one of {one_of}")
        return default

    def one_of(self, *keys: str) -> str | None:
        """The one of several spellings that is used, in the latest file."""
        used = [(key, node.place.layer) for key in keys if (node := self.node(key))]
        latest = [key for key, layer in used if layer == max(layer for _, layer in used)]
        if len(latest) > 1:
            self.note_mistake(latest[1], f"{latest[0]!r} says the same; keep one of them")
        return latest[0] if latest else None

    def section(self, key: str, read: Callable[["SettingsFields"], T]) -> T:
        """A table inside this one; an empty one where it is missing."""
        node = self.node(key)
        if node is not None and not isinstance(node, Table):
            self.note_mistake(key, f"expected a table, not {describe_node(node)}")
        if not isinstance(node, Table):
            written = self._table.entries.get(key)
            node = Table(place=written.place if written else self.place.entry(key))
        return read_table(node, read, self.problems, name=key, strict=self._strict)

    def tables(self, key: str, read: Callable[["SettingsFields"], T | None]) -> dict[str, T]:
        """A table of tables, by name."""

        def each(fields: SettingsFields) -> dict[str, T]:
            found = {name: fields.section(name, read) for name in fields.keys}
            return {name: value for name, value in found.items() if value is not None}

        return self.section(key, each)

    def rows(self, key: str, read: Callable[["SettingsFields"], T | None]) -> tuple[T, ...]:
        """A list of tables, in order."""
        node = self.node(key)
        if node is not None and not isinstance(node, Items):
            self.note_mistake(key, f"expected a list, not {describe_node(node)}")
        found: list[T | None] = []
        for item in node.items if isinstance(node, Items) else ():
            if not isinstance(item, Table):
                self.problems.note(item.place, f"expected a table, not {describe_node(item)}")
            else:
                found.append(read_table(item, read, self.problems, strict=self._strict))
        return tuple(value for value in found if value is not None)

    def note_unknown(self) -> None:
        """Entries that have not been read by now are mistakes."""
        for key in self.keys:
            if key not in self._read_keys:
                self.note_mistake(key, f"unknown key; {suggestion(key, self._read_keys)}")

    def _scalar(self, key: str, expected: str) -> Scalar | None:
        node = self.node(key)
        if node is None or isinstance(node, Scalar):
            return node
        self.note_mistake(key, f"expected {expected}, not {describe_node(node)}")
        return None

    def _as_mention(self, scalar: Scalar, refused: TextCheck = empty_reason) -> Mention | None:
        if scalar.kind in {"bool", "null"}:
            message = f"expected text, not {describe_node(scalar)}; put it in quotes"
            self.problems.note(scalar.place, message)
        elif reason := refused(scalar.text):
            if self._strict:
                self.problems.note(scalar.place, reason)
        else:
            return Mention(name=scalar.text.strip(), place=scalar.place)
        return None


def read_url(fields: SettingsFields, key: str) -> Mention | None:
    url = fields.mention(key)
    if url is None:
        return None
    try:
        parts = urlsplit(url.name)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        fits = False
    if not fits:
        fields.note_mistake(key, f"{url.name!r} is not a URL such as https://host/v1")
        return None
    return Mention(name=url.name.rstrip("/"), place=url.place)


def read_variable(fields: SettingsFields, key: str) -> Mention | None:
    """The name of an environment variable. Anything else may be a secret, so it is not quoted."""
    variable = fields.mention(key)
    if variable is None or VARIABLE_NAME.fullmatch(variable.name):
        return variable
    fields.note_mistake(
        key, "expected the name of a variable, such as MY_API_KEY, not the key itself"
    )
    return None
