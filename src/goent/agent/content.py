"""What can a prompt be made of, and what can a tool call show?"""

from goent.domain.types import Value


class Words(Value, frozen=True, kw_only=True, tag="words"):
    """Text."""

    text: str


class Picture(Value, frozen=True, kw_only=True, tag="picture"):
    """An image, base64."""

    media_type: str
    data: str


class Link(Value, frozen=True, kw_only=True, tag="link"):
    """A file or a page that the agent may open."""

    uri: str
    name: str = ""


class Document(Value, frozen=True, kw_only=True, tag="document"):
    """A file that comes with the prompt; `text` is None if it is none."""

    uri: str
    text: str | None = None
    media_type: str | None = None


Given = Words | Picture | Link | Document


class Diff(Value, frozen=True, kw_only=True, tag="diff"):
    """A file before and after; a new one has no old text. Whole texts, or the part that changed."""

    path: str
    new: str
    old: str | None = None


class Terminal(Value, frozen=True, kw_only=True, tag="terminal"):
    """The output of a terminal that the client runs."""

    id: str


Shown = Words | Picture | Diff | Terminal


class Location(Value, frozen=True, kw_only=True):
    """A file that a call looks at or changes, so that an editor can follow."""

    path: str
    line: int | None = None
