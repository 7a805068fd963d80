"""How does the older dialect word what happens in a session, and how does it ask?

Its connections open with `acp/initialize`. It has no plans, diffs or modes: what is done is told as
progress, with the share of the plan that is done, and what is said as output. While a turn goes on,
progress is told again and again, so that a client can tell work from a hang.
"""

from collections.abc import Iterator, Mapping
from itertools import count

import anyio
from msgspec import Raw

from goent.acp.base import Message
from goent.acp.content import Text
from goent.agent.events import (
    AnyAgentEvent,
    Noticed,
    PlanChanged,
    Said,
    StateChanged,
    ToolCalled,
)
from goent.agent.ports import Question
from goent.agent.session import AgentSession
from goent.domain.types import Answer, PlanEntry
from goent.frontends.acp.stream import Notice
from goent.rpc import Peer

PROGRESS = "session/progress"
OUTPUT = "session/output"
PERMISSION_REQUEST = "permission/request"
STILL_S = 5.0  # between two words of a turn in which nothing happens
FINISHING = "finishing"  # the step, once the whole plan is done
WHOLE = 100

_OUTCOMES: Mapping[str, Answer] = {
    "allow": "allow_once",
    "allow_always": "allow_always",
    "deny": "reject",
}
_ALWAYS_TOLD = ("idle", "notice", "waiting")
_STILL = {"running": "the model is at work", "waiting": "waits for an answer"}
_STATES = {"running": "the turn has begun", "waiting": "waits for an answer", "idle": "done"}


class Output(Message, frozen=True, kw_only=True):
    """A piece of what the agent says."""

    session_id: str
    content: Text


class Progress(Message, frozen=True, kw_only=True, omit_defaults=False):
    """What it is at; `percent` is the share of the plan that is done, if there is a plan."""

    session_id: str
    step: str
    percent: int | None = None
    message: str


class PermissionAsked(Message, frozen=True, kw_only=True):
    """May this tool be used?"""

    session_id: str
    request_id: str
    tool: str
    input: Raw
    options: tuple[str, ...]


class PermissionAnswered(Message, frozen=True, kw_only=True):
    """The answer, whenever it comes."""

    request_id: str
    outcome: str = ""


class DialectEncoder:
    """Remembers how far the plan is, and which state of a call was told."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._percent: int | None = None
        self._calls: dict[str, str] = {}
        self._at_work: dict[str, tuple[ToolCalled, float]] = {}  # each with when it began
        self._state = "idle"
        self._since = 0.0

    def begin(self, session: AgentSession) -> None:
        return

    def said(self, event: Said) -> Notice | None:
        if event.role != "agent":
            return None
        return OUTPUT, Output(session_id=self._id, content=Text(text=event.text))

    def encode(self, event: AnyAgentEvent, session: AgentSession) -> Iterator[Notice]:
        match event:
            case PlanChanged(entries=entries):
                done, total = _share(entries)
                self._percent = 100 * done // total if total else None
                yield self._progress(_current(entries), f"{done} of {total} done")
            case ToolCalled() if self._calls.get(event.id) != event.status:
                self._calls[event.id] = event.status
                self._note(event)
                yield self._progress(event.tool, f"{event.title}: {event.status}")
            case Noticed(text=text):
                yield self._progress("notice", text)
            case StateChanged(state=state):
                self._state, self._since = state, anyio.current_time()
                yield self._progress(state, _STATES[state])
                if state == "idle":
                    self._at_work.clear()
                    # After a plan that is done, the next turn has another one, or none.
                    self._percent = None if self._percent == WHOLE else self._percent
            case _:
                return

    def still(self) -> Notice | None:
        """What it is at, and for how long: for when nothing has happened."""
        if self._state == "idle":
            return None
        now = anyio.current_time()
        if self._at_work and self._state == "running":
            call, since = next(reversed(self._at_work.values()))
            return self._progress(call.tool, f"{call.title}: running for {now - since:.0f} s")
        return self._progress(self._state, f"{_STILL[self._state]}, for {now - self._since:.0f} s")

    def _note(self, call: ToolCalled) -> None:
        now = anyio.current_time()
        if call.status == "running":
            self._at_work[call.id] = (call, now)
        elif self._at_work.pop(call.id, None):
            self._since = now  # from now on it is the model's turn

    def _progress(self, step: str, message: str) -> Notice:
        if self._percent == WHOLE and step not in _ALWAYS_TOLD:
            step = FINISHING
        return PROGRESS, Progress(
            session_id=self._id, step=step, percent=self._percent, message=message
        )


class DialectAsking:
    """Questions and answers are notifications, held together by an id of ours."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._numbers = count(1)
        self._open: dict[str, _Pending] = {}
        self._encoders: dict[str, DialectEncoder] = {}

    def encoder(self, session_id: str) -> DialectEncoder:
        encoder = self._encoders[session_id] = DialectEncoder(session_id)
        return encoder

    async def keep_telling(self, session_id: str, over: anyio.Event) -> None:
        """Tell what the session is at, until its turn is over; not to a client that does not read."""
        while True:
            with anyio.move_on_after(STILL_S):
                await over.wait()
                return
            still = self._encoders[session_id].still()
            if still and not self._peer.crowded:
                self._peer.post(*still)

    async def ask(self, session_id: str, question: Question) -> Answer | None:
        request_id = f"permission-{next(self._numbers)}"
        pending = self._open[request_id] = _Pending()
        asked = PermissionAsked(
            session_id=session_id,
            request_id=request_id,
            tool=question.tool,
            input=question.input,
            options=tuple(_OUTCOMES),
        )
        try:
            self._peer.post(PERMISSION_REQUEST, asked)
            await pending.settled.wait()
        finally:
            del self._open[request_id]
        return pending.answer

    def answered(self, said: PermissionAnswered) -> None:
        """The first answer counts; one to no question is nobody's, and nonsense is a no."""
        pending = self._open.get(said.request_id)
        if pending is not None and not pending.settled.is_set():
            pending.answer = _OUTCOMES.get(said.outcome, "reject")
            pending.settled.set()


class _Pending:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.answer: Answer = "reject"


def _share(entries: tuple[PlanEntry, ...]) -> tuple[int, int]:
    left = [entry for entry in entries if entry.status != "cancelled"]
    return sum(entry.status == "completed" for entry in left), len(left)


def _current(entries: tuple[PlanEntry, ...]) -> str:
    """What the plan says is being done."""
    return next((entry.text for entry in entries if entry.status == "in_progress"), "plan")
