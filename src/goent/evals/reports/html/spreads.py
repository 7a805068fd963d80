"""How are scores, costs, durations and graders spread? Which numbers of the run go into which plot."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from goent.evals.reports.html.axes import fitting_axis, unit_axis
from goent.evals.reports.html.markup import Markup, tag
from goent.evals.reports.html.plots import (
    LEFT,
    MOST_SERIES,
    RIGHT,
    Point,
    Series,
    grader_bars,
    ridges,
    scatter,
)
from goent.evals.reports.html.words import cut, price, score, tick
from goent.evals.reports.summary import TargetSummary
from goent.evals.rows import CaseKey, Row

MOST_GRADERS = 8


def plots(cases: Mapping[CaseKey, tuple[Row, ...]], summaries: Sequence[TargetSummary]) -> Markup:
    numbers = {each.target: number for number, each in enumerate(summaries)}
    drawn = [
        _plot("Scores", "how many cases, by mean score", _scores(cases, numbers)),
        _plot(*_costs(cases, summaries, numbers)),
        _plot("Durations", "how many trials, by time", _durations(cases, numbers)),
        _plot("Graders", "how many trials each was content with", _graders(cases)),
    ]
    several = len(summaries) > 1
    legend = tag("p", *_legend(summaries), class_="legend") if several else None
    grid = tag("div", *(each for each in drawn if each), class_="plots")
    return tag("section", legend, grid, aria_label="Plots")


def _legend(summaries: Sequence[TargetSummary]) -> Iterator[Markup]:
    for number, each in enumerate(summaries):
        key = tag("i", class_=f"key s{number % MOST_SERIES}")
        yield tag("span", key, cut(each.target, 40))


def _plot(title: str, below: str, drawing: Markup | None) -> Markup | None:
    if drawing is None:
        return None
    caption = tag("figcaption", tag("b", title), " ", tag("span", below, class_="note"))
    return tag("figure", caption, drawing, class_="card")


def _scores(cases: Mapping[CaseKey, tuple[Row, ...]], numbers: Mapping[str, int]) -> Markup | None:
    found = {name: list[float]() for name in numbers}
    for key, rows in cases.items():
        if scored := [row.score for row in rows if row.scored]:
            found[key.target].append(fmean(scored))
    series = _series(found, numbers)
    if not series:
        return None
    return ridges(series, unit_axis(LEFT, RIGHT), score, "Distribution of the cases' mean scores")


def _durations(
    cases: Mapping[CaseKey, tuple[Row, ...]], numbers: Mapping[str, int]
) -> Markup | None:
    found = {name: list[float]() for name in numbers}
    for key, rows in cases.items():
        found[key.target] += [row.duration_ms for row in rows if row.duration_ms is not None]
    series = _series(found, numbers)
    if not series:
        return None
    everything = [value for each in series for value in each.values]
    axis = fitting_axis(everything, LEFT, RIGHT)
    return ridges(series, axis, tick, "Distribution of the trials' durations")


def _series(found: Mapping[str, Sequence[float]], numbers: Mapping[str, int]) -> list[Series]:
    return [
        Series(name=name, number=numbers[name], values=tuple(values))
        for name, values in found.items()
        if values
    ]


def _costs(
    cases: Mapping[CaseKey, tuple[Row, ...]],
    summaries: Sequence[TargetSummary],
    numbers: Mapping[str, int],
) -> tuple[str, str, Markup | None]:
    """Where no cost is known, time stands for it."""
    by_cost = any(row.cost_usd is not None for rows in cases.values() for row in rows)
    points: dict[str, list[Point]] = {name: [] for name in numbers}
    for key, rows in cases.items():
        scored = [row for row in rows if row.scored]
        taken = [row.cost_usd if by_cost else row.duration_ms for row in scored]
        known = [each for each in taken if each is not None]
        if known and len(known) == len(scored):
            mean = fmean(row.score for row in scored)
            points[key.target].append(Point(x=fmean(known), y=mean, number=numbers[key.target]))
    everything = [point for some in points.values() for point in some]
    title = "Cost and score" if by_cost else "Time and score"
    below = f"a dot is a case, by its mean {'cost' if by_cost else 'time'}"
    if not everything:
        return title, below, None
    centres = [
        (_centre(some, numbers[each.target]), each.target)
        for each in summaries
        if (some := points[each.target])
    ]
    drawing = scatter(everything, centres, price if by_cost else tick, f"{title} of each case")
    return title, below, drawing


def _centre(points: Sequence[Point], number: int) -> Point:
    return Point(x=fmean(p.x for p in points), y=fmean(p.y for p in points), number=number)


def _graders(cases: Mapping[CaseKey, tuple[Row, ...]]) -> Markup | None:
    counts: dict[str, Counter[str]] = {}
    for rows in cases.values():
        for row in rows:
            for each in row.scores:
                if each.verdict != "skip":
                    counts.setdefault(each.name, Counter())[each.verdict] += 1
    if not counts:
        return None
    worst = sorted(counts.items(), key=lambda item: item[1]["pass"] / item[1].total())
    left = len(worst) - MOST_GRADERS
    title = "How many trials each grader was content with"
    if left > 0:
        title += f"; the {left} with the best rates are not shown"
    return grader_bars(worst[:MOST_GRADERS], title)
