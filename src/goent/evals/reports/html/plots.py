"""How do scores, durations and costs look? Plots that a browser draws by itself, each with its words for a reader."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from goent.domain.types import Value
from goent.evals.reports.html.axes import Axis, counted, fitting_axis, unit_axis
from goent.evals.reports.html.markup import Markup, join, tag, void
from goent.evals.reports.html.words import cut, score
from goent.evals.reports.statistics import Interval
from goent.evals.reports.summary import Estimate

WIDTH = 480.0
LEFT, RIGHT = 46.0, 466.0
ROOM = 76.0  # between two words below an axis
BINS = 20
MOST_SERIES = 6
FEW = 80  # dots, which may be larger then
NAME = 40
Say = Callable[[float], str]


class Series(Value, frozen=True, kw_only=True):
    """The values of one target; `number` chooses its colour."""

    name: str
    number: int
    values: tuple[float, ...]


class Point(Value, frozen=True, kw_only=True):
    """A case, for a plot of two numbers."""

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
    """With a title, which is what those hear who do not see it. A `fixed` one does not grow with the page."""
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


def interval_bar(found: Estimate | None, number: int, title: str) -> Markup:
    """A value on its way from 0 to 1, and how far it may be off."""
    axis = unit_axis(6.0, 194.0)
    parts = [
        void("line", x1=6, x2=194, y1=14, y2=14, class_="track"),
        *(
            void("line", x1=axis.at(at), x2=axis.at(at), y1=10, y2=18, class_="track")
            for at in (0, 0.25, 0.5, 0.75, 1)
        ),
    ]
    if found is not None:
        if found.interval is not None:
            low, high = axis.at(found.interval.low), axis.at(found.interval.high)
            parts.append(
                void(
                    "rect", x=low, y=9, width=max(1.0, high - low), height=10, rx=5,
                    class_=f"band s{number % MOST_SERIES}",
                )
            )  # fmt: skip
        at = axis.at(found.value)
        parts.append(void("circle", cx=at, cy=14, r=5.5, class_=f"dot s{number % MOST_SERIES}"))
    return svg(*parts, width=200, height=28, title=title, class_="bar")


def ridges(series: Sequence[Series], axis: Axis, say: Say, title: str) -> Markup:
    """A histogram for each, one below the other, on the same scale."""
    shown = [each for each in series if each.values][:MOST_SERIES]
    height = 190.0 if len(shown) == 1 else 48.0
    ends = axis.bins(BINS)
    parts: list[Markup] = []
    base = 0.0
    for each in shown:
        label = 20.0 if len(shown) > 1 else 0.0
        base += label + height
        if label:
            parts.append(_words(LEFT, base - height + 1, cut(each.name, NAME), "name"))
        parts.append(_histogram(each, axis, ends, base, height - 8))
    parts.append(_below(axis, base, say))
    return svg(*parts, width=WIDTH, height=base + 24, title=title)


def _histogram(
    series: Series, axis: Axis, ends: Sequence[float], base: float, height: float
) -> Markup:
    counts = counted(series.values, ends)
    most = max(counts)
    bars: list[Markup] = []
    for low, high, number in zip(ends, ends[1:], counts, strict=False):
        if number:
            left, right = axis.at(low), axis.at(high)
            tall = max(2.0, height * number / most)
            bar = tag(
                "rect", tag("title", f"{number}"), x=left + 0.75, y=base - tall,
                width=right - left - 1.5, height=tall, rx=1.5,
                class_=f"fill s{series.number % MOST_SERIES}",
            )  # fmt: skip
            bars.append(bar)
    scale = [
        void("line", x1=LEFT, x2=RIGHT, y1=base, y2=base, class_="axis"),
        _words(LEFT - 6, base - height + 9, f"{most}", "tick end"),
    ]
    return join([*scale, *bars])


def scatter(
    points: Sequence[Point], centres: Sequence[tuple[Point, str]], say: Say, title: str
) -> Markup:
    """What a case costs and what it scores; each target's mean is the large mark."""
    across = fitting_axis([point.x for point in points], LEFT, RIGHT - 6)
    lowest = min(point.y for point in points)
    up = Axis(low=max(0.0, math.floor(lowest * 10 - 0.5) / 10), high=1.0, start=204.0, end=14.0)
    spots = Counter((round(across.at(p.x)), round(up.at(p.y)), p.number) for p in points)
    parts = [*_grid(up)]
    for (x, y, number), same in spots.items():
        size = min(9.0, (4.0 if len(points) < FEW else 2.8) + math.log2(same))
        colour = f"spot s{number % MOST_SERIES}"
        parts.append(void("circle", cx=x, cy=y, r=size, class_=colour))
    for centre, name in centres:
        x, y = across.at(centre.x), up.at(centre.y)
        look = f"centre s{centre.number % MOST_SERIES}"
        shape = f"M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z"
        parts.append(tag("path", tag("title", name), d=shape, class_=look))
    parts.append(_below(across, 204.0, say))
    return svg(*parts, width=WIDTH, height=228, title=title)


def _grid(up: Axis) -> Iterator[Markup]:
    for value in up.ticks():
        y = up.at(value)
        yield void("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
        yield _words(LEFT - 6, y + 4, score(value), "tick end")


def _below(axis: Axis, base: float, say: Say) -> Markup:
    parts = [void("line", x1=LEFT, x2=RIGHT, y1=base, y2=base, class_="axis")]
    last = -ROOM
    for value in axis.ticks():
        x = axis.at(value)
        if x - last < ROOM:
            continue
        last = x
        parts.append(void("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis"))
        parts.append(_words(x, base + 17, say(value), "tick middle"))
    return join(parts)


def grader_bars(counts: Sequence[tuple[str, Mapping[str, int]]], title: str) -> Markup:
    """For each grader: how many it passed, found borderline, and failed."""
    parts: list[Markup] = []
    y = 4.0
    for name, verdicts in counts:
        judged = sum(verdicts.values())
        passed = verdicts.get("pass", 0)
        parts.append(_words(2, y + 11, cut(name, 48), "name"))
        parts.append(_words(WIDTH - 4, y + 11, f"{passed} of {judged}", "tick end"))
        x = 2.0
        for verdict in ("pass", "borderline", "fail"):
            wide = (WIDTH - 6) * verdicts.get(verdict, 0) / max(1, judged)
            if wide:
                parts.append(
                    void(
                        "rect", x=x, y=y + 16, width=max(1.0, wide - 1), height=8, rx=2,
                        class_=verdict,
                    )
                )  # fmt: skip
            x += wide
        y += 36
    return svg(*parts, width=WIDTH, height=y, title=title)


def delta_bar(delta: float, interval: Interval | None, conclusion: str, title: str) -> Markup:
    """A change and its interval, on both sides of 0."""
    ends = (abs(delta), *((abs(interval.low), abs(interval.high)) if interval else ()))
    reach = max(0.1, *ends) * 1.15
    axis = Axis(low=-reach, high=reach, start=20.0, end=460.0)
    parts = [void("line", x1=20, x2=460, y1=30, y2=30, class_="track")]
    parts += [void("line", x1=axis.at(0), x2=axis.at(0), y1=8, y2=52, class_="zero")]
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(void("line", x1=x, x2=x, y1=26, y2=34, class_="track"))
        parts.append(_words(x, 68, f"{value:+.2g}" if value else "0", "tick middle"))
    if interval is not None:
        low, high = axis.at(interval.low), axis.at(interval.high)
        band = void(
            "rect", x=low, y=22, width=max(1.0, high - low), height=16, rx=8,
            class_=f"band {conclusion}",
        )  # fmt: skip
        parts.append(band)
    parts.append(void("circle", cx=axis.at(delta), cy=30, r=8, class_=f"dot {conclusion}"))
    return svg(*parts, width=WIDTH, height=76, title=title)


def moved(before: float, after: float) -> Markup:
    """A case's score, from where to where."""
    axis = unit_axis(6.0, 154.0)
    first, second = axis.at(before), axis.at(after)
    look = "better" if after > before else "worse"
    parts = (
        void("line", x1=6, x2=154, y1=10, y2=10, class_="track"),
        void("line", x1=first, x2=second, y1=10, y2=10, class_=f"way {look}"),
        void("circle", cx=first, cy=10, r=3.5, class_="from"),
        void("circle", cx=second, cy=10, r=5, class_=f"dot {look}"),
    )
    return svg(
        *parts,
        width=160,
        height=20,
        title=f"from {score(before)} to {score(after)}",
        class_="way-bar",
    )


def _words(x: float, y: float, words: str, class_: str) -> Markup:
    return tag("text", words, x=x, y=y, class_=class_)
