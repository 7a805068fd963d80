"""Finds tool calls of OpenCode that ran although nobody had allowed them.

The guard decides before a call runs. This is the second look, at the calls that OpenCode says it has
completed: one that must be judged and has no verdict got past the guard. A verdict is good for one call,
for models use the same call ids again.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from goent.domain.errors import PermissionBypassed
from goent.domain.guard import GuardedCall
from goent.drivers.opencode.guard import JUDGED
from goent.drivers.opencode.shapes import Part, Reading

DETAIL = 300  # characters of what ran
_SUBJECTS = ("command", "filePath", "url", "patchText", "patch")


class CallState(Reading, frozen=True, kw_only=True):
    """How far a tool call has come, and what it was given."""

    status: str = ""
    input: Mapping[str, object] = {}


class SecondLook:
    """The verdicts on the calls of one session and its subagents, and what was completed without one.

    `excused` decides on a call without a verdict, where there is no guard.
    """

    def __init__(self, excused: Callable[[GuardedCall], bool] | None = None) -> None:
        self.missed = False  # events may have been lost
        self._excused = excused
        self._allowed: Counter[tuple[str, str]] = Counter()
        self._open: dict[str, str] = {}
        self._ended: set[str] = set()

    def allow(self, session: str, call: str) -> None:
        self._allowed[session, call] += 1

    @property
    def unfinished(self) -> frozenset[str]:
        """The sessions with calls that have begun and were not seen to end."""
        return frozenset(self._open.values())

    def saw(self, part: Part, *, from_start: bool = True) -> PermissionBypassed | None:
        """Look at a call as it is now; an error if it was completed and never allowed.

        With `from_start` only a call counts that was seen to begin: OpenCode tells of old ones again.
        """
        state = call_state(part)
        if part.type != "tool" or part.tool not in JUDGED or part.id in self._ended:
            return None
        if state.status in ("pending", "running"):
            self._open[part.id] = part.session
            return None
        known = self._open.pop(part.id, None) is not None
        self._ended.add(part.id)
        if state.status != "completed" or not (known or not from_start):
            return None
        call = GuardedCall(
            owner="",
            session=part.session,
            call=part.call,
            tool=part.tool,
            directory="",
            args=state.input,
        )
        return None if self._may(call) else bypassed(call)

    def _may(self, call: GuardedCall) -> bool:
        if self._allowed[call.session, call.call] > 0:
            self._allowed[call.session, call.call] -= 1
            return True
        return self._excused is not None and self._excused(call)


def call_state(part: Part) -> CallState:
    try:
        return msgspec.json.decode(part.state, type=CallState)
    except msgspec.DecodeError:
        return CallState()


def bypassed(call: GuardedCall) -> PermissionBypassed:
    """What to tell the worker's owner."""
    told = next((value for name in _SUBJECTS if (value := call.args.get(name))), "")
    return PermissionBypassed(
        f"OpenCode ran {call.tool} {str(told)[:DETAIL]!r}, which go-ent did not allow: OpenCode did not ask first. "
        "The turn was ended; what it did so far is in place: look at it before you go on"
    )
