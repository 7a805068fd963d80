"""What do an agent's tool calls mean in our words, by what all agents tell alike?"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import asdict

from goent.acp.content import Diff
from goent.acp.updates import ToolFields
from goent.domain.events import DriverEvent, ToolCall
from goent.domain.types import Command, FileChange
from goent.drivers.acp_translate import (
    OUTPUT_KEPT,
    Status,
    ToolUpdate,
    Translator,
    kept_input,
)
from goent.drivers.agent.subjects import EXITS, Given, Subject, subject, told_text

MOST_CALLS = 10_000  # a turn that tells of more is told of no further ones
COMPARED = 2000  # lines; beyond, an edit is counted as if every line had changed
_TOOLS = {"execute": "bash", "search": "grep", "fetch": "webfetch"}


class AgentTranslator(Translator):
    """Puts together what comes in pieces: what an update leaves out is as it was."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(cwd)
        self._whole: dict[str, ToolFields] = {}

    def whole(self, fields: ToolFields) -> ToolFields:
        """The call with all that was told of it so far."""
        known = self._whole.get(fields.tool_call_id)
        if known is None:
            return fields
        news = {
            name: value
            for name, value in asdict(fields).items()
            if value is not None and value is not UNSET
        }
        return msgspec.structs.replace(known, **news)

    def asked(self, fields: ToolFields) -> ToolFields:
        """The same for a call that is asked about.

        Some agents have told its input only as text so far, piece by piece, as its model wrote it.
        """
        whole, known = self.whole(fields), self._whole.get(fields.tool_call_id)
        if whole.raw_input or known is None:
            return whole
        text = told_text(known).encode()
        return (
            msgspec.structs.replace(whole, raw_input=Raw(text)) if Given.read(Raw(text)) else whole
        )

    def _tool(self, fields: ToolUpdate) -> Sequence[DriverEvent]:
        if fields.tool_call_id not in self._whole and len(self._whole) >= MOST_CALLS:
            return []
        return super()._tool(fields)

    def _call(
        self, fields: ToolUpdate, known: ToolCall | None, status: Status
    ) -> tuple[ToolCall, Sequence[DriverEvent]]:
        whole = self._whole[fields.tool_call_id] = self.whole(fields)
        about, output = subject(whole), Given.read(whole.raw_output)
        ended = status in ("completed", "failed")
        tool = known.tool if known else _tool_name(whole)
        call = ToolCall(
            id=whole.tool_call_id,
            tool=tool,
            status=status,
            title=(whole.title or "").replace(f"{self._cwd}/", ""),
            detail=about.detail,
            input=kept_input(whole.raw_input),
            output=_text(whole)[-OUTPUT_KEPT:] if ended else "",
            changes=self._changes(whole, about) if status == "completed" else (),
            command=Command(command=about.command, exit=output.number(EXITS))
            if about.command
            else None,
        )
        return call, []

    def _changes(self, call: ToolFields, about: Subject) -> tuple[FileChange, ...]:
        diffs = [part for part in call.content or () if isinstance(part, Diff)]
        if diffs:
            return tuple(self._change(diff.path, *_lines(diff)) for diff in diffs)
        if call.kind in ("edit", "delete", "move") and not about.command:
            return tuple(self._change(path, None, None) for path in about.paths)
        return ()


def _tool_name(call: ToolFields) -> str:
    kind = call.kind or ""
    return _TOOLS.get(kind) or (kind if kind not in ("", "other") else call.title or "tool")


def _lines(diff: Diff) -> tuple[int, int]:
    """Lines added and removed."""
    old, new = (diff.old_text or "").splitlines(), diff.new_text.splitlines()
    if len(old) + len(new) > COMPARED:
        return len(new), len(old)
    same = sum(
        block.size
        for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    )
    return len(new) - same, len(old) - same


def _text(call: ToolFields) -> str:
    return told_text(call) or _raw_text(call.raw_output)


def _raw_text(raw: Raw | UnsetType | None) -> str:
    output = Given.read(raw)
    told = output.text(("output", "error", "stdout", "stderr", "content", "result"))
    if told or not raw:
        return told
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""
