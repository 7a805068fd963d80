"""Estimates from earlier outcomes how likely a provider is to do a task well.

A success has two parts: the worker finished its task, and its claim held where it was checked. Each
is a share with a Beta posterior per class of tasks (type and complexity). Where a class has few
outcomes, those of the same type, then all others, show how much better or worse than its peers a
provider was at the same tasks; they count as a few outcomes at most. So a provider that got the hard
tasks does not look bad, and one without outcomes looks average.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from goent.domain.errors import ContextOverflow, ModelRefused, NothingSaid, TurnTimeout
from goent.domain.task_profile import Complexity, TaskSample, TaskType
from goent.domain.types import Value

ModelKey = tuple[str, str]  # backend and model
TaskClass = tuple[TaskType, Complexity]

HALF_LIFE_S: Final = 30 * 24 * 3600.0  # models change; after this time an outcome is worth half
MIN_WEIGHT: Final = 8.0  # outcomes of a type, before they may change a choice
PRIOR_SHARE: Final = 0.8  # of a part, where nothing is known
# How many outcomes each source is worth:
PRIOR_WEIGHT: Final = 2.0  # the prior share
POOLED_WEIGHT: Final = 4.0  # the wider class, for the pooled share of a narrower one
PEER_WEIGHT: Final = 4.0  # the peers' share, for a provider
OTHER_TYPES_WEIGHT: Final = 4.0  # at most: its outcomes of other types
OTHER_COMPLEXITIES_WEIGHT: Final = 8.0  # at most: those and its outcomes of other complexities
INTERVAL_WIDTH: Final = 1.0  # standard deviations: in five of six cases it is no worse
MIN_CHANCE: Final = 0.02  # so that no provider is excluded for ever

OWN_FAULTS: Final = frozenset(
    e.kind for e in (NothingSaid, ModelRefused, ContextOverflow, TurnTimeout)
)


class TaskOutcome(Value, frozen=True, kw_only=True):
    """Whether the worker finished, and whether its claim held; None if nobody checked.

    `graded`: checked by an evaluation.
    """

    finished: bool
    claim_held: bool | None = None
    graded: bool = False

    @property
    def good(self) -> bool:
        return self.finished and self.claim_held is not False


class Outlook(Value, frozen=True, kw_only=True):
    """How likely a provider is to do a task of a class well, with a confidence interval.

    Of the `seen` outcomes of the class, `good` neither failed nor were refuted. `weight` counts the
    outcomes of the type, older ones less; `graded` were checked by evaluations.
    """

    chance: float
    low: float
    high: float
    seen: int
    good: int
    weight: float
    graded: int = 0

    @property
    def enough(self) -> bool:
        return self.weight >= MIN_WEIGHT


def outcome_of(sample: TaskSample) -> TaskOutcome | None:
    """None if it says nothing about the provider: cancelled, out of budget, or somebody else's fault."""
    match sample.state, sample.evidence:
        case "completed", "verified":
            return TaskOutcome(finished=True, claim_held=True, graded=sample.graded)
        case "completed", "claimed":
            return TaskOutcome(finished=True)
        case "completed", "refuted":  # it did nothing
            return TaskOutcome(finished=False)
        case "failed", "refuted":
            return TaskOutcome(finished=True, claim_held=False, graded=sample.graded)
        case "failed", _ if sample.failure in OWN_FAULTS:
            return TaskOutcome(finished=False)
        case _:
            return None


class _WeightedTally:
    """A weighted count of good outcomes among all."""

    __slots__ = ("all", "good")

    def __init__(self, good: float = 0.0, all_: float = 0.0) -> None:
        self.good, self.all = good, all_

    def share(self, prior: float, worth: float, scale: float) -> float:
        return (self.good * scale + prior * worth) / (self.all * scale + worth)


class _ShareModel:
    """One of the two shares, by class and model, and pooled over all models."""

    def __init__(self) -> None:
        self.scale = 1.0
        self._cells: defaultdict[ModelKey, defaultdict[TaskClass, _WeightedTally]] = defaultdict(
            lambda: defaultdict(_WeightedTally)
        )
        self._pools: defaultdict[TaskClass | TaskType | None, _WeightedTally] = defaultdict(
            _WeightedTally
        )

    def add(self, model: ModelKey, kind: TaskClass, weight: float, *, good: bool) -> None:
        for tally in (
            self._cells[model][kind],
            *(self._pools[key] for key in (kind, kind[0], None)),
        ):
            tally.all += weight
            tally.good += weight * good

    def pooled(self, kind: TaskClass) -> float:
        """The share of all models; the wider class is the prior of the narrower one."""
        share = self._pools[None].share(PRIOR_SHARE, PRIOR_WEIGHT, self.scale)
        share = self._pools[kind[0]].share(share, POOLED_WEIGHT, self.scale)
        share = self._pools[kind].share(share, POOLED_WEIGHT, self.scale)
        return min(max(share, MIN_CHANCE), 1 - MIN_CHANCE)

    def estimate(self, model: ModelKey, kind: TaskClass) -> tuple[float, float]:
        """Mean and variance."""
        cells = self._cells[model]
        own = cells.get(kind, _WeightedTally())
        far = self._record(cells, (c for c in cells if c[0] != kind[0])).at_most(OTHER_TYPES_WEIGHT)
        near = self._record(cells, (c for c in cells if c[0] == kind[0] and c != kind))
        wider = (near + far).at_most(OTHER_COMPLEXITIES_WEIGHT)
        worth = PEER_WEIGHT + wider.all
        prior = wider.shifted(self.pooled(kind))
        good, bad = own.good * self.scale, (own.all - own.good) * self.scale
        total = worth + good + bad
        mean = (prior * worth + good) / total
        return mean, mean * (1 - mean) / (total + 1)

    def _record(
        self, cells: Mapping[TaskClass, _WeightedTally], kinds: Iterable[TaskClass]
    ) -> "_PooledRecord":
        found = _PooledRecord()
        for kind in kinds:
            tally, scale = cells[kind], self.scale
            found += _PooledRecord(
                good=tally.good * scale,
                expected=tally.all * scale * self.pooled(kind),
                all=tally.all * scale,
            )
        return found


class _PooledRecord(Value, frozen=True, kw_only=True):
    """Outcomes of several classes, and how many of the peers' would have been good there."""

    good: float = 0.0
    expected: float = 0.0
    all: float = 0.0

    def __add__(self, other: "_PooledRecord") -> "_PooledRecord":
        return _PooledRecord(
            good=self.good + other.good,
            expected=self.expected + other.expected,
            all=self.all + other.all,
        )

    def at_most(self, worth: float) -> "_PooledRecord":
        share = min(1.0, worth / self.all) if self.all else 1.0
        return _PooledRecord(
            good=self.good * share, expected=self.expected * share, all=self.all * share
        )

    def shifted(self, share: float) -> float:
        """The peers' share, moved by the odds of being better than they are."""
        ours = (self.good + 1) / (self.all - self.good + 1)
        theirs = (self.expected + 1) / (self.all - self.expected + 1)
        odds = ours / theirs * share / (1 - share)
        return odds / (1 + odds)


class Experience:
    """All outcomes, ready to be asked about a class. Pure: the time is given."""

    def __init__(self, samples: Iterable[TaskSample] = (), now: float = 0.0) -> None:
        self._now = now
        self._scale = 1.0
        self._finished, self._claims = _ShareModel(), _ShareModel()
        self._seen: defaultdict[tuple[ModelKey, TaskClass], list[TaskOutcome]] = defaultdict(list)
        self._weights: defaultdict[tuple[ModelKey, TaskType], float] = defaultdict(float)
        self._cache: dict[TaskClass, Mapping[ModelKey, Outlook]] = {}
        for sample in samples:
            self.add(sample)

    def add(self, sample: TaskSample) -> None:
        found = outcome_of(sample)
        if found is None:
            return
        model: ModelKey = (sample.backend, sample.model)
        kind: TaskClass = (sample.type, sample.complexity)
        weight = _age_weight(self._now - sample.at)
        self._finished.add(model, kind, weight, good=found.finished)
        if found.claim_held is not None:
            self._claims.add(model, kind, weight, good=found.claim_held)
        self._seen[model, kind].append(found)
        self._weights[model, sample.type] += weight
        self._cache.clear()

    def set_time(self, moment: float) -> None:
        """Set the current time, from which the age of outcomes counts."""
        self._scale = self._finished.scale = self._claims.scale = 1 / _age_weight(
            self._now - moment
        )
        self._cache.clear()

    def outlooks(self, type_: TaskType, complexity: Complexity) -> Mapping[ModelKey, Outlook]:
        """By model, for those with outcomes of the type."""
        kind = (type_, complexity)
        if kind not in self._cache:
            models = [model for model, each in self._weights if each == type_]
            self._cache[kind] = {model: self._outlook(model, kind) for model in models}
        return self._cache[kind]

    def seen(self) -> Mapping[tuple[ModelKey, TaskClass], list[TaskOutcome]]:
        return self._seen

    def _outlook(self, model: ModelKey, kind: TaskClass) -> Outlook:
        done, done_var = self._finished.estimate(model, kind)
        held, held_var = self._claims.estimate(model, kind)
        chance = done * held
        variance = (done**2 + done_var) * (held**2 + held_var) - chance**2
        spread = math.sqrt(max(0.0, variance))  # rounding may go below
        seen = self._seen.get((model, kind), ())
        return Outlook(
            chance=max(MIN_CHANCE, chance),
            low=max(MIN_CHANCE, chance - INTERVAL_WIDTH * spread),
            high=max(MIN_CHANCE, min(1.0, chance + INTERVAL_WIDTH * spread)),
            seen=len(seen),
            good=sum(each.good for each in seen),
            weight=self._weights[model, kind[0]] * self._scale,
            graded=sum(each.graded for each in seen),
        )


def _age_weight(age_s: float) -> float:
    """The weight of an outcome by its age; a negative age (a clock was set back) counts as 0."""
    return 0.5 ** min(max(0.0, age_s) / HALF_LIFE_S, 1000.0)
