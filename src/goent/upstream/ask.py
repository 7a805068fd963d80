"""One model call done right: asked, failed over, counted, told.

Whoever asks (the gateway for a worker's program, the api method, our own agent) gets one answer.
Which targets were tried for it, what each of them cost and why it was left, the witness hears.
"""

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio

from goent.domain.calls import CallWitness, Moved
from goent.domain.errors import (
    AtLimit,
    BudgetSpent,
    ProviderUnavailable,
    ServerNotRunning,
    WorkerError,
)
from goent.domain.health import Condition, Healths
from goent.llm.codec import codec
from goent.upstream.adapt import call_for, left_out
from goent.upstream.attempt import Attempt
from goent.upstream.course import Course, Order, Target
from goent.upstream.forward import Connections
from goent.upstream.gauge import Gauge
from goent.upstream.health import Breakers
from goent.upstream.report import CUT_OFF, Report
from goent.upstream.said import Said, Take
from goent.upstream.standing import out_of_service, words
from goent.upstream.tries import Patience, Tries, Try

MOST_REMEMBERED = 4096

Run = Callable[[Attempt, Report], Awaitable[None]]
Failures = Mapping[str, ProviderUnavailable]


class Upstream:
    """The way to all models."""

    def __init__(  # noqa: PLR0913 (what it stands on)
        self,
        connections: Connections,
        witness: CallWitness,
        *,
        gauge: Gauge | None = None,
        healths: Healths | None = None,
        patience: Patience = Patience(),  # noqa: B008 (frozen)
        clock: Callable[[], float] = time.time,
        silence: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`silence` is after how many seconds without a byte a call has failed, now; None: as usual."""
        self.connections = connections
        self._witness = witness
        self._gauge = gauge or Gauge()
        self._healths = healths or Breakers()
        self._patience = patience
        self._clock = clock
        self._silence = silence
        # Who did last, and what it was not told of the request.
        self._serving: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    async def stream(self, order: Order, course: Course, take: Take) -> None:
        """The answer in pieces. Raises a `WorkerError` when no target could give or finish it."""
        said = Said(order.dialect, take)

        async def run(attempt: Attempt, report: Report) -> None:
            await attempt.stream(said.following(attempt.target.dialect), report.make)

        await self._ask(order, course, run, lambda: said.text)

    async def plain(self, order: Order, course: Course) -> bytes:
        """The answer at once, in the dialect of the order."""
        answer = b""

        async def run(attempt: Attempt, report: Report) -> None:
            nonlocal answer
            answer = await attempt.plain()
            await report.make()
            if attempt.target.dialect != order.dialect:
                chunks = codec(attempt.target.dialect).read_answer(answer)
                answer = codec(order.dialect).write_answer(order.model, chunks)

        await self._ask(order, course, run, lambda: "")
        return answer

    async def _ask(self, order: Order, course: Course, run: Run, said: Callable[[], str]) -> None:
        tries = Tries(course, self._healths, self._patience, self._clock)
        failures: dict[str, ProviderUnavailable] = {}
        while following := tries.following():
            target = following.target
            await self._wait(order, following, failures)
            call = call_for(
                order, target, said=said(), hurry=tries.others, silence_s=self._silence()
            )
            if not await self._healths.admits(target.provider, force=following.force):
                continue  # somebody else tries it out at the moment
            attempt = Attempt(self.connections, target, call)
            report = Report(self._witness, self._gauge, order, attempt)
            try:
                async with self._observed(attempt):
                    await report.begin(patient=not tries.others)
                    await self._move(order, course, target, failures)
                    await self._try(attempt, report, run)
            except ProviderUnavailable as error:
                failures[target.name] = error
                if isinstance(error, ServerNotRunning):
                    tries.leave(target)  # until somebody starts it
            else:
                return
        raise _together(failures) if failures else self._nobody(course)

    @asynccontextmanager
    async def _observed(self, attempt: Attempt) -> AsyncGenerator[None]:
        """What becomes of an admitted call tells something of its provider, or nothing: once."""
        provider, began = attempt.target.provider, self._clock()
        try:
            yield
        except (AtLimit, BudgetSpent, ServerNotRunning):  # it was not asked
            await self._healths.released(provider)
            raise
        except WorkerError as error:
            await self._healths.failed(provider, error, began=began)
            raise
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._healths.released(provider)
            raise
        await self._healths.served(provider, began=began, used_up_for_s=attempt.used_up_for_s)

    async def _try(self, attempt: Attempt, report: Report, run: Run) -> None:
        try:
            await run(attempt, report)
        except WorkerError as error:
            await report.make(str(error))
            raise
        finally:
            await report.make(CUT_OFF)

    async def _wait(self, order: Order, following: Try, failures: Failures) -> None:
        if not following.wait_s:
            return
        if not following.quiet:
            reason = failures.get(following.target.name)
            text = f"{following.target.name} is asked again in {following.wait_s:.0f} s"
            await self._witness.noticed(order.worker, f"{text} ({reason})" if reason else text)
        await anyio.sleep(following.wait_s)

    async def _move(self, order: Order, course: Course, target: Target, failures: Failures) -> None:
        """Tell the witness when another one serves the worker than before."""
        wanted = course.targets[0].name
        key = (order.worker, wanted)
        before, told = self._serving.get(key, (wanted, ""))
        left = left_out(order, target)
        if (before, told) == (target.name, left):
            return
        self._serving[key] = target.name, left
        if len(self._serving) > MOST_REMEMBERED:
            self._serving.popitem(last=False)
        asked = f"{target.name} is asked {left}" if left else ""
        if before == target.name:
            if asked:
                await self._witness.noticed(order.worker, asked)
            return
        reason = str(failures.get(before) or self._why_not(course, before))
        reason = f"{reason}; {asked}" if asked else reason
        moved = Moved(
            worker=order.worker, from_provider=before, to_provider=target.name, reason=reason
        )
        await self._witness.moved(moved)

    def _nobody(self, course: Course) -> WorkerError:
        return out_of_service(course, self._healths, self._clock())

    def _why_not(self, course: Course, name: str) -> str:
        left = next((target for target in course.targets if target.name == name), None)
        condition = self._healths.condition(left.provider) if left else Condition()
        if condition.state in {"unknown", "healthy"}:
            return "the provider that was asked for is available again"
        return f"{name} is {words(condition, self._clock())}"


def _together(failures: Failures) -> WorkerError:
    """The first one's failure is the one to act on; the fallbacks' are told with it."""
    first, *others = failures.values()
    if others:
        told = "; ".join(f"fallback {name}: {e}" for name, e in list(failures.items())[1:])
        first.args = (f"{first}; {told}",)
    return first
