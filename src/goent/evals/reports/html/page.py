"""What does a run look like in a browser? One page, with everything that it needs inside."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from goent.domain.types import Value
from goent.evals.reports.html.cases import Asked, Listed, case_list, ordered
from goent.evals.reports.html.changes import Baseline, changes
from goent.evals.reports.html.heat import heat_map
from goent.evals.reports.html.markup import Markup, join, tag, text, void
from goent.evals.reports.html.overview import figures, heading, targets
from goent.evals.reports.html.spreads import plots
from goent.evals.reports.html.words import count
from goent.evals.reports.summary import TargetSummary, summarise
from goent.evals.reports.totals import Result, total
from goent.evals.rows import CaseKey, Row, by_case, latest

STATES = (
    ("", "all"),
    ("undone", "not passed"),
    ("failed", "failed"),
    ("mixed", "mixed"),
    ("error", "errors"),
    ("skipped", "skipped"),
    ("passed", "passed"),
)


class Report(Value, frozen=True, kw_only=True):
    """What is shown beside the rows. `out` is the run's folder; `asked` has inputs by suite and id.

    `graded_from` is the folder whose traces it has graded, if they are not its own.
    `notes` are what a reader of the numbers has to know. `result` is what the run came to by its suites' strategy; None: what the trials say.
    """

    name: str
    out: Path
    graded_from: Path | None = None
    began: str = ""
    result: Result | None = None
    notes: tuple[str, ...] = ()
    asked: Mapping[tuple[str, str], Asked] = {}
    baseline: Baseline | None = None


def html_report(rows: Sequence[Row], report: Report) -> str:
    """The whole page. It loads nothing, and says what it leaves out."""
    last = latest(rows)
    cases = by_case(last)
    places = {key: f"c{number}" for number, key in enumerate(ordered(cases), start=1)}
    summaries = summarise(last)
    totals = total(last)
    result = report.result or totals.result()
    parts = [
        heading(report.name, report.began, totals, result),
        *(tag("p", f"! {note}", class_="note") for note in report.notes),
        figures(totals, summaries),
    ]
    if summaries:
        parts.append(targets(summaries))
    if report.baseline is not None:
        parts.append(changes(report.baseline))
    if summaries:
        parts.append(plots(cases, summaries))
    parts += [
        _heat(cases, places),
        _cases(case_list(cases, places, report.out, report.asked, report.graded_from), summaries),
    ]
    return _document(report.name, tag("main", *parts))


def _heat(cases: Mapping[CaseKey, tuple[Row, ...]], places: Mapping[CaseKey, str]) -> Markup | None:
    drawn = heat_map(cases, places)
    if drawn is None:
        return None
    left = f" The {drawn.left_out:,} others are steadier, or better." if drawn.left_out else ""
    note = f"A square is a trial. Cases whose trials disagree come first.{left}"
    keys = (("pass", "passed"), ("fail", "failed"), ("error", "error"), ("skip", "skipped"))
    legend = (tag("span", tag("i", class_=f"key {look}"), words) for look, words in keys)
    return tag(
        "section",
        tag("h2", "Trials"),
        tag("p", note, " ", class_="note"),
        tag("p", *legend, class_="legend"),
        tag("div", drawn.drawing, class_="scroll"),
        class_="card",
        id="trials",
    )


def _cases(listed: Listed, summaries: Sequence[TargetSummary]) -> Markup:
    note = "Each case unfolds to what was asked, answered, done and found."
    if listed.without:
        note += f" {count(listed.without, 'case')} cannot: their details are in the run's folder, to keep this page small."
    return tag(
        "section",
        tag("h2", "Cases"),
        tag("p", note, class_="note"),
        _filters(summaries),
        listed.markup,
        tag("p", "No case is like that.", id="none", class_="note", hidden="hidden"),
        class_="card list",
    )


def _filters(summaries: Sequence[TargetSummary]) -> Markup:
    """Only with a script; without one they are not shown."""
    states = (tag("option", words, value=value) for value, words in STATES)
    parts = [
        tag(
            "label", "Find ", void("input", type="search", id="find", placeholder="part of a name")
        ),
        tag("label", "State ", tag("select", *states, id="state")),
    ]
    if len(summaries) > 1:
        options = (tag("option", each.target, value=each.target) for each in summaries)
        parts.append(
            tag(
                "label",
                "Target ",
                tag("select", tag("option", "all", value=""), *options, id="target"),
            )
        )
    parts.append(tag("output", id="count", class_="note"))
    return tag("form", *parts, class_="filters")


def _document(name: str, body: Markup) -> str:
    style, script = _kept("page.css"), _kept("page.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = join(
        (
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            tag("title", f"{name}: evaluation"),
            Markup(f"<style>{style}</style>"),
        )
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>'
        f"<body>{body}<script>{script}</script></body></html>\n"
    )


@cache
def _kept(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
