"""How does a run stand? Counted as it is told; nothing is drawn and nobody is asked."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from goent.domain.types import Value
from goent.evals.ports import Attempt
from goent.evals.rows import Row
from goent.evals.running.watching import Planned
from goent.evals.traces import TargetFailure

WINDOW_S = 30.0  # the rate is that of the last so many seconds
LAST = 5


class Running(NamedTuple):
    """A trial that is under way."""

    target: str
    suite: str
    test_id: str
    trial: int


class Again(NamedTuple):
    """An attempt that failed and is made again, `by` the same target or the next fallback."""

    attempt: Attempt
    failure: TargetFailure
    again_in_s: float
    by: str


class Standing(Value, frozen=True, kw_only=True):
    """A look at the run. `ended` counts what ended since it was started, `done` also what is from before."""

    total: int
    done: int
    ended: int
    passed: int
    failed: int
    errors: int
    skipped: int
    retries: int
    known_usd: float
    unknown_costs: int
    judges_usd: float
    elapsed_s: float
    rate: float | None
    left_s: float | None
    targets: tuple[str, ...]
    running: tuple[Running, ...]
    last: tuple[Row | Again, ...]


class Tally:
    """Told by the run, looked at by whoever draws, which may be another thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun = clock()
        self._plan: Planned | None = None
        self._running: dict[Running, None] = {}
        self._passed = self._failed = self._errors = self._skipped = self._retries = 0
        self._known_usd = 0.0
        self._unknown_costs = 0
        self._judges_usd = 0.0
        self._last: deque[Row | Again] = deque(maxlen=LAST)
        self._by_target: Counter[str] = Counter()
        self._looks: deque[tuple[float, Counter[str]]] = deque()

    @property
    def done(self) -> int:
        kept = self._plan.kept if self._plan else 0
        return kept + self._ended

    @property
    def total(self) -> int:
        return max(self.done, self._plan.total if self._plan else 0)

    def planned(self, plan: Planned) -> None:
        with self._lock:
            self._plan = plan
            self._begun = self._clock()

    def began(self, attempt: Attempt) -> None:
        with self._lock:
            self._running[_of(attempt)] = None

    def failed(self, again: Again) -> None:
        with self._lock:
            self._retries += 1
            self._running.pop(_of(again.attempt), None)
            self._last.append(again)

    def ended(self, row: Row) -> None:
        with self._lock:
            self._leave(Running(row.target, row.suite, row.test_id, row.trial))
            self._passed += row.execution_status == "ok"
            self._failed += row.execution_status == "quality_failure"
            self._errors += row.execution_status == "execution_error"
            self._skipped += row.skipped
            self._by_target[row.target] += 1
            if row.cost_usd is None:
                self._unknown_costs += 1
            else:
                self._known_usd += row.cost_usd
            self._judges_usd += row.judge_cost_usd or 0.0
            if not row.passed:
                self._last.append(row)

    def look(self) -> Standing:
        with self._lock:
            now = self._clock()
            ended = self._ended
            self._look_back(now)
            rate = self._rate(now, None)
            return Standing(
                total=self.total,
                done=self.done,
                ended=ended,
                passed=self._passed,
                failed=self._failed,
                errors=self._errors,
                skipped=self._skipped,
                retries=self._retries,
                known_usd=self._known_usd,
                unknown_costs=self._unknown_costs,
                judges_usd=self._judges_usd,
                elapsed_s=now - self._begun,
                rate=rate,
                left_s=self._left_s(now, rate),
                targets=self._plan.targets if self._plan else (),
                running=tuple(self._running),
                last=tuple(self._last),
            )

    @property
    def _ended(self) -> int:
        return self._passed + self._failed + self._errors + self._skipped

    def _leave(self, ended: Running) -> None:
        """A fallback may have run it: then it began under another target's name."""
        if ended in self._running:
            del self._running[ended]
            return
        other = next((one for one in self._running if one[1:] == ended[1:]), None)
        if other:
            del self._running[other]

    def _look_back(self, now: float) -> None:
        self._looks.append((now, self._by_target.copy()))
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW_S:  # noqa: PLR2004 (both ends)
            self._looks.popleft()

    def _rate(self, now: float, target: str | None) -> float | None:
        """Trials a second, of one target or of all, lately; over all of the time if lately none has ended."""
        then, counts = self._looks[0]
        before, ended = (
            each.total() if target is None else each[target] for each in (counts, self._by_target)
        )
        if ended > before and now > then:
            return (ended - before) / (now - then)
        return ended / (now - self._begun) if ended and now > self._begun else None

    def _left_s(self, now: float, rate: float | None) -> float | None:
        """Until the last target is done: each goes at a pace of its own, and none takes another's trials."""
        if not rate:
            return None
        times = [(self.total - self.done) / rate]
        to_make = self._plan.to_make.items() if self._plan else ()
        for target, count in to_make:
            if own := self._rate(now, target):
                times.append((count - self._by_target[target]) / own)
        return max(times)


def _of(attempt: Attempt) -> Running:
    return Running(attempt.target, attempt.case.suite, attempt.case.id, attempt.trial)
