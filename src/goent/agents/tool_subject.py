"""Reads what a tool call is about from whatever its agent reports.

The protocol leaves a tool's input to the agent. These are the names that agents use for a command,
a path and an address; of others only kind, title and locations count.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, UnsetType

from goent.acp.agent_messages import ToolFields
from goent.acp.message_parts import AcpDiff, ToolContent, plain_text
from goent.agents.worker_paths import is_file_address
from goent.domain.types import Value

COMMANDS = ("command", "cmd")
ARGUMENTS = ("args", "arguments")
PATHS = ("file_path", "filePath", "filepath", "path", "abs_path", "notebook_path")
PLACES = ("cwd", "workdir", "directory")
URLS = ("url", "uri")
# Names that may mean a path only if the tool is known to be about files.
MORE_PATHS = (
    *("target_file", "targetFile", "target_path", "targetPath", "absolute_path", "absolutePath"),
    *("relative_path", "relativePath", "file", "filename", "fileName", "file_name", "old_path"),
    *("oldPath", "new_path", "newPath", "source_path", "destination_path", "paths", "files"),
)
ENDS = ("source", "src", "from", "destination", "dest", "dst", "to", "target")
ABOUT_FILES = frozenset({"read", "edit", "delete", "move"})
WORDS = ("pattern", "query", "description", "prompt")
EXITS = ("exit", "exit_code", "exitCode")


class CallSubject(Value, frozen=True, kw_only=True):
    """What a call is about. `paths` are as the agent wrote them, `file:` addresses included.

    `place` is where a command is run, if known. `unconfined`: go-ent's own agent wants to run the
    command outside its sandbox.
    """

    command: str = ""
    place: str = ""
    paths: tuple[str, ...] = ()
    url: str = ""
    words: str = ""
    unconfined: bool = False

    @property
    def detail(self) -> str:
        return self.command or next(iter(self.paths), "") or self.url or self.words


class ToolData(dict[str, object]):
    """A tool's input or output; empty if it is not an object."""

    @classmethod
    def read(cls, raw: Raw | UnsetType | None) -> "ToolData":
        try:
            return cls(msgspec.json.decode(raw or b"{}", type=dict[str, object]))
        except (msgspec.DecodeError, RecursionError):
            return cls()

    def text(self, names: Sequence[str]) -> str:
        """The first of these fields that is text; a command may be a list of words."""
        found = (_as_text(self[name]) for name in names if name in self)
        return next(filter(None, found), "")

    def texts(self, names: Sequence[str]) -> Iterator[str]:
        """All of these fields that are texts or lists of texts."""
        for name in names:
            value = self.get(name)
            yield from filter(None, [value] if isinstance(value, str) else _as_list(value))

    def number(self, names: Sequence[str]) -> int | None:
        found = (self.get(name) for name in names)
        return next((value for value in found if type(value) is int), None)


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return " ".join(_as_list(value))


def _as_list(value: object) -> list[str]:
    try:
        return msgspec.convert(value, list[str])
    except msgspec.ValidationError:
        return []


def read_subject(call: ToolFields) -> CallSubject:
    """Read the subject from a call's input, locations and diffs."""
    given = ToolData.read(call.raw_input)
    command = given.text(COMMANDS)
    return CallSubject(
        command=" ".join(filter(None, (command, given.text(ARGUMENTS)))) if command else "",
        place=next(given.texts(PLACES), ""),
        paths=tuple(dict.fromkeys(_paths(given, call))),
        url=given.text(URLS),
        words=given.text(WORDS),
        unconfined=given.get("unconfined") is True,
    )


def call_text(call: ToolFields) -> str:
    """The call's content as text; before it runs, this may be its input."""
    blocks = [part.content for part in call.content or () if isinstance(part, ToolContent)]
    return "".join(map(plain_text, blocks))


def _paths(given: ToolData, call: ToolFields) -> Iterator[str]:
    yield from given.texts((*PATHS, *PLACES))
    if call.kind in ABOUT_FILES:
        yield from given.texts((*MORE_PATHS, *URLS))
    else:
        yield from filter(is_file_address, given.texts(URLS))
    if call.kind == "move":
        yield from given.texts(ENDS)
    yield from (location.path for location in call.locations or () if location.path)
    yield from (part.path for part in call.content or () if isinstance(part, AcpDiff))
