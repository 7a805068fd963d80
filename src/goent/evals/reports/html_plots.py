"""Draws the plots of the HTML report as SVG, each with a title for screen readers."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from goent.domain.types import Value
from goent.evals.eval_results import CaseKey, Row
from goent.evals.reports.html_markup import Markup, join_markup, tag, void_tag
from goent.evals.reports.report_text import duration_tick, price_tick, score_text, truncate
from goent.evals.reports.run_summary import IntervalEstimate, TargetSummary
from goent.evals.reports.statistics import Interval

LOG_RATIO = 20  # of the largest to the smallest value: above it an axis is logarithmic
TICK_STEPS = (1, 2, 5, 10)
MAX_TICKS = 5


class PlotAxis(Value, frozen=True, kw_only=True):
    """Maps values from `low` to `high` to coordinates from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def position(self, value: float) -> float:
        share = (self._scaled(value) - self._scaled(self.low)) / (
            self._scaled(self.high) - self._scaled(self.low)
        )
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> tuple[float, ...]:
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high)

    def bins(self, count: int) -> tuple[float, ...]:
        """The ends of `count` equal parts."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        ends = (low + (high - low) * number / count for number in range(count + 1))
        return tuple(math.exp(end) if self.log else end for end in ends)

    def _scaled(self, value: float) -> float:
        return math.log(max(value, self.low / 10)) if self.log else value


def unit_axis(start: float, end: float) -> PlotAxis:
    """The axis of scores and rates."""
    return PlotAxis(low=0.0, high=1.0, start=start, end=end)


def fitting_axis(values: Sequence[float], start: float, end: float) -> PlotAxis:
    """Starts at 0, or is logarithmic if the values are far apart."""
    positive = [value for value in values if value > 0]
    high = max(positive, default=1.0)
    low = min(positive, default=high)
    if len(positive) == len(values) and positive and high / low > LOG_RATIO:
        return PlotAxis(low=low / 1.3, high=high * 1.3, start=start, end=end, log=True)
    return PlotAxis(low=0.0, high=high * 1.05, start=start, end=end)


def bin_counts(values: Sequence[float], ends: Sequence[float]) -> list[int]:
    """The number of values in each part; the last part includes its end."""
    parts = [0] * (len(ends) - 1)
    for value in values:
        at = sum(value >= end for end in ends[1:-1])
        parts[at] += 1
    return parts


def _linear_ticks(low: float, high: float) -> tuple[float, ...]:
    raw = (high - low) / MAX_TICKS
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * step for step in TICK_STEPS if power * step >= raw - 1e-12)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(step * number for number in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    whole = [10.0**power for power in range(first, last + 1)]
    if len(whole) >= 3:  # noqa: PLR2004 (fewer leave much of the scale without labels)
        every = math.ceil(len(whole) / MAX_TICKS)
        return tuple(whole[::every])
    steps = (10.0**power * step for power in range(first - 1, last + 1) for step in (1, 2, 5))
    return tuple(value for value in steps if low <= value <= high)


PLOT_WIDTH = 480.0
PLOT_LEFT, PLOT_RIGHT = 46.0, 466.0
TICK_SPACING = 76.0  # between two labels of an axis
BINS = 20
MAX_SERIES = 6
FEW_DOTS = 80  # up to here, dots are larger
NAME_LENGTH = 40
FormatValue = Callable[[float], str]


class PlotSeries(Value, frozen=True, kw_only=True):
    """The values of one target; `number` chooses its colour."""

    name: str
    number: int
    values: tuple[float, ...]


class PlotPoint(Value, frozen=True, kw_only=True):
    """A case in a scatter plot."""

    x: float
    y: float
    number: int


def svg(
    *parts: Markup,
    width: float,
    height: float,
    title: str,
    class_: str = "plot",
    fixed: bool = False,
) -> Markup:
    """A drawing with a title for screen readers. A `fixed` one does not grow with the page."""
    size: dict[str, str | float | None] = {"width": width, "height": height} if fixed else {}
    return tag(
        "svg",
        tag("title", title),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        class_="fixed" if fixed else class_,
        role="group" if fixed else "img",  # it holds links, or it is one picture
        **size,
    )


def interval_bar(found: IntervalEstimate | None, number: int, title: str) -> Markup:
    """A value from 0 to 1 and its interval."""
    axis = unit_axis(6.0, 194.0)
    parts = [
        void_tag("line", x1=6, x2=194, y1=14, y2=14, class_="track"),
        *(
            void_tag(
                "line", x1=axis.position(at), x2=axis.position(at), y1=10, y2=18, class_="track"
            )
            for at in (0, 0.25, 0.5, 0.75, 1)
        ),
    ]
    if found is not None:
        if found.interval is not None:
            low, high = axis.position(found.interval.low), axis.position(found.interval.high)
            parts.append(
                void_tag(
                    "rect", x=low, y=9, width=max(1.0, high - low), height=10, rx=5,
                    class_=f"band s{number % MAX_SERIES}",
                )
            )  # fmt: skip
        at = axis.position(found.value)
        parts.append(void_tag("circle", cx=at, cy=14, r=5.5, class_=f"dot s{number % MAX_SERIES}"))
    return svg(*parts, width=200, height=28, title=title, class_="bar")


def ridges(series: Sequence[PlotSeries], axis: PlotAxis, say: FormatValue, title: str) -> Markup:
    """A histogram for each series, on the same scale."""
    shown = [each for each in series if each.values][:MAX_SERIES]
    height = 190.0 if len(shown) == 1 else 48.0
    ends = axis.bins(BINS)
    parts: list[Markup] = []
    base = 0.0
    for each in shown:
        label = 20.0 if len(shown) > 1 else 0.0
        base += label + height
        if label:
            parts.append(
                _svg_text(PLOT_LEFT, base - height + 1, truncate(each.name, NAME_LENGTH), "name")
            )
        parts.append(_histogram(each, axis, ends, base, height - 8))
    parts.append(_x_axis(axis, base, say))
    return svg(*parts, width=PLOT_WIDTH, height=base + 24, title=title)


def _histogram(
    series: PlotSeries, axis: PlotAxis, ends: Sequence[float], base: float, height: float
) -> Markup:
    counts = bin_counts(series.values, ends)
    most = max(counts)
    bars: list[Markup] = []
    for low, high, number in zip(ends, ends[1:], counts, strict=False):
        if number:
            left, right = axis.position(low), axis.position(high)
            tall = max(2.0, height * number / most)
            bar = tag(
                "rect", tag("title", f"{number}"), x=left + 0.75, y=base - tall,
                width=right - left - 1.5, height=tall, rx=1.5,
                class_=f"fill s{series.number % MAX_SERIES}",
            )  # fmt: skip
            bars.append(bar)
    scale = [
        void_tag("line", x1=PLOT_LEFT, x2=PLOT_RIGHT, y1=base, y2=base, class_="axis"),
        _svg_text(PLOT_LEFT - 6, base - height + 9, f"{most}", "tick end"),
    ]
    return join_markup([*scale, *bars])


def scatter(
    points: Sequence[PlotPoint],
    centres: Sequence[tuple[PlotPoint, str]],
    say: FormatValue,
    title: str,
) -> Markup:
    """The cost and score of each case; large marks are the targets' means."""
    across = fitting_axis([point.x for point in points], PLOT_LEFT, PLOT_RIGHT - 6)
    lowest = min(point.y for point in points)
    up = PlotAxis(low=max(0.0, math.floor(lowest * 10 - 0.5) / 10), high=1.0, start=204.0, end=14.0)
    spots = Counter(
        (round(across.position(p.x)), round(up.position(p.y)), p.number) for p in points
    )
    parts = [*_grid_lines(up)]
    for (x, y, number), same in spots.items():
        size = min(9.0, (4.0 if len(points) < FEW_DOTS else 2.8) + math.log2(same))
        colour = f"spot s{number % MAX_SERIES}"
        parts.append(void_tag("circle", cx=x, cy=y, r=size, class_=colour))
    for centre, name in centres:
        x, y = across.position(centre.x), up.position(centre.y)
        look = f"centre s{centre.number % MAX_SERIES}"
        shape = f"M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z"
        parts.append(tag("path", tag("title", name), d=shape, class_=look))
    parts.append(_x_axis(across, 204.0, say))
    return svg(*parts, width=PLOT_WIDTH, height=228, title=title)


def _grid_lines(up: PlotAxis) -> Iterator[Markup]:
    for value in up.ticks():
        y = up.position(value)
        yield void_tag("line", x1=PLOT_LEFT, x2=PLOT_RIGHT, y1=y, y2=y, class_="grid")
        yield _svg_text(PLOT_LEFT - 6, y + 4, score_text(value), "tick end")


def _x_axis(axis: PlotAxis, base: float, say: FormatValue) -> Markup:
    parts = [void_tag("line", x1=PLOT_LEFT, x2=PLOT_RIGHT, y1=base, y2=base, class_="axis")]
    last = -TICK_SPACING
    for value in axis.ticks():
        x = axis.position(value)
        if x - last < TICK_SPACING:
            continue
        last = x
        parts.append(void_tag("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis"))
        parts.append(_svg_text(x, base + 17, say(value), "tick middle"))
    return join_markup(parts)


def grader_bars(counts: Sequence[tuple[str, Mapping[str, int]]], title: str) -> Markup:
    """For each grader: how many it passed, found borderline, and failed."""
    parts: list[Markup] = []
    y = 4.0
    for name, verdicts in counts:
        judged = sum(verdicts.values())
        passed = verdicts.get("pass", 0)
        parts.append(_svg_text(2, y + 11, truncate(name, 48), "name"))
        parts.append(_svg_text(PLOT_WIDTH - 4, y + 11, f"{passed} of {judged}", "tick end"))
        x = 2.0
        for verdict in ("pass", "borderline", "fail"):
            wide = (PLOT_WIDTH - 6) * verdicts.get(verdict, 0) / max(1, judged)
            if wide:
                parts.append(
                    void_tag(
                        "rect", x=x, y=y + 16, width=max(1.0, wide - 1), height=8, rx=2,
                        class_=verdict,
                    )
                )  # fmt: skip
            x += wide
        y += 36
    return svg(*parts, width=PLOT_WIDTH, height=y, title=title)


def delta_bar(delta: float, interval: Interval | None, conclusion: str, title: str) -> Markup:
    """A change and its interval, on both sides of 0."""
    ends = (abs(delta), *((abs(interval.low), abs(interval.high)) if interval else ()))
    reach = max(0.1, *ends) * 1.15
    axis = PlotAxis(low=-reach, high=reach, start=20.0, end=460.0)
    parts = [void_tag("line", x1=20, x2=460, y1=30, y2=30, class_="track")]
    parts += [
        void_tag("line", x1=axis.position(0), x2=axis.position(0), y1=8, y2=52, class_="zero")
    ]
    for value in axis.ticks():
        x = axis.position(value)
        parts.append(void_tag("line", x1=x, x2=x, y1=26, y2=34, class_="track"))
        parts.append(_svg_text(x, 68, f"{value:+.2g}" if value else "0", "tick middle"))
    if interval is not None:
        low, high = axis.position(interval.low), axis.position(interval.high)
        band = void_tag(
            "rect", x=low, y=22, width=max(1.0, high - low), height=16, rx=8,
            class_=f"band {conclusion}",
        )  # fmt: skip
        parts.append(band)
    parts.append(
        void_tag("circle", cx=axis.position(delta), cy=30, r=8, class_=f"dot {conclusion}")
    )
    return svg(*parts, width=PLOT_WIDTH, height=76, title=title)


def score_change_bar(before: float, after: float) -> Markup:
    """The change of a case's score."""
    axis = unit_axis(6.0, 154.0)
    first, second = axis.position(before), axis.position(after)
    look = "better" if after > before else "worse"
    parts = (
        void_tag("line", x1=6, x2=154, y1=10, y2=10, class_="track"),
        void_tag("line", x1=first, x2=second, y1=10, y2=10, class_=f"way {look}"),
        void_tag("circle", cx=first, cy=10, r=3.5, class_="from"),
        void_tag("circle", cx=second, cy=10, r=5, class_=f"dot {look}"),
    )
    return svg(
        *parts,
        width=160,
        height=20,
        title=f"from {score_text(before)} to {score_text(after)}",
        class_="way-bar",
    )


def _svg_text(x: float, y: float, words: str, class_: str) -> Markup:
    return tag("text", words, x=x, y=y, class_=class_)


CELL_SIZE = 20.0
TARGET_GAP = 18.0
LETTER_WIDTH = 7.2  # of bold text, about
MAX_NAME = 40
TOP_MARGIN = 40.0
MAX_ROWS = 60
MAX_COLUMNS = 300
MAX_CELLS = 6000
STATUS_CLASSES = {
    "ok": "pass",
    "quality_failure": "fail",
    "execution_error": "error",
    "skipped": "skip",
}


class HeatMap(Value, frozen=True, kw_only=True):
    """The drawing, and the number of cases left out."""

    drawing: Markup
    left_out: int


def heat_map(
    cases: Mapping[CaseKey, tuple[Row, ...]], places: Mapping[CaseKey, str]
) -> HeatMap | None:
    """None if no case has two trials. `places` are the anchors of the cases."""
    named: dict[tuple[str, str], list[CaseKey]] = {}
    for key in cases:
        named.setdefault((key.suite, key.test_id), []).append(key)
    columns = _trial_counts(cases)
    several = any(sum(len(cases[key]) for key in keys) > 1 for keys in named.values())
    if not several or sum(columns.values()) > MAX_COLUMNS:
        return None
    ordered = sorted(named.values(), key=lambda keys: _flakiness_rank([cases[key] for key in keys]))
    shown = ordered[: min(MAX_ROWS, MAX_CELLS // sum(columns.values()))]
    names = _case_names(shown, suites=len({suite for suite, _ in named}) > 1)
    starts = _target_starts(columns, 16 + LETTER_WIDTH * min(MAX_NAME, max(map(len, names))))
    parts = [_target_headings(starts, columns)]
    for line, (keys, name) in enumerate(zip(shown, names, strict=True)):
        y = TOP_MARGIN + line * CELL_SIZE
        parts.append(_case_label(name, min(starts.values()) - 10, y, places.get(keys[0], "")))
        for key in keys:
            x = starts[key.target]
            parts += [_trial_cell(row, x + (row.trial - 1) * CELL_SIZE, y) for row in cases[key]]
    width = (
        max(starts[target] + _target_width(target, count) for target, count in columns.items()) + 4
    )
    height = TOP_MARGIN + len(shown) * CELL_SIZE + 4
    title = "Each trial of each case: passed, failed, skipped, or an error"
    return HeatMap(
        drawing=svg(*parts, width=width, height=height, title=title, fixed=True),
        left_out=len(ordered) - len(shown),
    )


def _case_names(shown: Sequence[Sequence[CaseKey]], *, suites: bool) -> list[str]:
    """The names, with suites if there are several."""
    first = [keys[0] for keys in shown]
    return [
        f"{key.suite} / {key.test_id}" if suites and key.suite else key.test_id for key in first
    ]


def _trial_counts(cases: Mapping[CaseKey, tuple[Row, ...]]) -> dict[str, int]:
    """The most trials of a case, by target."""
    columns: dict[str, int] = {}
    for key, rows in sorted(cases.items(), key=lambda item: item[0].target):
        most = max(row.trial for row in rows)
        columns[key.target] = max(columns.get(key.target, 0), most)
    return columns


def _target_starts(columns: Mapping[str, int], first: float) -> dict[str, float]:
    starts: dict[str, float] = {}
    for target, count in columns.items():
        starts[target] = first
        first += _target_width(target, count) + TARGET_GAP
    return starts


def _target_width(target: str, count: int) -> float:
    """Fits the trials, and the target's name above them."""
    return max(count * CELL_SIZE, LETTER_WIDTH * min(len(target), MAX_NAME // 2))


def _flakiness_rank(trials: Sequence[tuple[Row, ...]]) -> tuple[float, float]:
    """Cases whose trials disagree come first; then the worst."""
    passed = fmean(row.passed for rows in trials for row in rows)
    return (0 if 0 < passed < 1 else 1, passed)


def _target_headings(starts: Mapping[str, float], columns: Mapping[str, int]) -> Markup:
    parts: list[Markup] = []
    for target, x in starts.items():
        name = truncate(target, int(_target_width(target, columns[target]) / LETTER_WIDTH))
        parts.append(tag("text", name, x=x, y=14, class_="name"))
    for target, x in starts.items():
        if columns[target] > 1:
            parts += [
                tag("text", number, x=x + (number - 0.5) * CELL_SIZE, y=32, class_="tick middle")
                for number in range(1, columns[target] + 1)
            ]
    return tag("g", *parts)


def _case_label(name: str, edge: float, y: float, place: str) -> Markup:
    said = tag(
        "text",
        tag("title", truncate(name, 300)),
        truncate(name, MAX_NAME),
        x=edge,
        y=y + 14,
        class_="label end",
    )
    return tag("a", said, href=f"#{place}") if place else said


def _trial_cell(row: Row, x: float, y: float) -> Markup:
    look = STATUS_CLASSES[row.execution_status]
    how = (
        f"score {score_text(row.score)}"
        if row.scored
        else f"{'skipped' if row.skipped else 'error'}: {truncate(row.error or '', 200)}"
    )
    told = f"{row.test_id}, {row.target}, trial {row.trial}: {how}"
    square = tag(
        "rect",
        tag("title", told),
        x=x + 1,
        y=y + 1,
        width=CELL_SIZE - 2,
        height=CELL_SIZE - 2,
        rx=3,
        class_=look,
    )
    left, top, low = x + 7, y + 7, y + 13
    if look == "fail":  # not by colour alone
        cross = f"M{left:g} {top:g}l6 6m0 -6l-6 6"
        return tag("g", square, void_tag("path", d=cross, class_="mark"))
    if look == "error":
        stroke = f"M{x + 10:g} {top - 1:g}v5m0 {low - top - 3:g}v.5"
        return tag("g", square, void_tag("path", d=stroke, class_="mark"))
    return square


MAX_GRADERS = 8


def plots_section(
    cases: Mapping[CaseKey, tuple[Row, ...]], summaries: Sequence[TargetSummary]
) -> Markup:
    numbers = {each.target: number for number, each in enumerate(summaries)}
    drawn = [
        _figure_card("Scores", "how many cases, by mean score", _score_plot(cases, numbers)),
        _figure_card(*_cost_plot(cases, summaries, numbers)),
        _figure_card("Durations", "how many trials, by time", _duration_plot(cases, numbers)),
        _figure_card("Graders", "how many trials pass each", _grader_plot(cases)),
    ]
    several = len(summaries) > 1
    legend = tag("p", *_legend(summaries), class_="legend") if several else None
    grid = tag("div", *(each for each in drawn if each), class_="plots")
    return tag("section", legend, grid, aria_label="Plots")


def _legend(summaries: Sequence[TargetSummary]) -> Iterator[Markup]:
    for number, each in enumerate(summaries):
        key = tag("i", class_=f"key s{number % MAX_SERIES}")
        yield tag("span", key, truncate(each.target, 40))


def _figure_card(title: str, below: str, drawing: Markup | None) -> Markup | None:
    if drawing is None:
        return None
    caption = tag("figcaption", tag("b", title), " ", tag("span", below, class_="note"))
    return tag("figure", caption, drawing, class_="card")


def _score_plot(
    cases: Mapping[CaseKey, tuple[Row, ...]], numbers: Mapping[str, int]
) -> Markup | None:
    found = {name: list[float]() for name in numbers}
    for key, rows in cases.items():
        if scored := [row.score for row in rows if row.scored]:
            found[key.target].append(fmean(scored))
    series = _plot_series(found, numbers)
    if not series:
        return None
    return ridges(
        series,
        unit_axis(PLOT_LEFT, PLOT_RIGHT),
        score_text,
        "Distribution of the cases' mean scores",
    )


def _duration_plot(
    cases: Mapping[CaseKey, tuple[Row, ...]], numbers: Mapping[str, int]
) -> Markup | None:
    found = {name: list[float]() for name in numbers}
    for key, rows in cases.items():
        found[key.target] += [row.duration_ms for row in rows if row.duration_ms is not None]
    series = _plot_series(found, numbers)
    if not series:
        return None
    everything = [value for each in series for value in each.values]
    axis = fitting_axis(everything, PLOT_LEFT, PLOT_RIGHT)
    return ridges(series, axis, duration_tick, "Distribution of the trials' durations")


def _plot_series(
    found: Mapping[str, Sequence[float]], numbers: Mapping[str, int]
) -> list[PlotSeries]:
    return [
        PlotSeries(name=name, number=numbers[name], values=tuple(values))
        for name, values in found.items()
        if values
    ]


def _cost_plot(
    cases: Mapping[CaseKey, tuple[Row, ...]],
    summaries: Sequence[TargetSummary],
    numbers: Mapping[str, int],
) -> tuple[str, str, Markup | None]:
    """Plots time if no cost is known."""
    by_cost = any(row.cost_usd is not None for rows in cases.values() for row in rows)
    points: dict[str, list[PlotPoint]] = {name: [] for name in numbers}
    for key, rows in cases.items():
        scored = [row for row in rows if row.scored]
        taken = [row.cost_usd if by_cost else row.duration_ms for row in scored]
        known = [each for each in taken if each is not None]
        if known and len(known) == len(scored):
            mean = fmean(row.score for row in scored)
            points[key.target].append(PlotPoint(x=fmean(known), y=mean, number=numbers[key.target]))
    everything = [point for some in points.values() for point in some]
    title = "Cost and score" if by_cost else "Time and score"
    below = f"a dot is a case, by its mean {'cost' if by_cost else 'time'}"
    if not everything:
        return title, below, None
    centres = [
        (_mean_point(some, numbers[each.target]), each.target)
        for each in summaries
        if (some := points[each.target])
    ]
    drawing = scatter(
        everything, centres, price_tick if by_cost else duration_tick, f"{title} of each case"
    )
    return title, below, drawing


def _mean_point(points: Sequence[PlotPoint], number: int) -> PlotPoint:
    return PlotPoint(x=fmean(p.x for p in points), y=fmean(p.y for p in points), number=number)


def _grader_plot(cases: Mapping[CaseKey, tuple[Row, ...]]) -> Markup | None:
    counts: dict[str, Counter[str]] = {}
    for rows in cases.values():
        for row in rows:
            for each in row.scores:
                if each.verdict != "skip":
                    counts.setdefault(each.name, Counter())[each.verdict] += 1
    if not counts:
        return None
    worst = sorted(counts.items(), key=lambda item: item[1]["pass"] / item[1].total())
    left = len(worst) - MAX_GRADERS
    title = "How many trials pass each grader"
    if left > 0:
        title += f"; the {left} with the best rates are not shown"
    return grader_bars(worst[:MAX_GRADERS], title)
