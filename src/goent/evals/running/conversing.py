"""How does an attempt at a conversation go, turn by turn, and how is all of it graded?"""

import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from goent.evals.graders.conversations import come_to, judging_cost
from goent.evals.graders.verdicts import reaches
from goent.evals.grades import Graded
from goent.evals.ports import Attempt, LogChosen, TargetError, Witness
from goent.evals.running.folder import now
from goent.evals.running.opened import Opened, Partner
from goent.evals.running.plan import Trial
from goent.evals.running.recording import Recording
from goent.evals.suites import Conversation
from goent.evals.traces import (
    PermissionDecision,
    TokenUsage,
    Trace,
    TracedMessage,
    TracedTurn,
    WorkedBy,
    add_up,
)
from goent.evals.turns import news_of, turn_of, whole_of

Grading = Callable[[Trial, Trace], Awaitable[Graded]]


async def grade_trial(
    grading: Grading, trial: Trial, trace: Trace, known: Sequence[Graded | None] = ()
) -> Graded:
    """Also a conversation, from its trace alone; `known` is what its first turns have got already."""
    talk, case = trial.case.conversation, trial.case
    if talk is None or trace.failure is not None:
        return await grading(trial, trace)
    lacks = len(trace.turns) < len(talk.turns)
    if lacks and talk.on_failure != "stop":
        return _lacking(trace)
    left = range(len(known), min(len(talk.turns), len(trace.turns)))
    rest = [await _grade_turn(grading, trial, talk, trace, number) for number in left]
    turns = (*known, *rest)
    if lacks and not _has_stopped(talk, turns, trial.threshold):
        return _lacking(trace, turns)
    own = replace(trial, case=whole_of(case))
    whole = await grading(own, _seen(trace, compat=trial.compat)) if case.graders else None
    return come_to(talk, turns, whole, threshold=trial.threshold, compat=trial.compat)


def _has_stopped(talk: Conversation, turns: Sequence[Graded | None], threshold: float) -> bool:
    """After these. Where other graders have taken the place of those of the turns, it may have."""
    last = turns[-1] if turns else None
    if last is None:
        return bool(turns) and not any(turn.graders for turn in talk.turns)
    return last.spoilt or not reaches(last.score, threshold)


def _lacking(trace: Trace, turns: Sequence[Graded | None] = ()) -> Graded:
    """The suite has other turns by now than when the trace was made."""
    return Graded(
        score=0.0,
        status="execution_error",
        error=f"its trace has no turn {len(trace.turns) + 1}: run it again",
        judge_cost_usd=_judging_usd(turns),
    )


async def _grade_turn(
    grading: Grading, trial: Trial, talk: Conversation, trace: Trace, number: int
) -> Graded | None:
    if not talk.turns[number].graders:
        return None
    answers = [trace.turn(before).answer for before in range(number)]
    turn = replace(trial, case=turn_of(trial.case, talk, number, answers))
    return await grading(turn, trace.turn(number))


def _seen(trace: Trace, *, compat: bool) -> Trace:
    """AgentV shows graders of a whole conversation its words alone."""
    if not compat:
        return trace
    return Trace(messages=(TracedMessage(role="assistant", content=trace.answer),))


class Conversing:
    """One attempt. Each turn is graded when it ends, while its directory is as the turn has left it.

    `complete` adds to a trace what the directory tells. `grades` are those of the turns so far.
    """

    def __init__(
        self,
        trial: Trial,
        talk: Conversation,
        targets: Opened,
        grading: Grading,
        complete: Callable[[Trace], Awaitable[Trace]],
    ) -> None:
        self.grades: list[Graded | None] = []
        self._trial = trial
        self._talk = talk
        self._targets = targets
        self._grading = grading
        self._complete = complete
        self._messages: list[TracedMessage] = []
        self._turns: list[TracedTurn] = []
        self._made: list[Trace] = []
        self._took_s = 0.0  # whatever the target says about it

    async def run(self, attempt: Attempt, recording: Recording) -> Trace:
        """Raises `TargetError`: one turn that cannot be had fails the attempt."""
        async with self._targets.conversing(attempt) as partner:
            for number in range(len(self._talk.turns)):
                await self._turn(partner, number, attempt, recording)
                trace = await self._complete(self._trace())
                graded = await _grade_turn(self._grading, self._trial, self._talk, trace, number)
                self.grades.append(graded)
                stops = self._talk.on_failure == "stop" and graded is not None
                if stops and _has_stopped(self._talk, self.grades, self._trial.threshold):
                    break
        return self._trace()

    def _trace(self) -> Trace:
        """All turns so far."""
        made = self._made
        calls = [trace.llm_calls for trace in made if trace.llm_calls is not None]
        return Trace(
            messages=tuple(self._messages),
            usage=add_up(trace.usage for trace in made),
            cost_usd=_total([trace.cost_usd for trace in made]),
            duration_ms=_total([turn.duration_ms for turn in self._turns]),
            llm_calls=sum(calls) if len(calls) == len(made) else None,
            start_time=self._turns[0].start_time,
            end_time=self._turns[-1].end_time,
            log_path=made[0].log_path,
            file_changes=made[-1].file_changes,
            permissions=tuple(one for trace in made for one in trace.permissions),
            by=_same([trace.by for trace in made]),
            turns=tuple(self._turns),
        )

    @property
    def judging_usd(self) -> float | None:
        return _judging_usd(self.grades)

    async def _turn(
        self, partner: Partner, number: int, attempt: Attempt, recording: Recording
    ) -> None:
        case, answers = attempt.case, [trace.answer for trace in self._made]
        news = news_of(case, self._talk, number)
        asked = news if partner.remembers else turn_of(case, self._talk, number, answers)
        begins = len(self._messages)
        for said in news.input:
            recording.message(len(self._messages), TracedMessage(role=said.role, content=said.text))
            self._messages.append(TracedMessage(role=said.role, content=said.text))
        left = attempt.timeout_s - self._took_s
        if left <= 0:
            why = f"{attempt.target!r} had taken {self._took_s:.0f} s before turn {number + 1}"
            raise TargetError("timeout", why)
        hearing = _Later(recording, len(self._messages), self._made)
        began, since = now(), time.monotonic()
        trace = await partner.invoke(replace(attempt, case=asked, timeout_s=left), hearing)
        took = time.monotonic() - since
        self._took_s += took
        turn = TracedTurn(
            begins=begins,
            answers=len(self._messages),
            usage=trace.usage,
            cost_usd=trace.cost_usd,
            duration_ms=took * 1000 if trace.duration_ms is None else trace.duration_ms,
            llm_calls=trace.llm_calls,
            start_time=trace.start_time or began,
            end_time=trace.end_time or now(),
        )
        self._turns.append(turn)
        recording.turn(turn)
        if not partner.remembers:  # it has told nothing on the way
            for place, message in enumerate(trace.messages):
                hearing.message(place, message)
            hearing.spent(trace.usage, trace.cost_usd)
        self._made.append(trace)
        self._messages += trace.messages


class _Later:
    """The witness of one turn: what it tells comes after what the turns before have told."""

    def __init__(self, witness: Witness, first: int, made: Sequence[Trace]) -> None:
        self._witness = witness
        self._first = first
        self._made = tuple(made)

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        before = None if before is None else self._first + before
        self._witness.message(self._first + number, message, before=before)

    def decided(self, decision: PermissionDecision) -> None:
        self._witness.decided(decision)

    def spent(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self._witness.spent(
            add_up([usage, *(trace.usage for trace in self._made)]),
            _total([cost_usd, *(trace.cost_usd for trace in self._made)]),
        )

    def log(self, chosen: LogChosen) -> None:
        self._witness.log(chosen)

    def warn(self, text: str) -> None:
        self._witness.warn(text)


def _judging_usd(turns: Sequence[Graded | None]) -> float | None:
    return judging_cost([graded for graded in turns if graded is not None])


def _total(amounts: Sequence[float | None]) -> float | None:
    """None if one of them is not known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _same(workers: Sequence[WorkedBy | None]) -> WorkedBy | None:
    """Who made all turns; None if that was not one provider."""
    return workers[0] if len(set(workers)) == 1 else None
