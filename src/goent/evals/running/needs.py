"""Which trials wait for others, and have those passed?"""

from collections import Counter, defaultdict
from collections.abc import Iterable

import anyio

from goent.evals.rows import CaseKey, Row
from goent.evals.running.outcome import of_case
from goent.evals.running.plan import Trial


class Needs:
    """Who waits for all trials of a case: those by the same target, or by all if it has none.

    A case has passed as it does for the run's exit code. For AgentV one that could be judged is good enough.
    """

    def __init__(self, trials: Iterable[Trial], kept: Iterable[Row]) -> None:
        every = tuple(trials)
        needed = {(trial.case.suite, need) for trial in every for need in trial.case.needs}
        watched = [trial for trial in every if (trial.case.suite, trial.case.id) in needed]
        self._one = {trial.key: trial for trial in watched}
        self._left = Counter(trial.key for trial in watched)
        self._over = {key: anyio.Event() for key in self._one}
        self._rows: defaultdict[CaseKey, list[Row]] = defaultdict(list)
        self._enough: set[CaseKey] = set()
        for row in kept:
            if row.key in self._one:
                self._count(row.key, row)

    async def over(self, trial: Trial) -> None:
        """Waits until what this one needs has ended, or was left out."""
        for need in trial.case.needs:
            for key in self._keys(trial, need):
                await self._over[key].wait()

    def left_out(self, trial: Trial) -> bool:
        """Whether nobody knows yet if what it needs passes: trials of that were left out."""
        keys = (key for need in trial.case.needs for key in self._keys(trial, need))
        return any(self._came_to(key) == "unrun" for key in keys)

    def not_passed(self, trial: Trial) -> tuple[str, ...]:
        """The ids of those that this one needs and that did not pass."""
        return tuple(
            need
            for need in trial.case.needs
            if not all(self._has_passed(key) for key in self._keys(trial, need))
        )

    def ended(self, trial: Trial, row: Row | None, *, enough: bool = False) -> None:
        """`row` is None for one that was left out; `enough`: its case needs no more of them."""
        if trial.key in self._one:
            if enough:
                self._enough.add(trial.key)
            self._count(trial.key, row)

    def _count(self, key: CaseKey, row: Row | None) -> None:
        if row is not None:
            self._rows[key].append(row)
        self._left[key] -= 1
        if self._left[key] <= 0:
            self._over[key].set()

    def _keys(self, trial: Trial, need: str) -> tuple[CaseKey, ...]:
        own = CaseKey(trial.case.suite, need, trial.target)
        if own in self._one:
            return (own,)
        return tuple(key for key in self._one if key[:2] == own[:2])

    def _has_passed(self, key: CaseKey) -> bool:
        how = self._came_to(key)
        return how == "passed" or (self._one[key].compat and how == "failed")

    def _came_to(self, key: CaseKey) -> str:
        return of_case(self._one[key], self._rows[key], has_enough=key in self._enough)
