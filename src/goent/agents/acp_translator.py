"""Translates ACP updates into our events, for any agent.

How the input and output of tool calls are reported differs between agents, and so do translators.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import asdict, replace

from goent.acp import agent_messages
from goent.acp.agent_messages import ToolFields
from goent.acp.message_parts import AcpDiff, plain_text
from goent.agents.tool_subject import EXITS, CallSubject, ToolData, call_text, read_subject
from goent.domain.events import DriverEvent, PlanUpdated, TextDelta, Thought, ToolCall
from goent.domain.types import Command, FileChange, PlanEntry

MAX_OUTPUT = 4000
MAX_INPUT_BYTES = 16_000  # of a tool's input; in a larger one, long texts are cut
MAX_INPUT_TEXT = 1000
INTERRUPTED = "its process ended before the call did; it may or may not have taken effect"
ToolStatus = Literal["pending", "running", "completed", "failed"]
ToolUpdate = agent_messages.AcpToolCall | agent_messages.ToolCallUpdate
_TABLE = dict[str, object]
_STATUS: dict[str, ToolStatus] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}


class Translator(ABC):
    """Remembers a turn's tool calls: an update has only what has changed."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._calls: dict[str, ToolCall] = {}

    def translate(self, update: agent_messages.AnyUpdate) -> Sequence[DriverEvent]:
        match update:
            case agent_messages.AgentMessageChunk():
                text, message = plain_text(update.content), update.message_id or ""
                return [TextDelta(text=text, message=message)] if text else []
            case agent_messages.AgentThoughtChunk():
                text, message = plain_text(update.content), update.message_id or ""
                return [Thought(text=text, message=message)] if text else []
            case agent_messages.AcpToolCall() | agent_messages.ToolCallUpdate():
                return self._tool(update)
            case agent_messages.AcpPlan():
                entries = (plan_entry(entry.content, entry.status) for entry in update.entries)
                return [PlanUpdated(entries=tuple(entries))]
            case _:
                return []

    def fail_open_calls(self) -> Sequence[ToolCall]:
        """The open calls, as failed ones."""
        return [
            replace(call, status="failed", output=INTERRUPTED)
            for call in self._calls.values()
            if call.status in ("pending", "running")
        ]

    @property
    def running(self) -> str:
        at_work = (c for c in self._calls.values() if c.status in ("pending", "running"))
        return next((f"{c.tool}: {c.title or c.detail}"[:80] for c in at_work), "")

    @abstractmethod
    def _call(
        self, fields: ToolUpdate, known: ToolCall | None, status: ToolStatus
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        """The call as it is now, and other events of its update."""

    def _tool(self, fields: ToolUpdate) -> Sequence[DriverEvent]:
        known = self._calls.get(fields.tool_call_id)
        status = _STATUS.get(fields.status or "", known.status if known else "pending")
        call, more = self._call(fields, known, status)
        if call == known:
            return []
        self._calls[call.id] = call
        is_repeated = known is not None and known.input == call.input
        return [replace(call, input=None) if is_repeated else call, *more]

    def _change(self, name: str, added: int | None, removed: int | None) -> FileChange:
        path = self._cwd / name
        inside = path.is_relative_to(self._cwd)
        shown = path.relative_to(self._cwd) if inside else path
        return FileChange(path=str(shown), added=added, removed=removed)


def shorten_input(raw: Raw | UnsetType | None) -> object:
    """A tool's input, shortened if it is long; None if there is none or it is too long."""
    try:
        given: object = msgspec.json.decode(raw or b"null")
    except (msgspec.DecodeError, RecursionError):
        return None
    if raw and len(raw) > MAX_INPUT_BYTES:
        given = _shorten(given)
        if len(msgspec.json.encode(given)) > MAX_INPUT_BYTES:
            return None
    return given if given != {} else None


def _shorten(given: object) -> object:
    if isinstance(given, str) and len(given) > MAX_INPUT_TEXT:
        return f"{given[:MAX_INPUT_TEXT]}… ({len(given) - MAX_INPUT_TEXT} characters more)"
    if isinstance(given, dict):
        return {key: _shorten(value) for key, value in msgspec.convert(given, _TABLE).items()}
    if isinstance(given, list):
        return [_shorten(value) for value in msgspec.convert(given, list[object])]
    return given


def plan_entry(text: str, status: str) -> PlanEntry:
    match status:
        case "in_progress" | "completed" | "cancelled":
            return PlanEntry(text=text, status=status)
        case _:
            return PlanEntry(text=text, status="pending")


MAX_CALLS = 10_000  # further ones in a turn are not reported
MAX_COMPARED_LINES = 2000  # beyond, an edit counts as if every line had changed
_TOOLS = {"execute": "bash", "search": "grep", "fetch": "webfetch"}


class AgentTranslator(Translator):
    """Merges the updates of a call: what an update leaves out is unchanged."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self._whole: dict[str, ToolFields] = {}

    def merge(self, fields: ToolFields) -> ToolFields:
        """The call with everything reported so far."""
        known = self._whole.get(fields.tool_call_id)
        if known is None:
            return fields
        given = {
            name: value
            for name, value in asdict(fields).items()
            if value is not None and value is not UNSET
        }
        return msgspec.structs.replace(known, **given)

    def merge_question(self, fields: ToolFields) -> ToolFields:
        """The same for a call that needs permission.

        Some agents have sent its input only as text so far, piece by piece, as its model wrote it.
        """
        whole, known = self.merge(fields), self._whole.get(fields.tool_call_id)
        if whole.raw_input or known is None:
            return whole
        text = call_text(known).encode()
        return (
            msgspec.structs.replace(whole, raw_input=Raw(text))
            if ToolData.read(Raw(text))
            else whole
        )

    def _tool(self, fields: ToolUpdate) -> Sequence[DriverEvent]:
        if fields.tool_call_id not in self._whole and len(self._whole) >= MAX_CALLS:
            return []
        return super()._tool(fields)

    def _call(
        self, fields: ToolUpdate, known: ToolCall | None, status: ToolStatus
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        whole = self._whole[fields.tool_call_id] = self.merge(fields)
        about, output = read_subject(whole), ToolData.read(whole.raw_output)
        ended = status in ("completed", "failed")
        tool = known.tool if known else _tool_name(whole)
        call = ToolCall(
            id=whole.tool_call_id,
            tool=tool,
            status=status,
            title=(whole.title or "").replace(f"{self._cwd}/", ""),
            detail=about.detail,
            input=shorten_input(whole.raw_input),
            output=_output_text(whole)[-MAX_OUTPUT:] if ended else "",
            changes=self._changes(whole, about) if status == "completed" else (),
            command=Command(command=about.command, exit=output.number(EXITS))
            if about.command
            else None,
        )
        return call, []

    def _changes(self, call: ToolFields, about: CallSubject) -> tuple[FileChange, ...]:
        diffs = [part for part in call.content or () if isinstance(part, AcpDiff)]
        if diffs:
            return tuple(self._change(diff.path, *_count_lines(diff)) for diff in diffs)
        if call.kind in ("edit", "delete", "move") and not about.command:
            return tuple(self._change(path, None, None) for path in about.paths)
        return ()


def _tool_name(call: ToolFields) -> str:
    kind = call.kind or ""
    return _TOOLS.get(kind) or (kind if kind not in ("", "other") else call.title or "tool")


def _count_lines(diff: AcpDiff) -> tuple[int, int]:
    """Lines added and removed."""
    old, new = (diff.old_text or "").splitlines(), diff.new_text.splitlines()
    if len(old) + len(new) > MAX_COMPARED_LINES:
        return len(new), len(old)
    same = sum(
        block.size
        for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    )
    return len(new) - same, len(old) - same


def _output_text(call: ToolFields) -> str:
    return call_text(call) or _raw_text(call.raw_output)


def _raw_text(raw: Raw | UnsetType | None) -> str:
    output = ToolData.read(raw)
    text = output.text(("output", "error", "stdout", "stderr", "content", "result"))
    if text or not raw:
        return text
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""
