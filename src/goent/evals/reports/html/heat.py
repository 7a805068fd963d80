"""Which cases do not always end the same way? A cell for each trial, target by target."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from goent.domain.types import Value
from goent.evals.reports.html.markup import Markup, tag, void
from goent.evals.reports.html.plots import svg
from goent.evals.reports.html.words import cut, score
from goent.evals.rows import CaseKey, Row

CELL = 20.0
GAP = 18.0
LETTER = 7.2  # about so wide, if bold
LONGEST = 40
TOP = 40.0
MOST_ROWS = 60
MOST_COLUMNS = 300
MOST_CELLS = 6000
LOOKS = {"ok": "pass", "quality_failure": "fail", "execution_error": "error", "skipped": "skip"}


class HeatMap(Value, frozen=True, kw_only=True):
    """The drawing, and how many cases there was no room for."""

    drawing: Markup
    left_out: int


def heat_map(
    cases: Mapping[CaseKey, tuple[Row, ...]], places: Mapping[CaseKey, str]
) -> HeatMap | None:
    """None if no case has two trials to set side by side. `places` are the anchors of the cases."""
    named: dict[tuple[str, str], list[CaseKey]] = {}
    for key in cases:
        named.setdefault((key.suite, key.test_id), []).append(key)
    columns = _columns(cases)
    several = any(sum(len(cases[key]) for key in keys) > 1 for keys in named.values())
    if not several or sum(columns.values()) > MOST_COLUMNS:
        return None
    ordered = sorted(named.values(), key=lambda keys: _unrest([cases[key] for key in keys]))
    shown = ordered[: min(MOST_ROWS, MOST_CELLS // sum(columns.values()))]
    names = _names(shown, suites=len({suite for suite, _ in named}) > 1)
    starts = _starts(columns, 16 + LETTER * min(LONGEST, max(map(len, names))))
    parts = [_heading(starts, columns)]
    for line, (keys, name) in enumerate(zip(shown, names, strict=True)):
        y = TOP + line * CELL
        parts.append(_label(name, min(starts.values()) - 10, y, places.get(keys[0], "")))
        for key in keys:
            x = starts[key.target]
            parts += [_cell(row, x + (row.trial - 1) * CELL, y) for row in cases[key]]
    width = max(starts[target] + _wide(target, count) for target, count in columns.items()) + 4
    height = TOP + len(shown) * CELL + 4
    title = "Each trial of each case: passed, failed, skipped, or an error"
    return HeatMap(
        drawing=svg(*parts, width=width, height=height, title=title, fixed=True),
        left_out=len(ordered) - len(shown),
    )


def _names(shown: Sequence[Sequence[CaseKey]], *, suites: bool) -> list[str]:
    """With their suites only where there are several."""
    first = [keys[0] for keys in shown]
    return [
        f"{key.suite} / {key.test_id}" if suites and key.suite else key.test_id for key in first
    ]


def _columns(cases: Mapping[CaseKey, tuple[Row, ...]]) -> dict[str, int]:
    """How many trials each target has at most."""
    columns: dict[str, int] = {}
    for key, rows in sorted(cases.items(), key=lambda item: item[0].target):
        most = max(row.trial for row in rows)
        columns[key.target] = max(columns.get(key.target, 0), most)
    return columns


def _starts(columns: Mapping[str, int], first: float) -> dict[str, float]:
    starts: dict[str, float] = {}
    for target, count in columns.items():
        starts[target] = first
        first += _wide(target, count) + GAP
    return starts


def _wide(target: str, count: int) -> float:
    """Room for the trials, and for the target's name above them."""
    return max(count * CELL, LETTER * min(len(target), LONGEST // 2))


def _unrest(trials: Sequence[tuple[Row, ...]]) -> tuple[float, float]:
    """Cases whose trials disagree come first; then the worst."""
    passed = fmean(row.passed for rows in trials for row in rows)
    return (0 if 0 < passed < 1 else 1, passed)


def _heading(starts: Mapping[str, float], columns: Mapping[str, int]) -> Markup:
    parts: list[Markup] = []
    for target, x in starts.items():
        name = cut(target, int(_wide(target, columns[target]) / LETTER))
        parts.append(tag("text", name, x=x, y=14, class_="name"))
    for target, x in starts.items():
        if columns[target] > 1:
            parts += [
                tag("text", number, x=x + (number - 0.5) * CELL, y=32, class_="tick middle")
                for number in range(1, columns[target] + 1)
            ]
    return tag("g", *parts)


def _label(name: str, edge: float, y: float, place: str) -> Markup:
    said = tag(
        "text",
        tag("title", cut(name, 300)),
        cut(name, LONGEST),
        x=edge,
        y=y + 14,
        class_="label end",
    )
    return tag("a", said, href=f"#{place}") if place else said


def _cell(row: Row, x: float, y: float) -> Markup:
    look = LOOKS[row.execution_status]
    how = (
        f"score {score(row.score)}"
        if row.scored
        else f"{'skipped' if row.skipped else 'error'}: {cut(row.error or '', 200)}"
    )
    told = f"{row.test_id}, {row.target}, trial {row.trial}: {how}"
    square = tag(
        "rect",
        tag("title", told),
        x=x + 1,
        y=y + 1,
        width=CELL - 2,
        height=CELL - 2,
        rx=3,
        class_=look,
    )
    left, top, low = x + 7, y + 7, y + 13
    if look == "fail":  # also for those who see no colours
        cross = f"M{left:g} {top:g}l6 6m0 -6l-6 6"
        return tag("g", square, void("path", d=cross, class_="mark"))
    if look == "error":
        stroke = f"M{x + 10:g} {top - 1:g}v5m0 {low - top - 3:g}v.5"
        return tag("g", square, void("path", d=stroke, class_="mark"))
    return square
