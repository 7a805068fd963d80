"""What does `opencode run --format json` print, one finished part a line, and what of it is ours?"""

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.acp import updates
from goent.domain.errors import PermissionBypassed
from goent.domain.events import DriverEvent, TextDelta, Thought, ToolCall, UsageReported
from goent.domain.types import Provider, Usage
from goent.drivers.opencode.second_look import SecondLook
from goent.drivers.opencode.shapes import Part, Reading, SessionFault, Tokens
from goent.drivers.opencode.translate import OpenCodeTranslator

REJECTED = "The user rejected permission"
T = TypeVar("T", bound=Reading)
_OURS = b'{"type":'
# The text of a line that was cut off, as far as it is whole: no half an escape.
_BEGUN = re.compile(
    rb"""\{"type":"text".*?"text":"((?:[^"\\]++|\\(?:[^u]|u[0-9a-fA-F]{4}))*+)""", re.DOTALL
)


class Line(Reading, frozen=True, kw_only=True):
    """One line; which field it has follows from its type."""

    type: str = ""
    part: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Words(Reading, frozen=True, kw_only=True, rename={"message": "messageID"}):
    """Text or reasoning, whole."""

    text: str = ""
    message: str = ""


class Beside(Reading, frozen=True, kw_only=True, rename={"subagent": "sessionId"}):
    """What a tool reports beside its output: `task` names the session of its subagent."""

    subagent: str = ""


class ToolState(Reading, frozen=True, kw_only=True):
    """How a tool call ended."""

    status: str = ""
    input: Raw | UnsetType = UNSET
    title: str = ""
    error: str = ""
    metadata: Beside = Beside()


class ToolPart(
    Reading, frozen=True, kw_only=True, rename={"call": "callID", "session": "sessionID"}
):
    """A tool call that has ended; its state is also what came out of the tool."""

    id: str = ""
    session: str = ""
    call: str = ""
    tool: str = "tool"
    state: Raw = Raw(b"{}")


class StepEnd(Reading, frozen=True, kw_only=True):
    """One model call is over."""

    cost: float = 0
    tokens: Tokens = Tokens()


class Transcript:
    """Reads the lines of one turn and remembers what its verdict needs.

    `direct` calls bypass the gate: only then are OpenCode's own figures told. `subagents` are sessions, of
    whose calls nothing is printed; `bypass` is a call that ran and was never allowed.
    """

    def __init__(self, provider: Provider, cwd: Path, look: SecondLook, *, direct: bool) -> None:
        self.began = False  # OpenCode has opened its session
        self.spoke = False
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
        said = _read(line, Line)
        self.began = self.began or bool(said.type)
        match said.type:
            case "text":
                return self._text(_read(said.part, Words))
            case "reasoning":
                words = _read(said.part, Words)
                return [Thought(text=words.text, message=words.message)] if words.text else []
            case "tool_use":
                return self._tool(_read(said.part, ToolPart))
            case "step_finish" if self._direct:
                return self._usage(_read(said.part, StepEnd))
            case "error":
                self.fault = _fault(said.error)
                return []
            case _:
                return []

    def read_last(self, line: bytes) -> Sequence[DriverEvent]:
        """The end of the output, which may have no end: OpenCode exits before a long line has left."""
        if not line.startswith(_OURS) or _is_whole(line):
            return self.read(line)
        self.cut_off = len(line)
        return self._text(Words(text=_begun(line)))

    def _text(self, words: Words) -> Sequence[DriverEvent]:
        self.spoke = self.spoke or bool(words.text)
        return [TextDelta(text=words.text, message=words.message)] if words.text else []

    def _tool(self, part: ToolPart) -> Sequence[DriverEvent]:
        state = _read(part.state, ToolState)
        self._check(part)
        begun = updates.ToolCall(tool_call_id=part.call, title=part.tool)
        ended = updates.ToolCallUpdate(
            tool_call_id=part.call,
            title=state.title or None,
            status="completed" if state.status == "completed" else "failed",
            raw_input=state.input,
            raw_output=part.state,
        )
        self._translator.translate(begun)
        events = self._translator.translate(ended)
        self.spoke = True
        self.ended.add(part.call)
        if state.error.startswith(REJECTED):
            self.rejected = next((e for e in events if isinstance(e, ToolCall)), None)
        return events

    def _check(self, part: ToolPart) -> None:
        told = Part(
            id=part.id,
            type="tool",
            session=part.session,
            call=part.call,
            tool=part.tool,
            state=part.state,
        )
        self.bypass = self.bypass or self._look.saw(told, from_start=False)
        self.subagents += filter(None, [subagent_of(told)])

    def _usage(self, step: StepEnd) -> Sequence[DriverEvent]:
        tokens = step.tokens
        usage = Usage(
            input=tokens.input,
            output=tokens.output,
            reasoning=tokens.reasoning,
            cache_read=tokens.cache.read,
            cache_write=tokens.cache.write,
        )
        report = UsageReported(
            provider=self._provider.name,
            model=self._provider.model,
            usage=usage,
            cost_usd=Decimal(str(step.cost)) if step.cost > 0 else None,
            source="opencode",
        )
        return [report] if usage.total else []


def subagent_of(part: Part) -> str:
    """The session of the subagent that a call started; empty for any other call."""
    return _read(part.state, ToolState).metadata.subagent if part.tool == "task" else ""


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _begun(line: bytes) -> str:
    said = _BEGUN.match(line)
    text = said[1].decode(errors="ignore") if said else ""
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return ""  # one half of a pair of escapes


def _fault(raw: Raw | UnsetType) -> SessionFault:
    try:
        return msgspec.json.decode(raw or b"{}", type=SessionFault)
    except msgspec.DecodeError:
        return SessionFault(name="an error that it did not explain")


def _read(raw: bytes | Raw | UnsetType, kind: type[T]) -> T:
    """A line of another shape, or no JSON at all, is somebody else's: plugins print too."""
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return kind()
