"""What can be set for a session, and to which values? The model is one of these."""

from collections.abc import Iterator, Sequence

from msgspec import Raw

from goent.acp.base import UNKNOWN, Message, wrap_each, wrap_kind


class Choice(Message, frozen=True, kw_only=True):
    """One value that an option can have, or a group of them: then `options` has the values."""

    name: str = ""
    value: str = ""
    description: str | None = None
    group: str | None = None
    options: tuple["Choice", ...] = ()

    def flat(self) -> Iterator["Choice"]:
        if self.options:
            for choice in self.options:
                yield from choice.flat()
        else:
            yield self


class SelectOption(Message, frozen=True, kw_only=True, tag="select"):
    """An option with a list of values."""

    id: str
    name: str = ""
    current_value: str
    options: tuple[Choice, ...] = ()
    category: str | None = None
    description: str | None = None

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The values, without their groups."""
        return tuple(choice for entry in self.options for choice in entry.flat())


class BooleanOption(Message, frozen=True, kw_only=True, tag="boolean"):
    """An option that is on or off."""

    id: str
    name: str = ""
    current_value: bool
    category: str | None = None
    description: str | None = None


class UnknownOption(Message, frozen=True, kw_only=True, tag=UNKNOWN):
    """An option of a kind that this version does not know."""

    kind: str
    body: Raw


ConfigOption = SelectOption | BooleanOption | UnknownOption


def wrap_options(raw: Raw) -> Raw:
    return wrap_each(raw, _wrap_option)


def _wrap_option(raw: Raw) -> Raw:
    return wrap_kind(raw, tag="type", known=frozenset({"select", "boolean"}), default="select")


def find_option(options: Sequence[ConfigOption] | None, name: str) -> SelectOption | None:
    """The option with this id, or else of this category."""
    selects = [option for option in options or () if isinstance(option, SelectOption)]
    by_id = (option for option in selects if option.id == name)
    by_category = (option for option in selects if option.category == name)
    return next(by_id, None) or next(by_category, None)
