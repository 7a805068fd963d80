"""What do ACP updates of OpenCode mean in our words?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from goent.acp import updates
from goent.acp.content import ToolContent, plain_text
from goent.domain.events import DriverEvent, PlanUpdated, ToolCall
from goent.domain.types import Command, FileChange
from goent.drivers.acp_translate import (
    OUTPUT_KEPT,
    Status,
    ToolUpdate,
    Translator,
    kept_input,
    plan_entry,
)


class Lenient(Struct, frozen=True, kw_only=True):
    """A model writes its tools' input: any field may be missing."""


T = TypeVar("T", bound=Lenient)


class ToolInput(Lenient, frozen=True, kw_only=True, rename={"file": "filePath"}):
    """The fields of OpenCode's tools that say what a call is about."""

    command: str = ""
    file: str = ""
    path: str = ""
    pattern: str = ""
    url: str = ""
    description: str = ""
    content: str = ""

    @property
    def detail(self) -> str:
        told = (self.command, self.file, self.pattern, self.url, self.path, self.description)
        return next(filter(None, told), "")


class Todo(Lenient, frozen=True, kw_only=True):
    """A line of OpenCode's todo list."""

    content: str = ""
    status: str = "pending"


class ChangedFile(Lenient, frozen=True, kw_only=True, rename={"path": "filePath"}):
    """`edit` calls the path `file`, `apply_patch` calls it `filePath`."""

    file: str = ""
    path: str = ""
    additions: int | None = None
    deletions: int | None = None


class Metadata(Lenient, frozen=True, kw_only=True):
    """What a tool reports beside its output."""

    exit: int | None = None
    todos: tuple[Todo, ...] = ()
    filediff: ChangedFile | None = None
    files: tuple[ChangedFile, ...] = ()
    exists: bool | None = None


class ToolOutput(Lenient, frozen=True, kw_only=True):
    """What came out of a tool."""

    output: str = ""
    error: str = ""
    metadata: Metadata = Metadata()


class OpenCodeTranslator(Translator):
    """What OpenCode's own tools are given, and what comes out of them."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self._inputs: dict[str, ToolInput] = {}

    def _call(
        self, fields: ToolUpdate, known: ToolCall | None, status: Status
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        # The first word on a call has the tool's name for a title; later ones say what it does.
        tool = known.tool if known else (fields.title or fields.kind or "tool")
        asked = self._input(fields)
        output = _read(fields.raw_output, ToolOutput)
        ended = status in ("completed", "failed")
        call = ToolCall(
            id=fields.tool_call_id,
            tool=tool,
            status=status,
            title=self._shown(fields.title) or (known.title if known else ""),
            detail=asked.detail or (known.detail if known else ""),
            input=self._given(tool, fields) or (known.input if known else None),
            # A running command tells all of its output again and again: the end will do.
            output=_text(fields, output)[-OUTPUT_KEPT:] if ended else "",
            changes=self._changes(tool, asked, output) if status == "completed" else (),
            command=_command(tool, asked, output),
        )
        todos = output.metadata.todos if tool == "todowrite" and status == "completed" else ()
        return call, [_plan(todos)] if todos else []

    def _shown(self, title: str | None) -> str:
        """OpenCode names a file from the root of its git checkout, or of the disk without one."""
        inside = f"{self._cwd}/"
        return (title or "").replace(inside, "").removeprefix(inside.lstrip("/"))

    def _input(self, fields: updates.ToolFields) -> ToolInput:
        asked = _read(fields.raw_input, ToolInput)
        if asked != ToolInput():
            self._inputs[fields.tool_call_id] = asked
        return self._inputs.get(fields.tool_call_id, asked)

    def _given(self, tool: str, fields: updates.ToolFields) -> object:
        """Over ACP, OpenCode adds the directory to what the model gave to a shell command."""
        given = kept_input(fields.raw_input)
        if tool != "bash" or not isinstance(given, dict):
            return given
        table = msgspec.convert(given, dict[str, object])
        return {k: v for k, v in table.items() if (k, v) != ("cwd", str(self._cwd))}

    def _changes(self, tool: str, asked: ToolInput, output: ToolOutput) -> tuple[FileChange, ...]:
        told = output.metadata
        if tool == "write" and asked.file:
            new = told.exists is False
            added = len(asked.content.splitlines()) if new else None
            return (self._change(asked.file, added, 0 if new else None),)
        files = (told.filediff,) if told.filediff else told.files
        return tuple(
            self._change(f.file or f.path, f.additions, f.deletions)
            for f in files
            if f.file or f.path
        )


def _command(tool: str, asked: ToolInput, output: ToolOutput) -> Command | None:
    if tool != "bash" or not asked.command:
        return None
    return Command(command=asked.command, exit=output.metadata.exit)


def _text(fields: updates.ToolFields, output: ToolOutput) -> str:
    told = output.error or output.output
    blocks = [c.content for c in fields.content or () if isinstance(c, ToolContent)]
    return told or "".join(plain_text(block) for block in blocks)


def _plan(todos: Sequence[Todo]) -> PlanUpdated:
    return PlanUpdated(entries=tuple(plan_entry(todo.content, todo.status) for todo in todos))


def _read(raw: Raw | UnsetType | None, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.DecodeError:
        return kind()
