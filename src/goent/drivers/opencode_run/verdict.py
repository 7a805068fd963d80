"""What does the end of `opencode run` mean? Its exit code alone does not tell.

It is 0 when a permission was refused, which ended the turn, and when the model said nothing. It is 1
with an error line that may only point to the log; so the log's errors go to standard error as well.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from goent.domain.errors import (
    NothingSaid,
    PermissionDenied,
    ProtocolError,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.types import Provider, Value
from goent.drivers.opencode.failures import classify_fault, database_trouble
from goent.drivers.opencode.shapes import ErrorData, SessionFault
from goent.drivers.opencode_run.lines import Transcript

NAME = "opencode run"
TAIL = 500
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED = re.compile(r"permission requested: (?P<tool>\S+) \((?P<what>.*)\); auto-rejecting")
_LOGGED = re.compile(r'level=ERROR .*?\berror="(?P<error>(?:[^"\\]|\\.)*)"')
_UNEXPLAINED = "Check server logs"


class Refusal(Value, frozen=True, kw_only=True):
    """A permission that nobody could be asked for."""

    tool: str
    what: str


class Ending(Value, frozen=True, kw_only=True):
    """How the process ended: `code` is None if it had to be ended, `errors` are its last words."""

    code: int | None
    errors: str

    @property
    def plain(self) -> str:
        return _COLOURS.sub("", self.errors)

    def refusals(self) -> Iterator[Refusal]:
        for found in _REFUSED.finditer(self.plain):
            yield Refusal(tool=found["tool"], what=found["what"])

    @property
    def logged(self) -> str:
        """The last error in the log, without the trace behind it."""
        found = [match["error"] for match in _LOGGED.finditer(self.plain)]
        try:
            return msgspec.json.decode(f'"{found[-1]}"', type=str) if found else ""
        except msgspec.DecodeError:
            return found[-1]


def failure(
    transcript: Transcript, ending: Ending, provider: Provider, database: Path
) -> WorkerError | None:
    """Why the turn failed; None if it did not."""
    if transcript.fault:
        return classify_fault(_explained(transcript.fault, ending))
    if ending.code != 0:
        return database_trouble(ending.plain, database) or _crash(ending)
    if transcript.cut_off:
        return ProtocolError(
            f"{NAME} ended in the middle of a line, {transcript.cut_off} bytes into it: an answer this "
            "long may get lost on its way out; use the method 'acp', 'serve' or 'api'"
        )
    if transcript.rejected:
        return _denied(transcript, ending)
    if not transcript.spoke:
        return NothingSaid(
            f"{provider.opencode_model} ended its turn without a word and without a tool call"
        )
    return None


def _explained(fault: SessionFault, ending: Ending) -> SessionFault:
    told = fault.data.message
    if (told and _UNEXPLAINED not in told) or not ending.logged:
        return fault
    name, _, message = ending.logged.rpartition("Error: ")
    return SessionFault(
        name=f"{name}Error" if name else fault.name,
        data=ErrorData(message=message, status=fault.data.status),
    )


def _crash(ending: Ending) -> WorkerCrashed:
    code = ending.code
    how = "did not end by itself" if code is None else f"ended with code {code}"
    said = ending.logged or ending.plain[-TAIL:].strip()
    # Who was killed had no last words.
    last = f": {said}" if said and (code is None or code >= 0) else ""
    return WorkerCrashed(f"{NAME} {how}{last}", returncode=code, stderr=ending.plain)


def _denied(transcript: Transcript, ending: Ending) -> PermissionDenied:
    call, refusals = transcript.rejected, list(ending.refusals())
    assert call
    last = refusals[-1] if refusals else Refusal(tool=call.tool, what=call.detail)
    return denied(last.tool, last.what)


def denied(tool: str, what: str) -> PermissionDenied:
    return PermissionDenied(
        f"permission {tool!r} was refused for {what!r}: the method 'cli' has nobody to "
        "ask; allow it (`permissions`, a rule), or use the method 'acp'"
    )
