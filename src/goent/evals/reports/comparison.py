"""Compares two runs case by case, and tests whether chance explains the difference."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from goent.domain.evaluation_messages import Conclusion
from goent.domain.types import Value
from goent.evals.eval_results import CaseKey, Row, rows_by_case
from goent.evals.reports.report_text import pluralize
from goent.evals.reports.statistics import (
    Interval,
    bootstrap_interval,
    seeded_random,
    sign_test,
    swap_test,
)

CaseRows = dict[CaseKey, tuple[Row, ...]]
SIGNIFICANCE = 0.05
NOTABLE_DELTA = 0.1
MIN_CHANGED = 6  # with fewer changed pairs, chance explains any difference


class CasePair(Value, frozen=True, kw_only=True):
    """One case in both runs: mean scores and shares of passed trials."""

    key: CaseKey
    before: float
    after: float
    passed_before: float
    passed_after: float

    @property
    def delta(self) -> float:
        return round(self.after - self.before, 9)  # 0.9 - 0.8 must be 0.1


class UnpairedCases(Value, frozen=True, kw_only=True):
    """Cases that are not compared: only one run has them, or one could not score them.

    `skipped` were skipped in one run, and failed in none.
    """

    only_before: tuple[CaseKey, ...] = ()
    only_after: tuple[CaseKey, ...] = ()
    errors_before: tuple[CaseKey, ...] = ()
    errors_after: tuple[CaseKey, ...] = ()
    skipped: tuple[CaseKey, ...] = ()

    @property
    def unscored(self) -> int:
        """Cases of both runs that at least one could not score."""
        return self.failed + len(self.skipped)

    @property
    def count(self) -> int:
        return len(self.only_before) + len(self.only_after) + self.unscored

    @property
    def failed(self) -> int:
        """Cases of both runs whose attempts failed in at least one."""
        return len({*self.errors_before, *self.errors_after})

    @property
    def text(self) -> str:
        parts = (
            (len(self.only_before), "only in the first run"),
            (len(self.only_after), "only in the second run"),
            (self.failed, "with failed attempts"),
            (len(self.skipped), "skipped"),
        )
        return ", ".join(f"{count} {what}" for count, what in parts if count)


class RunComparison(Value, frozen=True, kw_only=True):
    """The second run against the first. `p_score` is of the mean delta, `p_pass` of gained and lost cases.

    A case is a win or a loss from `NOTABLE_DELTA` on, and `gained` or `lost` if more or fewer of its trials pass.
    """

    pairs: tuple[CasePair, ...]
    unpaired: UnpairedCases
    delta: float | None
    interval: Interval | None
    p_score: float
    wins: int
    losses: int
    ties: int
    gained: int
    lost: int
    p_pass: float
    conclusion: Conclusion

    @property
    def text(self) -> str:
        return _comparison_text(self)

    @property
    def changed(self) -> tuple[CasePair, ...]:
        """The cases whose scores changed, the largest changes first."""
        changed = (pair for pair in self.pairs if pair.delta)
        return tuple(sorted(changed, key=lambda pair: (-abs(pair.delta), pair.key)))


def compare_runs(
    before: Iterable[Row],
    after: Iterable[Row],
    *,
    targets: tuple[str, str] | None = None,
    notable: float = NOTABLE_DELTA,
    seed: int = 0,
) -> RunComparison:
    """Pairs by case and target; with `targets`, one target of each run, as if each run has only one."""
    first, second = rows_by_case(before), rows_by_case(after)
    targets = targets or _only_targets(first, second)
    if targets is not None:
        first, second = (
            _select_target(first, targets[0], targets),
            _select_target(second, targets[1], targets),
        )
    common = sorted(first.keys() & second.keys())
    unscored = {key: None for key in common if not (_scored(first[key]) and _scored(second[key]))}
    errors_before = tuple(key for key in unscored if _has_failed(first[key]))
    errors_after = tuple(key for key in unscored if _has_failed(second[key]))
    pairs = tuple(_pair(key, first[key], second[key]) for key in common if key not in unscored)
    unpaired = UnpairedCases(
        only_before=tuple(sorted(first.keys() - second.keys())),
        only_after=tuple(sorted(second.keys() - first.keys())),
        errors_before=errors_before,
        errors_after=errors_after,
        skipped=tuple(key for key in unscored if key not in {*errors_before, *errors_after}),
    )
    return _test_pairs(pairs, unpaired, notable, seed)


def _test_pairs(
    pairs: tuple[CasePair, ...], unpaired: UnpairedCases, notable: float, seed: int
) -> RunComparison:
    deltas = [pair.delta for pair in pairs]
    delta = fmean(deltas) if deltas else None
    p_score = swap_test(deltas, seeded_random(seed))
    wins = sum(each >= notable for each in deltas)
    losses = sum(each <= -notable for each in deltas)
    gained = sum(pair.passed_after > pair.passed_before for pair in pairs)
    lost = sum(pair.passed_after < pair.passed_before for pair in pairs)
    return RunComparison(
        pairs=pairs,
        unpaired=unpaired,
        delta=delta,
        interval=bootstrap_interval(deltas, seeded_random(seed)),
        p_score=p_score,
        wins=wins,
        losses=losses,
        ties=len(pairs) - wins - losses,
        gained=gained,
        lost=lost,
        p_pass=sign_test(gained, lost),
        conclusion=_conclusion(delta, p_score),
    )


def _conclusion(delta: float | None, p_score: float) -> Conclusion:
    if not delta or p_score >= SIGNIFICANCE:
        return "no difference"
    return "better" if delta > 0 else "worse"


def _comparison_text(compared: RunComparison) -> str:
    cases = pluralize(len(compared.pairs), "case")
    if compared.delta is None:
        return "Nothing to compare: the runs have no scored case of the same target in common."
    if compared.conclusion != "no difference":
        return (
            f"{compared.conclusion.capitalize()}: the mean score changed by {compared.delta:+.3f} over "
            f"{cases}, which chance alone does in {compared.p_score:.2g} of such comparisons."
        )
    moved = len(compared.changed)
    if moved == 0:
        return f"No difference: {cases}, and not one score has changed."
    few = (
        f" Only {moved} changed; fewer than {MIN_CHANGED} cannot show a difference."
        if moved < MIN_CHANGED
        else ""
    )
    return (
        f"No difference that the data can show: {compared.delta:+.3f} over {cases} "
        f"(p = {compared.p_score:.2g}).{few}"
    )


def _only_targets(first: CaseRows, second: CaseRows) -> tuple[str, str] | None:
    names = [{key.target for key in cases} for cases in (first, second)]
    if any(len(each) != 1 for each in names):
        return None
    return names[0].pop(), names[1].pop()


def _select_target(cases: CaseRows, target: str, targets: tuple[str, str]) -> CaseRows:
    name = targets[0] if targets[0] == targets[1] else " → ".join(targets)
    return {key._replace(target=name): rows for key, rows in cases.items() if key.target == target}


def _pair(key: CaseKey, before: Sequence[Row], after: Sequence[Row]) -> CasePair:
    first, second = _scored(before), _scored(after)
    return CasePair(
        key=key,
        before=fmean(row.score for row in first),
        after=fmean(row.score for row in second),
        passed_before=fmean(row.passed for row in first),
        passed_after=fmean(row.passed for row in second),
    )


def _scored(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.scored)


def _has_failed(rows: Sequence[Row]) -> bool:
    """No trial could be scored, and not all were skipped."""
    return not _scored(rows) and not all(row.skipped for row in rows)
