"""May another trial begin, for the money? A run, a suite and a case may each have a limit."""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import anyio

from goent.evals.rows import CaseKey, Row
from goent.evals.running.plan import Trial

ROUNDING: Final = 1e-9
Holder = str | CaseKey | None
"""Whose limit: of a suite, of a case, or None of the whole run."""


class Refusal(NamedTuple):
    """`of_case`: its own trials may not cost more, which is as its suite wants it."""

    why: str
    of_case: bool


class Purse:
    """What was spent so far, and what those that are under way are likely to take.

    A trial takes what trials took on average. A cost that nobody knows cannot be held back: it is counted as such.
    Of cases only those are remembered that have a limit of their own.
    """

    def __init__(
        self,
        run_usd: float | None,
        suites_usd: Mapping[str, float],
        cases_usd: Mapping[CaseKey, float],
    ) -> None:
        self.has_limits = run_usd is not None or bool(suites_usd)
        self._cases_usd = cases_usd
        self._limits: dict[Holder, float] = {**suites_usd, **cases_usd}
        if run_usd is not None:
            self._limits[None] = run_usd
        self._spent: defaultdict[Holder, float] = defaultdict(float)
        self._under_way: Counter[Holder] = Counter()
        self._known, self._paid = 0.0, 0
        self._news = anyio.Event()
        self.unknown = 0

    async def refuses(self, trial: Trial) -> Refusal | None:
        """Why it may not begin. While nobody knows what a trial costs, one goes first and the others wait."""
        limits = tuple(self._limits_of(trial.key))
        while limits and self._under_way[None] and not self._paid:
            await self._news.wait()
        usual = self._known / self._paid if self._paid else 0.0
        for holder, limit in limits:
            likely = self._spent[holder] + (self._under_way[holder] + 1) * usual
            if self._spent[holder] >= limit - ROUNDING or likely > limit + ROUNDING:
                of_case = isinstance(holder, CaseKey)
                return Refusal(f"the budget of {limit:g} USD{_whose(holder)} is used up", of_case)
        return None

    @contextmanager
    def under_way(self, trial: Trial) -> Generator[None]:
        holders = self._holders(trial.key)
        self._under_way.update(holders)
        try:
            yield
        finally:
            self._under_way.subtract(holders)

    def pay(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.unknown += None in row.costs
            self._paid += 1
            self._known += row.known_cost_usd
            for holder in self._holders(row.key):
                self._spent[holder] += row.known_cost_usd
        self._news.set()
        self._news = anyio.Event()

    def lose(self, key: CaseKey, usd: float) -> None:
        """What an attempt has cost that came to nothing."""
        for holder in self._holders(key):
            self._spent[holder] += usd

    def _limits_of(self, key: CaseKey) -> Iterator[tuple[Holder, float]]:
        for holder in self._holders(key):
            if (limit := self._limits.get(holder)) is not None:
                yield holder, limit

    def _holders(self, key: CaseKey) -> tuple[Holder, ...]:
        return (None, key.suite, key) if key in self._cases_usd else (None, key.suite)


def _whose(holder: Holder) -> str:
    if isinstance(holder, CaseKey):
        return f" for the trials of {holder.test_id!r}"
    return f" of the suite {holder!r}" if holder else ""
