"""What has changed since an earlier run, and could chance have done that?"""

from goent.domain.types import Value
from goent.evals.reports.comparing import Comparison, Pair
from goent.evals.reports.html.markup import Markup, tag
from goent.evals.reports.html.overview import column
from goent.evals.reports.html.plots import delta_bar, moved
from goent.evals.reports.html.words import count, cut, score

MOST = 8
HEADS = (
    ("Case", None),
    ("Before", "wide-only"),
    ("After", "wide-only"),
    ("Change", None),
    ("", None),
)


class Baseline(Value, frozen=True, kw_only=True):
    """An earlier run, and how this one compares with it."""

    name: str
    comparison: Comparison


def changes(baseline: Baseline) -> Markup:
    found = baseline.comparison
    look = found.conclusion.replace(" ", "-").replace("no-difference", "same")
    parts = [
        tag("h2", "Against ", tag("code", baseline.name)),
        tag("p", found.words, class_=f"verdict-words {look}"),
    ]
    if found.delta is not None:
        title = f"Mean change {found.delta:+.3f}"
        drawn = delta_bar(found.delta, found.interval, look, title)
        parts.append(tag("div", drawn, _facts(found), class_="delta"))
    if found.changed:
        rows = map(_row, found.changed[:MOST])
        heads = (column(head, look) for head, look in HEADS)
        table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="changed")
        parts.append(tag("h3", "Changed most"))
        parts.append(tag("div", table, class_="scroll"))
    if (more := len(found.changed) - MOST) > 0:
        parts.append(tag("p", f"{count(more, 'more case')} changed.", class_="note"))
    if left := found.unpaired.words:
        parts.append(tag("p", f"Not compared: {left}.", class_="note"))
    return tag("section", *parts, class_="card", id="changes")


def _facts(found: Comparison) -> Markup:
    interval = found.interval
    spread = f"{interval.low:+.3f} to {interval.high:+.3f}" if interval else "none"
    facts = (
        ("mean change", f"{found.delta or 0.0:+.3f}"),
        ("95 % interval", spread),
        ("p", f"{found.p_score:.2g}"),
        ("won, lost, tied", f"{found.wins}, {found.losses}, {found.ties}"),
        ("now passing, now failing", f"{found.gained}, {found.lost}"),
    )
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts),
        class_="facts",
    )


def _row(pair: Pair) -> Markup:
    key = pair.key
    name = " / ".join(part for part in (key.suite, key.test_id) if part)
    look = "better" if pair.delta > 0 else "worse"
    return tag(
        "tr",
        tag("td", tag("b", cut(name, 90)), tag("small", cut(key.target, 60))),
        tag("td", score(pair.before), class_="number wide-only"),
        tag("td", score(pair.after), class_="number wide-only"),
        tag("td", f"{pair.delta:+.2f}", class_=f"number {look}"),
        tag("td", moved(pair.before, pair.after)),
    )
