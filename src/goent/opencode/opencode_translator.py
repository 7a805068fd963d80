"""Translates what OpenCode reports, by ACP, event stream or standard output, into our events.

A text is told by what is added to it, and at its end whole; what has been told is remembered, so that
nothing is said twice and nothing that a broken stream has swallowed is lost: after a gap, what is
added to a text that had begun cannot be placed, and is told with the whole. Tool calls become the same
updates that ACP makes of them.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.acp import agent_messages
from goent.acp.agent_messages import (
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    AnyUpdate,
    ToolCallUpdate,
)
from goent.acp.message_parts import AcpText, ToolContent, plain_text
from goent.agents.acp_translator import (
    MAX_OUTPUT,
    ToolStatus,
    ToolUpdate,
    Translator,
    plan_entry,
    shorten_input,
)
from goent.domain.errors import PermissionBypassed
from goent.domain.events import (
    DriverEvent,
    PlanUpdated,
    TextDelta,
    Thought,
    ToolCall,
    UsageReported,
)
from goent.domain.types import Command, FileChange, Provider
from goent.opencode.call_guard import BypassDetector
from goent.opencode.event_stream import PartDelta
from goent.opencode.server_api import (
    MessageInfo,
    MessagePart,
    ServerData,
    ServerMessage,
    SessionFault,
    TokenCounts,
)


class LenientStruct(Struct, frozen=True, kw_only=True):
    """A model writes its tools' input: any field may be missing."""


LenientT = TypeVar("LenientT", bound=LenientStruct)


class ToolInput(LenientStruct, frozen=True, kw_only=True, rename={"file": "filePath"}):
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


class TodoLine(LenientStruct, frozen=True, kw_only=True):
    """A line of OpenCode's todo list."""

    content: str = ""
    status: str = "pending"


class EditedFile(LenientStruct, frozen=True, kw_only=True, rename={"path": "filePath"}):
    """`edit` calls the path `file`, `apply_patch` calls it `filePath`."""

    file: str = ""
    path: str = ""
    additions: int | None = None
    deletions: int | None = None


class ToolMetadata(LenientStruct, frozen=True, kw_only=True):
    """What a tool reports beside its output."""

    exit: int | None = None
    todos: tuple[TodoLine, ...] = ()
    filediff: EditedFile | None = None
    files: tuple[EditedFile, ...] = ()
    exists: bool | None = None


class ToolOutput(LenientStruct, frozen=True, kw_only=True):
    """What came out of a tool."""

    output: str = ""
    error: str = ""
    metadata: ToolMetadata = ToolMetadata()


class OpenCodeTranslator(Translator):
    """What OpenCode's own tools are given, and what comes out of them."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self._inputs: dict[str, ToolInput] = {}

    def _call(
        self, fields: ToolUpdate, known: ToolCall | None, status: ToolStatus
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        # The first word on a call has the tool's name for a title; later ones say what it does.
        tool = known.tool if known else (fields.title or fields.kind or "tool")
        asked = self._input(fields)
        output = _read_tool_data(fields.raw_output, ToolOutput)
        ended = status in ("completed", "failed")
        call = ToolCall(
            id=fields.tool_call_id,
            tool=tool,
            status=status,
            title=self._shown(fields.title) or (known.title if known else ""),
            detail=asked.detail or (known.detail if known else ""),
            input=self._given(tool, fields) or (known.input if known else None),
            # A running command tells all of its output again and again: the end will do.
            output=_output_text(fields, output)[-MAX_OUTPUT:] if ended else "",
            changes=self._changes(tool, asked, output) if status == "completed" else (),
            command=_shell_command(tool, asked, output),
        )
        todos = output.metadata.todos if tool == "todowrite" and status == "completed" else ()
        return call, [_plan(todos)] if todos else []

    def _shown(self, title: str | None) -> str:
        """OpenCode names a file from the root of its git checkout, or of the disk without one."""
        inside = f"{self._cwd}/"
        return (title or "").replace(inside, "").removeprefix(inside.lstrip("/"))

    def _input(self, fields: agent_messages.ToolFields) -> ToolInput:
        asked = _read_tool_data(fields.raw_input, ToolInput)
        if asked != ToolInput():
            self._inputs[fields.tool_call_id] = asked
        return self._inputs.get(fields.tool_call_id, asked)

    def _given(self, tool: str, fields: agent_messages.ToolFields) -> object:
        """Over ACP, OpenCode adds the directory to what the model gave to a shell command."""
        given = shorten_input(fields.raw_input)
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


def _shell_command(tool: str, asked: ToolInput, output: ToolOutput) -> Command | None:
    if tool != "bash" or not asked.command:
        return None
    return Command(command=asked.command, exit=output.metadata.exit)


def _output_text(fields: agent_messages.ToolFields, output: ToolOutput) -> str:
    told = output.error or output.output
    blocks = [c.content for c in fields.content or () if isinstance(c, ToolContent)]
    return told or "".join(plain_text(block) for block in blocks)


def _plan(todos: Sequence[TodoLine]) -> PlanUpdated:
    return PlanUpdated(entries=tuple(plan_entry(todo.content, todo.status) for todo in todos))


def _read_tool_data(raw: Raw | UnsetType | None, kind: type[LenientT]) -> LenientT:
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.DecodeError:
        return kind()


_STATUS = {"running": "in_progress", "completed": "completed", "error": "failed"}


class PartProgress(ServerData, frozen=True, kw_only=True):
    """How far a tool call has come."""

    status: str = ""
    input: Raw | UnsetType = UNSET
    title: str = ""


class PartReader:
    """Reads the parts of one turn's messages; what the user said is not repeated."""

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._told: dict[str, int] = {}
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._doubted: set[str] = set()

    def mark_gap(self) -> None:
        """There was a gap: of a part that is known by now, only its whole counts from here on."""
        self._doubted.update(self._kinds)

    def note_message(self, info: MessageInfo) -> None:
        """Whose message it is. A part of a message that nobody told of is not read."""
        if info.role == "assistant":
            self._models.add(info.id)

    def read_message(self, message: ServerMessage) -> Sequence[AnyUpdate]:
        self.note_message(message.info)
        return [update for part in message.parts for update in self.read(part)]

    def read(self, part: MessagePart) -> Sequence[AnyUpdate]:
        if part.message not in self._models or part.synthetic:
            return []
        match part.type:
            case "text" | "reasoning":
                self._kinds[part.id] = part.type
                return self._more(part.id, part.message, part.text[self._told.get(part.id, 0) :])
            case "tool":
                return self._tool(part)
            case _:
                return []

    def read_delta(self, more: PartDelta) -> Sequence[AnyUpdate]:
        known = more.part in self._kinds and more.part not in self._doubted
        text = more.delta if known and more.field == "text" else ""
        return self._more(more.part, more.message, text)

    def _more(self, part: str, message: str, text: str) -> Sequence[AnyUpdate]:
        if not text:
            return []
        self._told[part] = self._told.get(part, 0) + len(text)
        thinks = self._kinds[part] == "reasoning"
        kind = AgentThoughtChunk if thinks else AgentMessageChunk
        return [kind(content=AcpText(text=text), message_id=message)]

    def _tool(self, part: MessagePart) -> Sequence[AnyUpdate]:
        if part.id in self._ended:
            return []
        state = _read_progress(part)
        if state.status in ("completed", "error"):
            self._ended.add(part.id)
        begun = AcpToolCall(tool_call_id=part.call, title=part.tool, raw_input=state.input)
        now = ToolCallUpdate(
            tool_call_id=part.call,
            title=state.title or None,
            status=_STATUS.get(state.status, "pending"),
            raw_input=state.input,
            raw_output=UNSET if state.status in ("pending", "running") else part.state,
        )
        if part.id in self._begun:
            return [now]
        self._begun.add(part.id)
        return [begun, now]


def _read_progress(part: MessagePart) -> PartProgress:
    try:
        return msgspec.json.decode(part.state, type=PartProgress)
    except msgspec.DecodeError:
        return PartProgress()


REJECTED = "The user rejected permission"
ServerDataT = TypeVar("ServerDataT", bound=ServerData)
_LINE_START = b'{"type":'
# The text of a line that was cut off, as far as it is whole: no half an escape.
_CUT_OFF_TEXT = re.compile(
    rb"""\{"type":"text".*?"text":"((?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*+)""", re.DOTALL
)


class OutputLine(ServerData, frozen=True, kw_only=True):
    """One line; which field it has follows from its type."""

    type: str = ""
    part: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class PrintedText(ServerData, frozen=True, kw_only=True, rename={"message": "messageID"}):
    """Text or reasoning, whole."""

    text: str = ""
    message: str = ""


class TaskMetadata(ServerData, frozen=True, kw_only=True, rename={"subagent": "sessionId"}):
    """What a tool reports beside its output: `task` names the session of its subagent."""

    subagent: str = ""


class EndedToolState(ServerData, frozen=True, kw_only=True):
    """How a tool call ended."""

    status: str = ""
    input: Raw | UnsetType = UNSET
    title: str = ""
    error: str = ""
    metadata: TaskMetadata = TaskMetadata()


class ToolPart(
    ServerData, frozen=True, kw_only=True, rename={"call": "callID", "session": "sessionID"}
):
    """A tool call that has ended; its state is also what came out of the tool."""

    id: str = ""
    session: str = ""
    call: str = ""
    tool: str = "tool"
    state: Raw = Raw(b"{}")


class StepEnd(ServerData, frozen=True, kw_only=True):
    """One model call is over."""

    cost: float = 0
    tokens: TokenCounts = TokenCounts()


class RunTranscript:
    """Reads the lines of one turn and remembers what its verdict needs.

    `direct` calls bypass the gate: only then are OpenCode's own figures told. `subagents` are sessions, of
    whose calls nothing is printed; `bypass` is a call that ran and was never allowed.
    """

    def __init__(
        self, provider: Provider, cwd: Path, look: BypassDetector, *, direct: bool
    ) -> None:
        self.has_session = False  # OpenCode has opened its session
        self.has_output = False
        self.cut_off = 0  # bytes of the line that the output ended in
        self.fault: SessionFault | None = None
        self.rejected: ToolCall | None = None
        self.bypass: PermissionBypassed | None = None
        self.subagents: list[str] = []
        self.ended: set[str] = set()  # calls
        self._look = look
        self._provider = provider
        self._direct = direct
        self._translator = OpenCodeTranslator(cwd)

    def read(self, line: bytes) -> Sequence[DriverEvent]:
        """The events that a line means; none for one that we cannot read."""
        said = _read_line(line, OutputLine)
        self.has_session = self.has_session or bool(said.type)
        match said.type:
            case "text":
                return self._text(_read_line(said.part, PrintedText))
            case "reasoning":
                words = _read_line(said.part, PrintedText)
                return [Thought(text=words.text, message=words.message)] if words.text else []
            case "tool_use":
                return self._tool(_read_line(said.part, ToolPart))
            case "step_finish" if self._direct:
                return self._usage(_read_line(said.part, StepEnd))
            case "error":
                self.fault = _read_fault(said.error)
                return []
            case _:
                return []

    def read_last(self, line: bytes) -> Sequence[DriverEvent]:
        """The end of the output, which may have no end: OpenCode exits before a long line has left."""
        if not line.startswith(_LINE_START) or _is_whole(line):
            return self.read(line)
        self.cut_off = len(line)
        return self._text(PrintedText(text=_partial_text(line)))

    def _text(self, words: PrintedText) -> Sequence[DriverEvent]:
        self.has_output = self.has_output or bool(words.text)
        return [TextDelta(text=words.text, message=words.message)] if words.text else []

    def _tool(self, part: ToolPart) -> Sequence[DriverEvent]:
        state = _read_line(part.state, EndedToolState)
        self._check(part)
        begun = agent_messages.AcpToolCall(tool_call_id=part.call, title=part.tool)
        ended = agent_messages.ToolCallUpdate(
            tool_call_id=part.call,
            title=state.title or None,
            status="completed" if state.status == "completed" else "failed",
            raw_input=state.input,
            raw_output=part.state,
        )
        self._translator.translate(begun)
        events = self._translator.translate(ended)
        self.has_output = True
        self.ended.add(part.call)
        if state.error.startswith(REJECTED):
            self.rejected = next((e for e in events if isinstance(e, ToolCall)), None)
        return events

    def _check(self, part: ToolPart) -> None:
        told = MessagePart(
            id=part.id,
            type="tool",
            session=part.session,
            call=part.call,
            tool=part.tool,
            state=part.state,
        )
        self.bypass = self.bypass or self._look.check(told, from_start=False)
        self.subagents += filter(None, [subagent_session(told)])

    def _usage(self, step: StepEnd) -> Sequence[DriverEvent]:
        usage = step.tokens.usage
        report = UsageReported(
            provider=self._provider.name,
            model=self._provider.model,
            usage=usage,
            cost_usd=Decimal(str(step.cost)) if step.cost > 0 else None,
            source="opencode",
        )
        return [report] if usage.total else []


def subagent_session(part: MessagePart) -> str:
    """The session of the subagent that a call started; empty for any other call."""
    return _read_line(part.state, EndedToolState).metadata.subagent if part.tool == "task" else ""


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _partial_text(line: bytes) -> str:
    said = _CUT_OFF_TEXT.match(line)
    text = said[1].decode(errors="ignore") if said else ""
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return ""  # one half of a pair of escapes


def _read_fault(raw: Raw | UnsetType) -> SessionFault:
    try:
        return msgspec.json.decode(raw or b"{}", type=SessionFault)
    except msgspec.DecodeError:
        return SessionFault(name="an error that it did not explain")


def _read_line(raw: bytes | Raw | UnsetType, kind: type[ServerDataT]) -> ServerDataT:
    """A line of another shape, or no JSON at all, is somebody else's: plugins print too."""
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return kind()
