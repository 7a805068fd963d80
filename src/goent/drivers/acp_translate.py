"""What do ACP updates mean in our words, whichever agent sends them?

What a tool call was given and what came of it, each agent tells in its own way: that is said by
the translator for that agent.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from goent.acp import updates
from goent.acp.content import plain_text
from goent.domain.events import DriverEvent, PlanUpdated, TextDelta, Thought, ToolCall
from goent.domain.types import FileChange, PlanEntry

OUTPUT_KEPT = 4000
INPUT_KEPT = 16_000  # bytes of what a tool was given; of more, long texts are cut
TEXT_KEPT = 1000
INTERRUPTED = "its process ended before the call did; it may or may not have taken effect"
Status = Literal["pending", "running", "completed", "failed"]
ToolUpdate = updates.ToolCall | updates.ToolCallUpdate
_TABLE = dict[str, object]
_STATUS: dict[str, Status] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}


class Translator(ABC):
    """Remembers a turn's tool calls: an update tells only what has changed."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._calls: dict[str, ToolCall] = {}

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
                entries = (plan_entry(entry.content, entry.status) for entry in update.entries)
                return [PlanUpdated(entries=tuple(entries))]
            case _:
                return []

    def interrupted(self) -> Sequence[ToolCall]:
        """The calls that had not ended, as ones that never will."""
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
        self, fields: ToolUpdate, known: ToolCall | None, status: Status
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        """The call as it stands now, and what else its update tells."""

    def _tool(self, fields: ToolUpdate) -> Sequence[DriverEvent]:
        known = self._calls.get(fields.tool_call_id)
        status = _STATUS.get(fields.status or "", known.status if known else "pending")
        call, more = self._call(fields, known, status)
        if call == known:
            return []
        self._calls[call.id] = call
        told_before = known is not None and known.input == call.input
        return [replace(call, input=None) if told_before else call, *more]

    def _change(self, name: str, added: int | None, removed: int | None) -> FileChange:
        path = self._cwd / name
        inside = path.is_relative_to(self._cwd)
        shown = path.relative_to(self._cwd) if inside else path
        return FileChange(path=str(shown), added=added, removed=removed)


def kept_input(raw: Raw | UnsetType | None) -> object:
    """What a tool was given, as far as it is kept; None where nothing is told."""
    try:
        given: object = msgspec.json.decode(raw or b"null")
    except (msgspec.DecodeError, RecursionError):
        return None
    if raw and len(raw) > INPUT_KEPT:
        given = _cut(given)
        if len(msgspec.json.encode(given)) > INPUT_KEPT:
            return None
    return given if given != {} else None


def _cut(given: object) -> object:
    if isinstance(given, str) and len(given) > TEXT_KEPT:
        return f"{given[:TEXT_KEPT]}… ({len(given) - TEXT_KEPT} characters more)"
    if isinstance(given, dict):
        return {key: _cut(value) for key, value in msgspec.convert(given, _TABLE).items()}
    if isinstance(given, list):
        return [_cut(value) for value in msgspec.convert(given, list[object])]
    return given


def plan_entry(text: str, status: str) -> PlanEntry:
    match status:
        case "in_progress" | "completed" | "cancelled":
            return PlanEntry(text=text, status=status)
        case _:
            return PlanEntry(text=text, status="pending")
