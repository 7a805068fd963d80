"""Translates what OpenCode reports, by ACP, event stream or standard output, into our events.

The event stream sends a text piece by piece, and whole at its end. What was passed on is remembered,
so that nothing is repeated and nothing is lost with a broken stream: after a gap, pieces of a text
that had begun cannot be placed and wait for the whole. Tool calls become the updates that ACP makes
of them.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

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
    decode_leniently,
)


class ToolInput(Struct, frozen=True, kw_only=True, rename={"file": "filePath"}):
    """The input fields of OpenCode's tools that say what a call is about.

    A model writes them, so any may be missing.
    """

    command: str = ""
    file: str = ""
    path: str = ""
    pattern: str = ""
    url: str = ""
    description: str = ""
    content: str = ""

    @property
    def detail(self) -> str:
        fields = (self.command, self.file, self.pattern, self.url, self.path, self.description)
        return next(filter(None, fields), "")


class TodoLine(Struct, frozen=True, kw_only=True):
    """A line of OpenCode's todo list."""

    content: str = ""
    status: str = "pending"


class EditedFile(Struct, frozen=True, kw_only=True, rename={"path": "filePath"}):
    """`edit` calls the path `file`, `apply_patch` calls it `filePath`."""

    file: str = ""
    path: str = ""
    additions: int | None = None
    deletions: int | None = None


class ToolMetadata(Struct, frozen=True, kw_only=True):
    """What a tool reports beside its output."""

    exit: int | None = None
    todos: tuple[TodoLine, ...] = ()
    filediff: EditedFile | None = None
    files: tuple[EditedFile, ...] = ()
    exists: bool | None = None


class ToolOutput(Struct, frozen=True, kw_only=True):
    """What came out of a tool."""

    output: str = ""
    error: str = ""
    metadata: ToolMetadata = ToolMetadata()


class OpenCodeTranslator(Translator):
    """Translates the calls of OpenCode's own tools."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self._inputs: dict[str, ToolInput] = {}

    def _call(
        self, fields: ToolUpdate, known: ToolCall | None, status: ToolStatus
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        # The first update of a call has the tool's name as its title; later titles say what it does.
        tool = known.tool if known else (fields.title or fields.kind or "tool")
        asked = self._input(fields)
        output = decode_leniently(fields.raw_output, ToolOutput)
        ended = status in ("completed", "failed")
        call = ToolCall(
            id=fields.tool_call_id,
            tool=tool,
            status=status,
            title=self._shown(fields.title) or (known.title if known else ""),
            detail=asked.detail or (known.detail if known else ""),
            input=self._given(tool, fields) or (known.input if known else None),
            # A running command repeats all of its output with each update: the final one will do.
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
        asked = decode_leniently(fields.raw_input, ToolInput)
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
        metadata = output.metadata
        if tool == "write" and asked.file:
            new = metadata.exists is False
            added = len(asked.content.splitlines()) if new else None
            return (self._change(asked.file, added, 0 if new else None),)
        files = (metadata.filediff,) if metadata.filediff else metadata.files
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
    blocks = [c.content for c in fields.content or () if isinstance(c, ToolContent)]
    return output.error or output.output or "".join(map(plain_text, blocks))


def _plan(todos: Sequence[TodoLine]) -> PlanUpdated:
    return PlanUpdated(entries=tuple(plan_entry(todo.content, todo.status) for todo in todos))


_STATUS = {"running": "in_progress", "completed": "completed", "error": "failed"}


class PartReader:
    """Reads the parts of one turn's messages, leaving out the user's."""

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._sent: dict[str, int] = {}
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._doubted: set[str] = set()

    def mark_gap(self) -> None:
        """After a gap in the stream: of the parts known so far, only the whole counts from now on."""
        self._doubted.update(self._kinds)

    def note_message(self, info: MessageInfo) -> None:
        """Note whose message it is: parts of unknown messages are not read."""
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
                return self._more(part.id, part.message, part.text[self._sent.get(part.id, 0) :])
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
        self._sent[part] = self._sent.get(part, 0) + len(text)
        thinks = self._kinds[part] == "reasoning"
        kind = AgentThoughtChunk if thinks else AgentMessageChunk
        return [kind(content=AcpText(text=text), message_id=message)]

    def _tool(self, part: MessagePart) -> Sequence[AnyUpdate]:
        if part.id in self._ended:
            return []
        state = part.call_state
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


SUBAGENT_TOOL = "task"
REJECTED = "The user rejected permission"
_LINE_START = b'{"type":'
# The text of a line that was cut off, without half an escape at its end.
_CUT_OFF_TEXT = re.compile(
    rb"""\{"type":"text".*?"text":"((?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*+)""", re.DOTALL
)


class OutputLine(ServerData, frozen=True, kw_only=True):
    """One line; its type decides which field it has."""

    type: str = ""
    part: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class PrintedText(ServerData, frozen=True, kw_only=True, rename={"message": "messageID"}):
    """A whole text or thought."""

    text: str = ""
    message: str = ""


class PrintedToolPart(MessagePart, frozen=True, kw_only=True):
    """A tool call that has ended."""

    id: str = ""
    type: str = "tool"
    tool: str = "tool"


class StepEnd(ServerData, frozen=True, kw_only=True):
    """One model call is over."""

    cost: float = 0
    tokens: TokenCounts = TokenCounts()


class RunTranscript:
    """Reads the lines of one turn and keeps what decides how it ended.

    Only `direct` calls, which bypass the gate, are metered by OpenCode's own figures. `subagents`
    are sessions whose calls are not printed; `bypass` is a call that ran without permission.
    """

    def __init__(
        self, provider: Provider, cwd: Path, bypass_detector: BypassDetector, *, direct: bool
    ) -> None:
        self.has_session = False  # OpenCode has opened its session
        self.has_output = False
        self.cut_off = 0  # bytes of the line that the output ended in
        self.fault: SessionFault | None = None
        self.rejected: ToolCall | None = None
        self.bypass: PermissionBypassed | None = None
        self.subagents: list[str] = []
        self.ended: set[str] = set()  # calls
        self._bypass_detector = bypass_detector
        self._provider = provider
        self._direct = direct
        self._translator = OpenCodeTranslator(cwd)

    def read(self, line: bytes) -> Sequence[DriverEvent]:
        """The events of a line; none if we cannot read it. Plugins print too."""
        output = decode_leniently(line, OutputLine)
        self.has_session = self.has_session or bool(output.type)
        match output.type:
            case "text":
                return self._text(decode_leniently(output.part, PrintedText))
            case "reasoning":
                words = decode_leniently(output.part, PrintedText)
                return [Thought(text=words.text, message=words.message)] if words.text else []
            case "tool_use":
                return self._tool(decode_leniently(output.part, PrintedToolPart))
            case "step_finish" if self._direct:
                return self._usage(decode_leniently(output.part, StepEnd))
            case "error":
                self.fault = _read_fault(output.error)
                return []
            case _:
                return []

    def read_last(self, line: bytes) -> Sequence[DriverEvent]:
        """Read the last line, which may be cut off: OpenCode can exit before a long one is written."""
        if not line.startswith(_LINE_START) or _is_whole(line):
            return self.read(line)
        self.cut_off = len(line)
        return self._text(PrintedText(text=_partial_text(line)))

    def _text(self, words: PrintedText) -> Sequence[DriverEvent]:
        self.has_output = self.has_output or bool(words.text)
        return [TextDelta(text=words.text, message=words.message)] if words.text else []

    def _tool(self, part: MessagePart) -> Sequence[DriverEvent]:
        state = part.call_state
        self.bypass = self.bypass or self._bypass_detector.check(part, from_start=False)
        if part.tool == SUBAGENT_TOOL and state.subagent:
            self.subagents.append(state.subagent)
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


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _partial_text(line: bytes) -> str:
    found = _CUT_OFF_TEXT.match(line)
    text = found[1].decode(errors="ignore") if found else ""
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return ""  # half of a surrogate pair


def _read_fault(raw: Raw | UnsetType) -> SessionFault:
    try:
        return msgspec.json.decode(raw or b"{}", type=SessionFault)
    except msgspec.DecodeError:
        return SessionFault(name="an error that it did not explain")
