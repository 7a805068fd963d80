"""Which settings does a table hold? Each is taken by name and type; the rest is unknown.

A mistake is noted and the default stands in, so that one pass finds them all.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, Literal, TypeVar, overload
from urllib.parse import urlsplit

from goent.config.tree import Items, Node, Place, Problems, Scalar, Table, describe, suggestion
from goent.domain.types import Value

T = TypeVar("T")
D = TypeVar("D")
Choice = TypeVar("Choice", bound=str)

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST: Final = 10**12

Refused = Callable[[str], str | None]


def empty_reason(text: str) -> str | None:
    """Why a text is not taken, if nothing is in it."""
    return None if text.strip() else "must not be empty"


class Mention(Value, frozen=True, kw_only=True):
    """A name that stands for something defined elsewhere, and where it was used."""

    name: str
    place: Place


def read_table(
    table: Table,
    read: Callable[["Fields"], T],
    problems: Problems,
    *,
    name: str = "",
    strict: bool = True,
) -> T:
    """What `read` makes of a table; if `strict`, an entry that it does not ask for is a mistake."""
    fields = Fields(table, problems, name=name, strict=strict)
    value = read(fields)
    if strict:
        fields.note_unknown()
    return value


class Fields:
    """The entries of one table, taken one by one."""

    def __init__(self, table: Table, problems: Problems, *, name: str, strict: bool) -> None:
        self.name = name
        self.problems = problems
        self._table = table
        self._strict = strict
        self._taken: dict[str, None] = {}

    @property
    def place(self) -> Place:
        return self._table.place

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._table.entries)

    def mistake(self, key: str, message: str) -> None:
        node = self._table.entries.get(key)
        self.problems.note(node.place if node else self.place.below(key), message)

    def has(self, key: str) -> bool:
        return self._node(key) is not None

    def node(self, key: str) -> Node | None:
        """What stands there, whatever it is."""
        return self._node(key)

    def shape(self, key: str) -> Literal["value", "list", "table"] | None:
        node = self._node(key)
        if node is None or isinstance(node, Scalar):
            return "value" if node else None
        return "list" if isinstance(node, Items) else "table"

    def text(self, key: str, default: D) -> str | D:
        mention = self.mention(key)
        return mention.name if mention else default

    def needed(self, key: str, remedy: str) -> str:
        """A text without which the table makes no sense."""
        if not self.has(key):
            self.mistake(key, f"is missing; {remedy}")
        return self.text(key, "")

    def mention(self, key: str) -> Mention | None:
        scalar = self._scalar(key, "text")
        return self._named(scalar) if scalar else None

    def mentions(self, key: str, refused: Refused = empty_reason) -> tuple[Mention, ...]:
        """A list of texts; a single one may stand without brackets. `refused` tells why one is not taken."""
        node = self._node(key)
        nodes = node.items if isinstance(node, Items) else (node,) if node else ()
        named: list[Mention] = []
        for item in nodes:
            if not isinstance(item, Scalar):
                self.problems.note(item.place, f"expected a list of texts, not {describe(item)}")
            elif mention := self._named(item, refused):
                named.append(mention)
        return tuple(named)

    def texts(self, key: str, refused: Refused = empty_reason) -> tuple[str, ...]:
        return tuple(mention.name for mention in self.mentions(key, refused))

    def number(self, key: str, default: D, *, least: float = 0, above: bool = False) -> Decimal | D:
        """At least `least`; if `above`, more than that."""
        scalar = self._scalar(key, "a number")
        if scalar is None:
            return default
        if scalar.kind != "number":
            self.mistake(key, f"expected a number, not {describe(scalar)}")
            return default
        value = Decimal(scalar.text.replace("_", ""))
        if value < least or (above and value == least):
            bound = "more than" if above else "at least"
            self.mistake(key, f"must be {bound} {least}, not {scalar.text}")
            return default
        if value > MOST:
            self.mistake(key, f"must be at most {MOST}, not {scalar.text}")
            return default
        return value

    def integer(self, key: str, default: D, *, least: int = 0) -> int | D:
        value = self.number(key, None, least=least)
        if value is None:
            return default
        if value != value.to_integral_value():
            self.mistake(key, f"must be a whole number, not {value}")
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
            self.mistake(key, f"expected true or false, not {describe(scalar)}")
            return default
        return scalar.is_true

    @overload
    def choice(self, key: str, options: tuple[Choice, ...], default: Choice) -> Choice: ...
    @overload
    def choice(self, key: str, options: tuple[Choice, ...], default: None) -> Choice | None: ...
    def choice(
        self, key: str, options: tuple[Choice, ...], default: Choice | None
    ) -> Choice | None:
        node = self._node(key)
        written = (
            node.text if isinstance(node, Scalar) else None
        )  # YAML takes off for a truth value
        for option in options:
            if option == written:
                return option
        mention = self.mention(key)
        if mention is None:
            return default
        one_of = ", ".join(options)
        self.mistake(key, f"unknown {key} {mention.name!r}; one of {one_of}")
        return default

    def one_of(self, *keys: str) -> str | None:
        """Which of several spellings is used: the one of the latest file."""
        used = [(key, node.place.layer) for key in keys if (node := self._node(key))]
        latest = [key for key, layer in used if layer == max(layer for _, layer in used)]
        if len(latest) > 1:
            self.mistake(latest[1], f"{latest[0]!r} says the same; keep one of them")
        return latest[0] if latest else None

    def section(self, key: str, read: Callable[["Fields"], T]) -> T:
        """A table inside this one, read as a whole; an empty one where it is not there."""
        node = self._node(key)
        if node is not None and not isinstance(node, Table):
            self.mistake(key, f"expected a table, not {describe(node)}")
        if not isinstance(node, Table):
            written = self._table.entries.get(key)
            node = Table(place=written.place if written else self.place.below(key))
        return read_table(node, read, self.problems, name=key, strict=self._strict)

    def tables(self, key: str, read: Callable[["Fields"], T | None]) -> dict[str, T]:
        """A table of tables, by name."""

        def each(fields: Fields) -> dict[str, T]:
            found = {name: fields.section(name, read) for name in fields.keys}
            return {name: value for name, value in found.items() if value is not None}

        return self.section(key, each)

    def rows(self, key: str, read: Callable[["Fields"], T | None]) -> tuple[T, ...]:
        """A list of tables, in order."""
        node = self._node(key)
        if node is not None and not isinstance(node, Items):
            self.mistake(key, f"expected a list, not {describe(node)}")
        found: list[T | None] = []
        for item in node.items if isinstance(node, Items) else ():
            if not isinstance(item, Table):
                self.problems.note(item.place, f"expected a table, not {describe(item)}")
            else:
                found.append(read_table(item, read, self.problems, strict=self._strict))
        return tuple(value for value in found if value is not None)

    def note_unknown(self) -> None:
        """What nobody has asked for by now is a mistake."""
        for key in self.keys:
            if key not in self._taken:
                self.mistake(key, f"unknown setting; {suggestion(key, self._taken)}")

    def _node(self, key: str) -> Node | None:
        self._taken[key] = None
        node = self._table.entries.get(key)
        return None if isinstance(node, Scalar) and node.kind == "null" else node

    def _scalar(self, key: str, expected: str) -> Scalar | None:
        node = self._node(key)
        if node is None or isinstance(node, Scalar):
            return node
        self.mistake(key, f"expected {expected}, not {describe(node)}")
        return None

    def _named(self, scalar: Scalar, refused: Refused = empty_reason) -> Mention | None:
        if scalar.kind in {"bool", "null"}:
            message = f"expected text, not {describe(scalar)}; quotes make it one"
            self.problems.note(scalar.place, message)
        elif reason := refused(scalar.text):
            if self._strict:
                self.problems.note(scalar.place, reason)
        else:
            return Mention(name=scalar.text.strip(), place=scalar.place)
        return None


def read_url(fields: Fields, key: str) -> Mention | None:
    url = fields.mention(key)
    if url is None:
        return None
    try:
        parts = urlsplit(url.name)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        fits = False
    if not fits:
        fields.mistake(key, f"{url.name!r} is no URL such as https://host/v1")
        return None
    return Mention(name=url.name.rstrip("/"), place=url.place)


def read_variable(fields: Fields, key: str) -> Mention | None:
    """The name of an environment variable. Anything else may be a key: it is not quoted."""
    variable = fields.mention(key)
    if variable is None or VARIABLE.fullmatch(variable.name):
        return variable
    fields.mistake(key, "expected the name of a variable, such as MY_API_KEY, not the key itself")
    return None
