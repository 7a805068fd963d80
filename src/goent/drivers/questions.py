"""Which permission questions of a worker are open, and what has its owner said for good?

An "always" is kept here, for this worker, and no agent is told one: what it covers is not asked
again, and every other call still comes before the worker's rules.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import anyio
from msgspec.structs import replace

from goent.acp.asks import (
    Cancelled,
    PermissionOutcome,
    PermissionRequest,
    Selected,
    encode_words,
)
from goent.domain.errors import RequestError
from goent.domain.events import PermissionAsked
from goent.domain.settings import Action, PermissionRule
from goent.domain.types import Answer, PermissionOption, Value
from goent.drivers.rules import ANYTHING, judge
from goent.drivers.shell_line import read_line
from goent.policy.wildcards import matches

Ask = Callable[[PermissionAsked], Awaitable[None]]

OPTIONS = (
    PermissionOption(id="allow_once", label="Allow once"),
    PermissionOption(id="allow_always", label="Always allow"),
    PermissionOption(id="reject", label="Reject"),
)
UNLASTING = tuple(option for option in OPTIONS if option.id != "allow_always")
# Inside the directory, looking is free: no preset speaks of it, and a later rule may.
_FREE = tuple(PermissionRule(tool=tool, action="allow") for tool in ("read", "grep", "think"))
_KINDS: dict[Answer, tuple[str, ...]] = {
    "allow_once": ("allow_once",),
    "allow_always": ("allow_once", "allow_always"),
    "reject": ("reject_once", "reject_always"),
}


class Matter(Value, frozen=True, kw_only=True):
    """What a question is about. `always` is what a lasting yes covers: patterns, as in rules.

    With `exact`, it covers these very words: a `*` in a command is the shell's. `reason` says why
    it is asked although a rule would allow it. Where no rule names the permission, those for the
    one that it is `like` decide.
    """

    permission: str
    patterns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    exact: bool = False
    detail: str = ""
    reason: str = ""
    like: str = ""

    @property
    def lasts(self) -> bool:
        """Whether an "always" would cover more than this one call."""
        return bool(self.always) and not self.reason


def verdict(matter: Matter, rules: Sequence[PermissionRule]) -> Action:
    """What the rules say of it. What is asked for a `reason` of its own, no rule allows."""
    found = _verdict(matter, rules)
    return "ask" if found == "allow" and matter.reason else found


def _verdict(matter: Matter, rules: Sequence[PermissionRule]) -> Action:
    if matter.like and not any(matches(rule.tool, matter.permission) for rule in rules):
        return _verdict(replace(matter, permission=matter.like, like=""), rules)
    if matter.permission != "bash":
        return judge((*_FREE, *rules), matter.permission, matter.patterns)
    lines = [read_line(pattern) for pattern in matter.patterns]
    commands = [command for line in lines for command in line.commands]
    found = judge(rules, "bash", commands)
    if found == "allow" and not all(line.clear for line in lines):
        return judge(rules, "bash", (*commands, ANYTHING))
    return found


class Reply(Value, frozen=True, kw_only=True):
    """What came of a question. `answer` is None if the turn ended first; `message` goes with a no."""

    answer: Answer | None = None
    message: str = ""


class _Pending:
    """One open question."""

    def __init__(self, matter: Matter) -> None:
        self.matter = matter
        self.reply = Reply()
        self.settled = anyio.Event()

    def settle(self, reply: Reply) -> None:
        self.reply = reply
        self.settled.set()


class OpenQuestions:
    """The questions of one worker, `asked` of which were put before. Ids are never used again."""

    def __init__(self, asked: int) -> None:
        self.turn = 0
        self._granted: list[PermissionRule] = []
        self._exactly: set[tuple[str, str]] = set()
        self._numbers = count(asked + 1)
        self._open: dict[str, _Pending] = {}

    async def put(self, matter: Matter, ask: Ask) -> Reply:
        """The owner's answer, now or for good, with their words; none if the turn ended before."""
        if self.covers(matter):
            return Reply(answer="allow_always")
        name = f"p{next(self._numbers)}"
        pending = self._open[name] = _Pending(matter)
        await ask(
            PermissionAsked(
                id=name,
                tool=matter.permission,
                detail=matter.detail,
                options=OPTIONS if matter.lasts else UNLASTING,
                reason=matter.reason,
                always=matter.always if matter.lasts else (),
            )
        )
        await pending.settled.wait()
        return pending.reply

    def answer(self, name: str, answer: Answer, message: str = "") -> None:
        pending = self._open.pop(name, None)
        if pending is None:
            known = ", ".join(map(repr, self._open)) or "none"
            raise RequestError(f"no question {name!r} is open; open: {known}")
        if answer == "allow_always" and pending.matter.lasts:
            self._grant(pending.matter)
        pending.settle(Reply(answer=answer, message=message if answer == "reject" else ""))

    def withdraw(self) -> Sequence[str]:
        """The turn is over, or its process: nobody waits for answers to these any more."""
        self.turn += 1
        names = tuple(self._open)
        while self._open:
            self._open.popitem()[1].settle(Reply())
        return names

    def covers(self, matter: Matter) -> bool:
        """Whether an earlier "always" allows it."""
        if not matter.lasts:
            return False
        if matter.exact:
            return _words(matter) <= self._exactly
        return judge(self._granted, matter.permission, matter.patterns) == "allow"

    def _grant(self, matter: Matter) -> None:
        if matter.exact:
            self._exactly |= _words(matter)
            return
        self._granted += [
            PermissionRule(tool=matter.permission, pattern=pattern, action="allow")
            for pattern in matter.always
        ]


def _words(matter: Matter) -> set[tuple[str, str]]:
    return {(matter.permission, each) for each in matter.always}


def outcome(request: PermissionRequest, answer: Answer | None) -> PermissionOutcome:
    """Our answer as one of the options that were offered; a yes for once never becomes a lasting one."""
    for kind in _KINDS[answer] if answer else ():
        for option in request.options:
            if option.kind == kind:
                return Selected(option_id=option.option_id)
    return Cancelled()


def said_with(chosen: PermissionOutcome, message: str) -> PermissionOutcome:
    """The owner's words, for go-ent's own agent."""
    if not message or not isinstance(chosen, Selected):
        return chosen
    return replace(chosen, meta=encode_words(message))
