"""Who answers in this run? Each target is opened once, and asked no more often at once than it stands."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

import anyio

from goent.evals.ports import Attempt, Remembering, Target, TargetError, Witness
from goent.evals.running.plan import Trial
from goent.evals.suites import TargetSpec
from goent.evals.traces import Trace

DEFAULT_WIDTH: Final = 4
GRACE_S: Final = 5.0  # for a target to end by itself what took too long

Opener = Callable[[TargetSpec], AbstractAsyncContextManager[Target]]


class Opened:
    """The targets of a run, by name."""

    def __init__(self, targets: Mapping[str, tuple[Target, anyio.CapacityLimiter]]) -> None:
        self._targets = targets

    @classmethod
    @asynccontextmanager
    async def of(
        cls, specs: Iterable[TargetSpec], opener: Opener, widths: Mapping[str, int]
    ) -> AsyncGenerator["Opened"]:
        """`widths`: how often each is asked at once. Raises `ConfigError` if one cannot be what its settings say."""
        async with AsyncExitStack() as stack:
            opened = {
                spec.name: (
                    await stack.enter_async_context(opener(spec)),
                    anyio.CapacityLimiter(widths.get(spec.name, DEFAULT_WIDTH)),
                )
                for spec in specs
            }
            yield cls(opened)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncGenerator[Target]:
        """The target, when it is our turn."""
        target, turn = self._targets[name]
        async with turn:
            yield _Timed(target)

    async def invoke(self, name: str, attempt: Attempt, witness: Witness) -> Trace:
        """Raises `TargetError`."""
        async with self.turn(name) as target:
            return await target.invoke(attempt, witness)

    @asynccontextmanager
    async def conversing(self, attempt: Attempt) -> AsyncGenerator["Partner"]:
        """The attempt's target, for a conversation. It takes its turn for each turn of that."""
        target, turn = self._targets[attempt.target]
        if not isinstance(target, Remembering):
            yield Partner(target, turn, remembers=False)
            return
        async with target.conversing(attempt) as remembering:
            yield Partner(remembering, turn, remembers=True)


class Partner:
    """Who is talked to. Between two turns others may ask it, such as a grader who wants a judge."""

    def __init__(self, target: Target, turn: anyio.CapacityLimiter, *, remembers: bool) -> None:
        self.remembers = remembers
        self._target = target
        self._turn = turn

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        async with self._turn:
            return await _Timed(self._target).invoke(attempt, witness)


class _Timed:
    """The port `Target`, by one that is cut off if it does not keep to the attempt's time itself."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        with anyio.move_on_after(attempt.timeout_s + GRACE_S):
            return await self._target.invoke(attempt, witness)
        raise TargetError(
            "timeout", f"{attempt.target!r} was not done after {attempt.timeout_s:g} s"
        )


def widths(
    specs: Mapping[str, TargetSpec], trials: Sequence[Trial], *, workers: int | None
) -> Mapping[str, int]:
    """How many attempts at once: what was asked for, or what the suites say, but never more than a target stands."""
    said: dict[str, int] = {}
    for trial in trials:
        if trial.workers is not None:
            said[trial.target] = min(trial.workers, said.get(trial.target, trial.workers))
    return {
        name: min(
            (
                limit
                for limit in (spec.workers, said.get(name) if workers is None else workers)
                if limit is not None
            ),
            default=DEFAULT_WIDTH,
        )
        for name, spec in specs.items()
    }
