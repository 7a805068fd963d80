"""Which cases are there, and how did each do? A list that can be sorted, filtered and unfolded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from goent.domain.types import Value
from goent.evals.reports.evidence import Evidence, evidence_of, in_short, reason_in
from goent.evals.reports.html.details import block, trial_details
from goent.evals.reports.html.heat import LOOKS
from goent.evals.reports.html.markup import Markup, join, tag
from goent.evals.reports.html.words import count, cut, money, score
from goent.evals.reports.words import took
from goent.evals.rows import CaseKey, Row

MANY = 1000  # cases; above it only those that did not pass are told in detail
BUDGET = 5_000_000  # bytes of details
MOST_TRIALS = 20
COLUMNS = (
    ("state", ""),
    ("name", "Case"),
    ("target", "Target"),
    ("score", "Score"),
    ("trials", "Trials"),
    ("cost", "Cost"),
    ("time", "Time"),
)
_RANK = {"error": 0, "failed": 1, "mixed": 2, "skipped": 3, "passed": 4}
_SIGNS = {"error": "!", "failed": "✗", "mixed": "≈", "skipped": "-", "passed": "✓"}


class Asked(Value, frozen=True, kw_only=True):
    """What a case asks for, from its suite."""

    input: str
    criteria: str = ""


class Listed(Value, frozen=True, kw_only=True):
    """The list, and of how many cases there are no details."""

    markup: Markup
    without: int


def state_of(trials: Sequence[Row]) -> str:
    """`mixed` if some trials passed and some did not."""
    passed = sum(row.passed for row in trials)
    if passed == len(trials):
        return "passed"
    if all(row.skipped for row in trials):
        return "skipped"
    if not any(row.scored for row in trials):
        return "error"
    return "mixed" if passed else "failed"


def ordered(cases: Mapping[CaseKey, tuple[Row, ...]]) -> list[CaseKey]:
    """What somebody may want to look into comes first."""
    return sorted(cases, key=lambda key: (_RANK[state_of(cases[key])], _mean(cases[key]), key))


def case_list(
    cases: Mapping[CaseKey, tuple[Row, ...]],
    places: Mapping[CaseKey, str],
    out: Path,
    asked: Mapping[tuple[str, str], Asked],
    graded_from: Path | None = None,
) -> Listed:
    """`places` has the cases in their order."""
    room = BUDGET
    without = 0
    parts: list[Markup] = []
    for key, place in places.items():
        trials = cases[key]
        state = state_of(trials)
        inside = None
        if room > 0 and (state != "passed" or len(cases) <= MANY):
            seen = tuple((row, evidence_of(row, out, graded_from)) for row in _worst_first(trials))
            inside = _inside(seen, len(trials), asked.get((key.suite, key.test_id)))
            room -= len(inside.encode())
            why = reason_in(*seen[0])
        else:
            without += 1
            why = in_short(_worst_first(trials)[0])
        parts.append(_line(key, trials, why, place, inside))
    heading = tag("div", *(_column(*column) for column in COLUMNS), class_="line heads")
    return Listed(
        markup=join((heading, tag("div", join(parts), id="cases", class_="cases"))), without=without
    )


def _column(key: str, title: str) -> Markup:
    if not title:
        return tag("span")
    return tag("button", title, type="button", data_sort=key, class_=f"c-{key}")


def _line(
    key: CaseKey, trials: Sequence[Row], why: str, place: str, inside: Markup | None
) -> Markup:
    state = state_of(trials)
    cost = _total([row.cost_usd for row in trials])
    time = _total([row.duration_ms for row in trials])
    mean = _mean(trials)
    each = None if time is None else time / len(trials)
    name = f"{key.suite} / {key.test_id}" if key.suite else key.test_id
    cells = (
        tag("span", _SIGNS[state], class_=f"sign {state}", title=state),
        tag(
            "span",
            tag("b", cut(name, 160)),
            tag("small", cut(" ".join(why.split()), 140)) if why else None,
            class_="c-name",
        ),
        tag("span", key.target, class_="c-target"),
        tag("span", state if state in ("error", "skipped") else score(mean), class_="c-score"),
        tag("span", _strip(trials), class_="c-trials"),
        tag("span", "?" if cost is None else money(cost), class_="c-cost"),
        tag("span", "?" if each is None else took(each), class_="c-time"),
    )
    values: dict[str, str | float | None] = {
        "id": place,
        "data_state": state,
        "data_target": key.target,
        "data_name": cut(name.lower(), 300),
        "data_score": f"{mean:.4f}",
        "data_trials": f"{sum(row.passed for row in trials) / len(trials):.3f}",
        "data_cost": "" if cost is None else f"{cost:.8f}",
        "data_time": "" if each is None else f"{each:.1f}",
    }
    if inside is None:
        return tag("div", *cells, class_="case line", **values)
    summary = tag("summary", *cells, class_="line")
    return tag("details", summary, tag("div", inside, class_="inside"), class_="case", **values)


def _strip(trials: Sequence[Row]) -> Markup:
    """A square for each trial."""
    passed = f"{sum(row.passed for row in trials)}/{len(trials)}"
    if not 1 < len(trials) <= MOST_TRIALS:
        return tag("span", passed)
    squares = (tag("i", class_=LOOKS[row.execution_status]) for row in trials)
    return tag(
        "span",
        *squares,
        class_="strip",
        title=f"{passed} passed",
        role="img",
        aria_label=f"{passed} passed",
    )


def _inside(seen: Sequence[tuple[Row, Evidence]], trials: int, asked: Asked | None) -> Markup:
    parts: list[Markup] = []
    if asked is not None:
        parts.append(tag("div", tag("h3", "Input"), block(asked.input), class_="part"))
    if asked is not None and asked.criteria:
        parts.append(tag("div", tag("h3", "Criteria"), block(asked.criteria), class_="part"))
    parts += [trial_details(row, each, unfolded=at == 0) for at, (row, each) in enumerate(seen)]
    if trials > len(seen):
        parts.append(tag("p", f"{count(trials - len(seen), 'more trial')}.", class_="note"))
    return join(parts)


def _worst_first(trials: Sequence[Row]) -> list[Row]:
    return sorted(trials, key=lambda row: (row.passed, row.trial))[:MOST_TRIALS]


def _mean(trials: Sequence[Row]) -> float:
    scored = [row.score for row in trials if row.scored]
    return fmean(scored) if scored else 0.0


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
