"""Holds the open targets of a run, and limits how many attempts each gets in parallel."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

import anyio

from goent.evals.eval_ports import (
    AttemptObserver,
    CaseAttempt,
    ConversationalTarget,
    EvalTarget,
    TargetError,
)
from goent.evals.runner.trial_plan import Trial
from goent.evals.suites import TargetSpec
from goent.evals.traces import Trace

DEFAULT_PARALLEL: Final = 4
GRACE_S: Final = 5.0  # for a target to end by itself after its time limit

TargetOpener = Callable[[TargetSpec], AbstractAsyncContextManager[EvalTarget]]


class OpenTargets:
    """The targets of a run, by name."""

    def __init__(self, targets: Mapping[str, tuple[EvalTarget, anyio.CapacityLimiter]]) -> None:
        self._targets = targets

    @classmethod
    @asynccontextmanager
    async def open(
        cls, specs: Iterable[TargetSpec], opener: TargetOpener, widths: Mapping[str, int]
    ) -> AsyncGenerator["OpenTargets"]:
        """`widths`: how many attempts each gets in parallel. Raises `ConfigError` for invalid settings."""
        async with AsyncExitStack() as stack:
            opened = {
                spec.name: (
                    await stack.enter_async_context(opener(spec)),
                    anyio.CapacityLimiter(widths.get(spec.name, DEFAULT_PARALLEL)),
                )
                for spec in specs
            }
            yield cls(opened)

    @asynccontextmanager
    async def acquire(self, name: str) -> AsyncGenerator[EvalTarget]:
        """The target, once it has a free slot."""
        target, turn = self._targets[name]
        async with turn:
            yield _TimedTarget(target)

    async def invoke(self, name: str, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        """Raises `TargetError`."""
        async with self.acquire(name) as target:
            return await target.invoke(attempt, witness)

    @asynccontextmanager
    async def open_conversation(self, attempt: CaseAttempt) -> AsyncGenerator["ConversationTarget"]:
        """The attempt's target, for a conversation. Each turn of it takes a slot."""
        target, turn = self._targets[attempt.target]
        if not isinstance(target, ConversationalTarget):
            yield ConversationTarget(target, turn, remembers=False)
            return
        async with target.conversation(attempt) as remembering:
            yield ConversationTarget(remembering, turn, remembers=True)


class ConversationTarget:
    """A target in a conversation. Between turns others may use its slot, such as a judge."""

    def __init__(self, target: EvalTarget, turn: anyio.CapacityLimiter, *, remembers: bool) -> None:
        self.remembers = remembers
        self._target = target
        self._turn = turn

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        async with self._turn:
            return await _TimedTarget(self._target).invoke(attempt, witness)


class _TimedTarget:
    """A target that is cut off if it exceeds the attempt's time limit."""

    def __init__(self, target: EvalTarget) -> None:
        self._target = target

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        with anyio.move_on_after(attempt.timeout_s + GRACE_S):
            return await self._target.invoke(attempt, witness)
        raise TargetError("timeout", f"{attempt.target!r} took longer than {attempt.timeout_s:g} s")


def parallel_limits(
    specs: Mapping[str, TargetSpec], trials: Sequence[Trial], *, workers: int | None
) -> Mapping[str, int]:
    """Parallel attempts by target: as requested, or as suites say, but at most the target's `workers`."""
    by_suites: dict[str, int] = {}
    for trial in trials:
        if trial.workers is not None:
            by_suites[trial.target] = min(trial.workers, by_suites.get(trial.target, trial.workers))
    return {
        name: min(
            (
                limit
                for limit in (spec.workers, by_suites.get(name) if workers is None else workers)
                if limit is not None
            ),
            default=DEFAULT_PARALLEL,
        )
        for name, spec in specs.items()
    }
