"""Keeps the open permission questions of one worker, and what its owner always allows.

An "always" is kept here, for this worker, and no agent gets one: what it covers is not asked again,
and every other call is still judged by the worker's rules.
"""

import difflib
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import anyio
from msgspec.structs import replace

from goent.acp.agent_messages import (
    OptionSelected,
    PermissionCancelled,
    PermissionOutcome,
    PermissionRequest,
    encode_words,
)
from goent.domain.errors import RequestError
from goent.domain.events import PermissionAsked
from goent.domain.settings import PermissionRule
from goent.domain.types import PermissionAnswer, PermissionOption, Value
from goent.permissions.access_rules import AccessRequest, strictest_action

NO_NEWLINE = "\\ No newline at end of file"


def show_diff(before: str, after: str) -> str:
    """The changed lines with some context, without a header.

    Only a line feed ends a line, so that changes of other line endings are visible.
    """
    ends = before.endswith("\n") == after.endswith("\n") or not before or not after
    old, new = (_diff_lines(text, mark=not ends) for text in (before, after))
    return "\n".join([*difflib.unified_diff(old, new, lineterm="")][2:])


def _diff_lines(text: str, *, mark: bool) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]}\n{NO_NEWLINE}"] if mark else lines


AskOwner = Callable[[PermissionAsked], Awaitable[None]]

ANSWER_OPTIONS = (
    PermissionOption(id="allow_once", label="Allow once"),
    PermissionOption(id="allow_always", label="Always allow"),
    PermissionOption(id="reject", label="Reject"),
)
ONE_TIME_OPTIONS = tuple(option for option in ANSWER_OPTIONS if option.id != "allow_always")
_OPTION_KINDS: dict[PermissionAnswer, tuple[str, ...]] = {
    "allow_once": ("allow_once",),
    "allow_always": ("allow_once", "allow_always"),
    "reject": ("reject_once", "reject_always"),
}


class OwnerReply(Value, frozen=True, kw_only=True):
    """The reply to a question. `answer` is None if the turn ended first; `message` is for a rejection."""

    answer: PermissionAnswer | None = None
    message: str = ""


class _PendingAnswer:
    """One open question."""

    def __init__(self, access: AccessRequest) -> None:
        self.access = access
        self.reply = OwnerReply()
        self.settled = anyio.Event()

    def settle(self, reply: OwnerReply) -> None:
        self.reply = reply
        self.settled.set()


class OpenQuestions:
    """The questions of one worker, of which `asked` were asked before. Ids are never reused."""

    def __init__(self, asked: int) -> None:
        self.turn = 0
        self._granted: list[PermissionRule] = []
        self._exact_grants: set[tuple[str, str]] = set()
        self._numbers = count(asked + 1)
        self._open: dict[str, _PendingAnswer] = {}

    async def ask(self, access: AccessRequest, ask: AskOwner) -> OwnerReply:
        """The owner's answer, an earlier "always" included; none if the turn ends first."""
        if self.covers(access):
            return OwnerReply(answer="allow_always")
        name = f"p{next(self._numbers)}"
        pending = self._open[name] = _PendingAnswer(access)
        await ask(
            PermissionAsked(
                id=name,
                tool=access.permission,
                detail=access.detail,
                options=ANSWER_OPTIONS if access.can_be_always else ONE_TIME_OPTIONS,
                reason=access.reason,
                always=access.always if access.can_be_always else (),
            )
        )
        await pending.settled.wait()
        return pending.reply

    def answer(self, name: str, answer: PermissionAnswer, message: str = "") -> None:
        pending = self._open.pop(name, None)
        if pending is None:
            known = ", ".join(map(repr, self._open)) or "none"
            raise RequestError(f"no question {name!r} is open; open: {known}")
        if answer == "allow_always" and pending.access.can_be_always:
            self._grant(pending.access)
        pending.settle(OwnerReply(answer=answer, message=message if answer == "reject" else ""))

    def withdraw(self) -> Sequence[str]:
        """Close all open questions, because the turn or its process is over."""
        self.turn += 1
        names = tuple(self._open)
        while self._open:
            self._open.popitem()[1].settle(OwnerReply())
        return names

    def covers(self, access: AccessRequest) -> bool:
        """Whether an earlier "always" allows it."""
        if not access.can_be_always:
            return False
        if access.exact:
            return _grants(access) <= self._exact_grants
        return strictest_action(self._granted, access.permission, access.patterns) == "allow"

    def _grant(self, access: AccessRequest) -> None:
        if access.exact:
            self._exact_grants |= _grants(access)
            return
        self._granted += [
            PermissionRule(tool=access.permission, pattern=pattern, action="allow")
            for pattern in access.always
        ]


def _grants(access: AccessRequest) -> set[tuple[str, str]]:
    return {(access.permission, each) for each in access.always}


def permission_outcome(
    request: PermissionRequest, answer: PermissionAnswer | None
) -> PermissionOutcome:
    """Our answer as one of the offered options; "once" never becomes "always"."""
    for kind in _OPTION_KINDS[answer] if answer else ():
        for option in request.options:
            if option.kind == kind:
                return OptionSelected(option_id=option.option_id)
    return PermissionCancelled()


def with_owner_message(chosen: PermissionOutcome, message: str) -> PermissionOutcome:
    """Add the owner's message, which go-ent's own agent understands."""
    if not message or not isinstance(chosen, OptionSelected):
        return chosen
    return replace(chosen, meta=encode_words(message))
