"""How do OpenCode's permission questions reach the worker's owner, and the answers OpenCode?

Two ways lead here. ACP asks for the worker's own session, one question after the other, and
waits for our reply. A subagent's session asks only by the event stream, as every session does
without ACP: its question is judged by the worker's rules, as OpenCode itself does not, and what
they leave open is asked of the worker's owner and answered over HTTP.

Seen in OpenCode 1.18: a subagent starts with `task: deny` and the process's own rules; its
parent's rules do not reach it, nor do rules that are set while it runs. A rejected question of
the worker's own session ends the turn; a subagent is told of it and goes on.
An "always" holds for every session of the process in that directory, other workers' too, so
OpenCode is never told one: it is kept here, for this worker, and what it covers is not asked again.
"""

from collections.abc import Sequence
from contextlib import suppress

from goent.acp.asks import PermissionRequest
from goent.domain.errors import ProtocolError
from goent.domain.guard import GuardedCall
from goent.domain.ports import WorkerSpec
from goent.domain.types import Answer
from goent.drivers.opencode.client import Client, Reply
from goent.drivers.opencode.guard import OUTSIDE
from goent.drivers.opencode.shapes import Question, Subject, ToolReference
from goent.drivers.questions import Ask, Matter, OpenQuestions
from goent.drivers.questions import Reply as Answered
from goent.drivers.rules import judge

LOOP = "doom_loop"  # a call that is made again and again is asked about whatever it does
_BY_KIND = {"execute": "bash", "edit": "edit", "fetch": "webfetch"}


class Questions:
    """The questions of one worker, to OpenCode's HTTP API and from it."""

    def __init__(
        self, client: Client, spec: WorkerSpec, earlier: OpenQuestions | None = None
    ) -> None:
        self._client = client
        self._rules = spec.rules
        self._directory = str(spec.cwd)
        self._open = earlier or OpenQuestions(spec.asked)
        self._spec = spec
        # By session and call, the permissions that were given for it; None: all of them.
        self._cleared: dict[tuple[str, str], set[str] | None] = {}

    def at(self, client: Client) -> "Questions":
        """The same worker's in another process: its grants hold."""
        return Questions(client, self._spec, self._open)

    async def put(self, matter: Matter, ask: Ask) -> Answered:
        """A question of ours, before OpenCode has one; without an answer if the turn ends first."""
        return await self._open.put(matter, ask)

    def shows(self, matter: Matter) -> bool:
        """Whether a yes to it is a yes to the whole call: it is asked now, or this very command was."""
        return matter.permission == "bash" or not self._open.covers(matter)

    def clear(self, call: GuardedCall, matters: Sequence[Matter], *, seen: bool) -> None:
        """The call may run, so OpenCode's own questions about it are answered already.

        With `seen`, a person saw the call whole; a rule or an earlier "always" allowed no more than
        it speaks of.
        """
        permissions = {matter.permission for matter in matters}
        if call.tool == "bash":
            permissions.discard(OUTSIDE)  # OpenCode finds more ways out, in the command
        self._cleared[call.session, call.call] = None if seen else permissions

    def _is_cleared(self, question: Question) -> bool:
        call = (question.session, question.tool.call if question.tool else "")
        if call not in self._cleared or question.permission == LOOP:
            return False
        permissions = self._cleared[call]
        if permissions is None or question.permission in permissions:
            return True
        way = Matter(permission=OUTSIDE, always=question.patterns, exact=True)
        return question.permission == OUTSIDE and self._open.covers(way)

    async def ask_own(self, request: PermissionRequest, ask: Ask) -> tuple[Matter, Answered]:
        """A question that ACP brought: the answer is None if the turn is over before.

        ACP has no words for a no, so those are told over HTTP before it; what ACP then says of the
        question comes too late, and OpenCode does not mind.
        """
        turn = self._open.turn
        question = await self._described(request)
        matter = _matter(question)
        if turn != self._open.turn:  # it ended while we looked: nobody is there to answer
            return matter, Answered()
        if self._is_cleared(question):
            return matter, Answered(answer="allow_once")
        reply = await self._open.put(matter, ask)
        if reply.message:
            try:
                await self._client.reply(question.id, "reject", self._directory, reply.message)
            except ProtocolError:
                reply = Answered(answer="reject")
        return matter, reply

    async def ask_by_event(self, question: Question, ask: Ask) -> tuple[Matter, Answered]:
        """A question that the event stream brought: what the worker's rules decide needs nobody."""
        matter = _matter(question)
        action = judge(self._rules, question.permission, question.patterns)
        if action == "allow" or self._is_cleared(question):
            said = Answered(answer="allow_once")
        elif action == "ask":
            said = await self._open.put(matter, ask)
        else:
            said = Answered(answer="reject")
        if said.answer is None:
            said = Answered(answer="reject")
        reply: Reply = "reject" if said.answer == "reject" else "once"
        await self._client.reply(question.id, reply, self._directory, said.message)
        return matter, said

    def answer(self, name: str, answer: Answer, message: str = "") -> None:
        self._open.answer(name, answer, message)

    def withdraw(self) -> Sequence[str]:
        """The turn is over, or its process: nobody waits for answers to these any more."""
        return self._open.withdraw()

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


def _matter(question: Question) -> Matter:
    """A lasting yes is for this very command, or for these very patterns; OpenCode's own is wider."""
    command = question.metadata.command
    return Matter(
        permission=question.permission,
        patterns=question.patterns,
        always=(command,) if command else question.patterns,
        exact=True,
        detail=describe(question),
    )


def describe(question: Question) -> str:
    """What it is about, for a person: the command, or the path and the edit, or the patterns."""
    about = question.metadata
    told = about.command or about.url or about.filepath or ", ".join(question.patterns)
    diff = "\n".join(about.diff.split("\n")[4:])  # without the header: the path is there already
    return f"{told}\n{diff}".strip()
