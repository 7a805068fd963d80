"""Which permission questions of a worker are open, and how does an answer get back?

Two ways lead here. ACP asks for the worker's own session, one question after the other, and
waits for our reply. A subagent's session asks only by the event stream, as every session does
without ACP: its question is judged by the worker's rules, as OpenCode itself does not, and what
they leave open is asked of the worker's owner and answered over HTTP.

Seen in OpenCode 1.18: a subagent starts with `task: deny` and the process's own rules; its
parent's rules do not reach it, nor do rules that are set while it runs. A rejected question of
the worker's own session ends the turn; one of a subagent only fails the parent's `task` call.
An "always" holds for every session of the process in that directory, other workers' too, so
OpenCode is never told one: it is kept here, for this worker, and what it covers is not asked again.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count

import anyio

from goent.acp.asks import Cancelled, PermissionOutcome, PermissionRequest, Selected
from goent.domain.errors import ProtocolError, RequestError
from goent.domain.events import PermissionAsked
from goent.domain.ports import WorkerSpec
from goent.domain.settings import PermissionRule
from goent.domain.types import Answer, PermissionOption
from goent.drivers.opencode.client import Client, Reply
from goent.drivers.opencode.rules import judge
from goent.drivers.opencode.shapes import Question, Subject, ToolReference

Ask = Callable[[PermissionAsked], Awaitable[None]]

EXCERPT = 1500
OPTIONS = (
    PermissionOption(id="allow_once", label="Allow once"),
    PermissionOption(id="allow_always", label="Always allow"),
    PermissionOption(id="reject", label="Reject"),
)
_BY_KIND = {"execute": "bash", "edit": "edit", "fetch": "webfetch"}


class Pending:
    """One open question; `answer` stays None if the turn ends first."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: Answer | None = None
        self.settled = anyio.Event()

    def settle(self, answer: Answer | None) -> None:
        self.answer = answer
        self.settled.set()


class Questions:
    """The questions of one worker. Their ids are never used again."""

    def __init__(self, client: Client, spec: WorkerSpec) -> None:
        self._client = client
        self._rules = spec.rules
        self._granted: list[PermissionRule] = []
        self._directory = str(spec.cwd)
        self._turn = 0
        self._numbers = count(spec.asked + 1)
        self._open: dict[str, Pending] = {}
        self._spec = spec

    def at(self, client: Client) -> "Questions":
        """The same worker's in another process: its grants hold."""
        moved = Questions(client, self._spec)
        moved._granted = self._granted
        moved._numbers = self._numbers
        return moved

    async def ask_own(self, request: PermissionRequest, ask: Ask) -> Pending:
        """A question that ACP brought: settled when it is answered, or the turn is over."""
        turn = self._turn
        question = await self._described(request)
        if turn != self._turn:  # it ended while we looked: nobody is there to answer
            return Pending(question)
        return await self._ask(question, ask)

    async def ask_by_event(self, question: Question, ask: Ask) -> Answer:
        """A question that the event stream brought: what the worker's rules decide needs nobody."""
        verdict = judge(self._rules, question.permission, question.patterns)
        if verdict == "ask":
            answer = (await self._ask(question, ask)).answer or "reject"
        else:
            answer = "allow_once" if verdict == "allow" else "reject"
        reply: Reply = "reject" if answer == "reject" else "once"
        await self._client.reply(question.id, reply, self._directory)
        return answer

    def answer(self, name: str, answer: Answer) -> None:
        pending = self._open.pop(name, None)
        if pending is None:
            known = ", ".join(map(repr, self._open)) or "none"
            raise RequestError(f"no question {name!r} is open; open: {known}")
        if answer == "allow_always":
            self._grant(pending.question)
        pending.settle(answer)

    def withdraw(self) -> Sequence[str]:
        """The turn is over, or its process: nobody waits for answers to these any more."""
        self._turn += 1
        names = tuple(self._open)
        while self._open:
            self._open.popitem()[1].settle(None)
        return names

    def _grant(self, question: Question) -> None:
        self._granted += [
            PermissionRule(tool=question.permission, pattern=pattern, action="allow")
            for pattern in question.always or question.patterns
        ]

    async def _ask(self, question: Question, ask: Ask) -> Pending:
        if judge(self._granted, question.permission, question.patterns) == "allow":
            covered = Pending(question)
            covered.settle("allow_always")
            return covered
        name = f"p{next(self._numbers)}"
        pending = self._open[name] = Pending(question)
        await ask(
            PermissionAsked(
                id=name, tool=question.permission, detail=describe(question), options=OPTIONS
            )
        )
        await pending.settled.wait()
        return pending

    async def _described(self, request: PermissionRequest) -> Question:
        """The same question as the server lists it: ACP tells neither permission nor patterns."""
        call = request.tool_call
        listed: list[Question] = []
        with suppress(ProtocolError):
            listed = await self._client.questions(self._directory)
        for question in listed:
            about = question.tool.call if question.tool else ""
            if question.session == request.session_id and about == call.tool_call_id:
                return question
        return Question(
            id="",
            session=request.session_id,
            permission=_BY_KIND.get(call.kind or "", call.kind or "tool"),
            patterns=(call.title,) if call.title else (),
            metadata=Subject(),
            tool=ToolReference(call=call.tool_call_id),
        )


def outcome(request: PermissionRequest, answer: Answer | None) -> PermissionOutcome:
    """Our answer as one of the options that were offered."""
    if answer is None:
        return Cancelled()
    kind = "reject_once" if answer == "reject" else "allow_once"
    chosen = next((option for option in request.options if option.kind == kind), None)
    return Selected(option_id=chosen.option_id) if chosen else Cancelled()


def describe(question: Question) -> str:
    """What it is about, for a person: the command, or the path and the edit, or the patterns."""
    about = question.metadata
    told = about.command or about.url or about.filepath or ", ".join(question.patterns)
    diff = "\n".join(about.diff.splitlines()[4:])  # without the header: the path is there already
    return f"{told}\n{diff}"[:EXCERPT].strip()
