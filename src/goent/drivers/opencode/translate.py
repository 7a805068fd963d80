"""What do ACP updates of OpenCode mean in our words?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from goent.acp import updates
from goent.acp.content import ToolContent, plain_text
from goent.domain.events import DriverEvent, PlanUpdated, TextDelta, Thought, ToolCall
from goent.domain.types import Command, FileChange, PlanEntry

OUTPUT_KEPT = 4000
INTERRUPTED = "its process ended before the call did; it may or may not have taken effect"
Status = Literal["pending", "running", "completed", "failed"]
_STATUS: dict[str, Status] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}


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


class Translator:
    """Remembers a turn's tool calls: an update tells only what has changed."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._calls: dict[str, ToolCall] = {}
        self._inputs: dict[str, ToolInput] = {}

    def translate(self, update: updates.AnyUpdate) -> Sequence[DriverEvent]:
        match update:
            case updates.AgentMessageChunk():
                text, message = plain_text(update.content), update.message_id or ""
                return [TextDelta(text=text, message=message)] if text else []
            case updates.AgentThoughtChunk():
                text, message = plain_text(update.content), update.message_id or ""
                return [Thought(text=text, message=message)] if text else []
            case updates.ToolCall() | updates.ToolCallUpdate():
                return self._tool(update)
            case updates.Plan():
                return [_plan([Todo(content=e.content, status=e.status) for e in update.entries])]
            case _:
                return []

    def interrupted(self) -> Sequence[ToolCall]:
        """The calls that had not ended, as ones that never will."""
        return [
            msgspec.structs.replace(call, status="failed", output=INTERRUPTED)
            for call in self._calls.values()
            if call.status in ("pending", "running")
        ]

    @property
    def running(self) -> str:
        at_work = (c for c in self._calls.values() if c.status in ("pending", "running"))
        return next((f"{c.tool}: {c.title or c.detail}"[:80] for c in at_work), "")

    def _tool(self, fields: updates.ToolCall | updates.ToolCallUpdate) -> Sequence[DriverEvent]:
        known = self._calls.get(fields.tool_call_id)
        # The first word on a call has the tool's name for a title; later ones say what it does.
        tool = known.tool if known else (fields.title or fields.kind or "tool")
        asked = self._input(fields)
        output = _read(fields.raw_output, ToolOutput)
        status = _STATUS.get(fields.status or "", known.status if known else "pending")
        ended = status in ("completed", "failed")
        call = ToolCall(
            id=fields.tool_call_id,
            tool=tool,
            status=status,
            title=self._shown(fields.title) or (known.title if known else ""),
            detail=asked.detail or (known.detail if known else ""),
            # A running command tells all of its output again and again: the end will do.
            output=_text(fields, output)[-OUTPUT_KEPT:] if ended else "",
            changes=self._changes(tool, asked, output) if status == "completed" else (),
            command=_command(tool, asked, output),
        )
        if call == known:
            return []
        self._calls[call.id] = call
        todos = output.metadata.todos if tool == "todowrite" and status == "completed" else ()
        return [call, _plan(todos)] if todos else [call]

    def _shown(self, title: str | None) -> str:
        """OpenCode names a file from the root of its git checkout, or of the disk without one."""
        inside = f"{self._cwd}/"
        return (title or "").replace(inside, "").removeprefix(inside.lstrip("/"))

    def _input(self, fields: updates.ToolFields) -> ToolInput:
        asked = _read(fields.raw_input, ToolInput)
        if asked != ToolInput():
            self._inputs[fields.tool_call_id] = asked
        return self._inputs.get(fields.tool_call_id, asked)

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

    def _change(self, name: str, added: int | None, removed: int | None) -> FileChange:
        path = self._cwd / name
        inside = path.is_relative_to(self._cwd)
        shown = path.relative_to(self._cwd) if inside else path
        return FileChange(path=str(shown), added=added, removed=removed)


def _command(tool: str, asked: ToolInput, output: ToolOutput) -> Command | None:
    if tool != "bash" or not asked.command:
        return None
    return Command(command=asked.command, exit=output.metadata.exit)


def _text(fields: updates.ToolFields, output: ToolOutput) -> str:
    told = output.error or output.output
    blocks = [c.content for c in fields.content or () if isinstance(c, ToolContent)]
    return told or "".join(plain_text(block) for block in blocks)


def _plan(todos: Sequence[Todo]) -> PlanUpdated:
    return PlanUpdated(
        entries=tuple(PlanEntry(text=t.content, status=_plan_state(t.status)) for t in todos)
    )


def _plan_state(status: str) -> Literal["pending", "in_progress", "completed", "cancelled"]:
    match status:
        case "in_progress" | "completed" | "cancelled":
            return status
        case _:
            return "pending"


def _read(raw: Raw | UnsetType | None, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.DecodeError:
        return kind()
