"""Writes a run as one self-contained HTML page."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from goent.domain.types import Value
from goent.evals.eval_results import CaseKey, Row, latest_rows, rows_by_case
from goent.evals.reports.comparison import CasePair, RunComparison
from goent.evals.reports.html_cases import CaseInput, CaseList, case_list, worst_cases_first
from goent.evals.reports.html_markup import Markup, escape_text, join_markup, tag, void_tag
from goent.evals.reports.html_plots import (
    MAX_SERIES,
    delta_bar,
    heat_map,
    interval_bar,
    plots_section,
    score_change_bar,
)
from goent.evals.reports.report_text import (
    count_text,
    duration_text,
    estimate_text,
    interval_text,
    money_text,
    percent_text,
    score_text,
    spent_text,
    truncate,
)
from goent.evals.reports.run_summary import (
    IntervalEstimate,
    RunResult,
    RunTotals,
    TargetSummary,
    run_totals,
    summarize_targets,
)

RESULT_TITLES: dict[RunResult, tuple[str, str]] = {
    "passed": ("✓ passed", "passed"),
    "failed": ("✗ failed", "failed"),
    "errors": ("! not all could be judged", "error"),
    "unfinished": ("! not finished", "error"),
    "empty": ("nothing was run", "error"),
}


def heading_section(name: str, began: str, totals: RunTotals, result: RunResult) -> Markup:
    words, look = RESULT_TITLES[result]
    said = [count_text(totals.cases, "case")]
    if totals.targets > 1:
        said.append(count_text(totals.targets, "target"))
    if totals.trials > totals.cases:
        said.append(count_text(totals.trials, "trial"))
    said.append(began)
    return tag(
        "header",
        tag("p", "go-ent eval", class_="eyebrow"),
        tag("h1", name, " ", tag("span", words, class_=f"badge large {look}")),
        tag("p", " · ".join(part for part in said if part), class_="note"),
    )


def figures_section(totals: RunTotals, summaries: Sequence[TargetSummary]) -> Markup:
    """The most important numbers."""
    unit = "trials" if totals.trials > totals.cases else "cases"
    rest = [f"{totals.failed:,} failed" if totals.failed else ""]
    rest.append(count_text(totals.errors, "error") if totals.errors else "")
    rest.append(f"{totals.skipped:,} skipped" if totals.skipped else "")
    told = ", ".join(part for part in rest if part) or "all of them"
    cards = [
        _figure_card("Passed", f"{totals.passed:,} of {totals.trials:,} {unit}", told),
        _best_target_card(
            "Pass rate", [(each.target, each.pass_rate) for each in summaries], rate=True
        ),
        _best_target_card(
            "Mean score", [(each.target, each.mean) for each in summaries], rate=False
        ),
        _figure_card(
            "Cost", spent_text(totals.spent, totals.trials), _token_note(totals, summaries)
        ),
        _duration_card(summaries),
    ]
    return tag("section", *cards, class_="figures", aria_label="In short")


def _figure_card(name: str, value: str, below: str) -> Markup:
    return tag(
        "div",
        tag("p", name, class_="name"),
        tag("p", value, class_="value"),
        tag("p", below, class_="note"),
        class_="card",
    )


def _best_target_card(
    name: str, found: Sequence[tuple[str, IntervalEstimate | None]], *, rate: bool
) -> Markup:
    """The only target's value, or the best of several with its name."""
    known = [(target, each) for target, each in found if each is not None]
    if not known:
        return _figure_card(name, "none", "no case could be scored")
    target, best = max(known, key=lambda pair: pair[1].value)
    spread = interval_text(best.interval, rate=rate)
    if len(found) == 1:
        return _figure_card(
            name, estimate_text(best, rate=rate), f"95 %: {spread}" if best.interval else spread
        )
    return _figure_card(
        f"Best {name.lower()}", estimate_text(best, rate=rate), f"{truncate(target, 28)}: {spread}"
    )


def _token_note(totals: RunTotals, summaries: Sequence[TargetSummary]) -> str:
    """The tokens used, or the cost of judges."""
    judges = totals.judging
    if judges.known_usd or judges.unknown:
        return f"and {spent_text(judges, totals.trials)} for judges"
    unknown = sum(each.tokens.unknown for each in summaries)
    known = [each.tokens.known for each in summaries]
    used = sum(usage.input + usage.output + usage.cached for usage in known)
    if totals.spent.unknown:
        return f"unknown for {totals.spent.unknown:,} of {totals.trials:,} trials"
    return f"{'at least ' if unknown else ''}{used:,} tokens" if used else ""


def _duration_card(summaries: Sequence[TargetSummary]) -> Markup:
    known = [each.durations for each in summaries if each.durations is not None]
    if not known:
        return _figure_card("Median time", "unknown", "")
    medians = sorted(each.median_ms for each in known)
    value = duration_text(medians[0])
    if len(medians) > 1 and duration_text(medians[-1]) != value:
        value = f"{value} to {duration_text(medians[-1])}"
    slowest = max(each.longest_ms for each in known)
    return _figure_card("Median time", value, f"the longest took {duration_text(slowest)}")


def targets_section(summaries: Sequence[TargetSummary]) -> Markup:
    """A row for each, with its pass rate drawn."""
    repeated = any(each.repeats for each in summaries)
    heads = ["Target", "Pass rate", "", "Mean score", "Errors", "Cost", "Per pass", "Median", "p90"]
    if repeated:
        heads[5:5] = ["pass@k", "pass^k", "Flips"]
    rows = [_target_row(number, each, repeated=repeated) for number, each in enumerate(summaries)]
    head = tag("thead", tag("tr", *map(column_head, heads)))
    note = "Bands are 95 % intervals over cases. Errors are in no rate and no mean."
    if repeated:
        note += " Flips: the chance that two trials of a case disagree."
    return tag(
        "section",
        tag("h2", "Targets"),
        tag("div", tag("table", head, tag("tbody", *rows), class_="targets"), class_="scroll"),
        tag("p", note, class_="note"),
        class_="card",
        id="targets",
    )


def column_head(head: str, class_: str | None = None) -> Markup:
    """The head of a column; one with drawings has no text."""
    return tag("th", head, scope="col", class_=class_) if head else tag("td")


def _target_row(number: int, found: TargetSummary, *, repeated: bool) -> Markup:
    rate = estimate_text(found.pass_rate, rate=True)
    spread = interval_text(found.pass_rate.interval, rate=True) if found.pass_rate else ""
    mean = (
        interval_text(found.mean.interval, rate=False) if found.mean and found.mean.interval else ""
    )
    durations = found.durations
    cells = [
        tag(
            "th",
            tag("i", class_=f"key s{number % MAX_SERIES}"),
            truncate(found.target, 60),
            scope="row",
        ),
        _two_line_cell(rate, spread),
        tag("td", interval_bar(found.pass_rate, number, f"{rate}, {spread}"), class_="drawn"),
        _two_line_cell(estimate_text(found.mean, rate=False), mean),
        _number_cell(str(len(found.errors) or "-")),
    ]
    if repeated:
        cells += _repeat_cells(found)
    total, passed = found.spent.total_usd, found.passed
    cells += [
        _number_cell(spent_text(found.spent, found.trials)),
        _number_cell(money_text(total / passed) if total is not None and passed else "-"),
        _number_cell(duration_text(durations.median_ms) if durations else "unknown"),
        _number_cell(duration_text(durations.p90_ms) if durations else "unknown"),
    ]
    return tag("tr", *cells)


def _repeat_cells(found: TargetSummary) -> Sequence[Markup]:
    repeats = found.repeats
    if repeats is None:
        return [_number_cell("-")] * 3
    return [
        _two_line_cell(percent_text(repeats.pass_at_k), f"k = {repeats.k}"),
        _two_line_cell(percent_text(repeats.pass_hat_k), f"k = {repeats.k}"),
        _number_cell(percent_text(repeats.flip_rate)),
    ]


def _number_cell(words: str) -> Markup:
    return tag("td", words, class_="number")


def _two_line_cell(words: str, below: str) -> Markup:
    return tag("td", words, tag("small", below), class_="number")


MAX_CHANGED = 8
CHANGE_HEADS = (
    ("Case", None),
    ("Before", "wide-only"),
    ("After", "wide-only"),
    ("Change", None),
    ("", None),
)


class BaselineComparison(Value, frozen=True, kw_only=True):
    """An earlier run, and how this one compares with it."""

    name: str
    comparison: RunComparison


def changes_section(baseline: BaselineComparison) -> Markup:
    found = baseline.comparison
    look = found.conclusion.replace(" ", "-").replace("no-difference", "same")
    parts = [
        tag("h2", "Against ", tag("code", baseline.name)),
        tag("p", found.text, class_=f"verdict-words {look}"),
    ]
    if found.delta is not None:
        title = f"Mean change {found.delta:+.3f}"
        drawn = delta_bar(found.delta, found.interval, look, title)
        parts.append(tag("div", drawn, _comparison_facts(found), class_="delta"))
    if found.changed:
        rows = map(_change_row, found.changed[:MAX_CHANGED])
        heads = (column_head(head, look) for head, look in CHANGE_HEADS)
        table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="changed")
        parts.append(tag("h3", "Changed most"))
        parts.append(tag("div", table, class_="scroll"))
    if (more := len(found.changed) - MAX_CHANGED) > 0:
        parts.append(tag("p", f"{count_text(more, 'more case')} changed.", class_="note"))
    if left := found.unpaired.text:
        parts.append(tag("p", f"Not compared: {left}.", class_="note"))
    return tag("section", *parts, class_="card", id="changes")


def _comparison_facts(found: RunComparison) -> Markup:
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


def _change_row(pair: CasePair) -> Markup:
    key = pair.key
    name = " / ".join(part for part in (key.suite, key.test_id) if part)
    look = "better" if pair.delta > 0 else "worse"
    return tag(
        "tr",
        tag("td", tag("b", truncate(name, 90)), tag("small", truncate(key.target, 60))),
        tag("td", score_text(pair.before), class_="number wide-only"),
        tag("td", score_text(pair.after), class_="number wide-only"),
        tag("td", f"{pair.delta:+.2f}", class_=f"number {look}"),
        tag("td", score_change_bar(pair.before, pair.after)),
    )


CASE_STATES = (
    ("", "all"),
    ("undone", "not passed"),
    ("failed", "failed"),
    ("mixed", "mixed"),
    ("error", "errors"),
    ("skipped", "skipped"),
    ("passed", "passed"),
)


class HtmlReport(Value, frozen=True, kw_only=True):
    """What is shown beside the rows. `out` is the run's folder; `asked` has inputs by suite and id.

    `graded_from` is the folder with its traces, if it is another one. `notes` are caveats. `result` is
    that of the run by its suites' strategy; None: by its trials.
    """

    name: str
    out: Path
    graded_from: Path | None = None
    began: str = ""
    result: RunResult | None = None
    notes: tuple[str, ...] = ()
    asked: Mapping[tuple[str, str], CaseInput] = {}
    baseline: BaselineComparison | None = None


def html_report(rows: Sequence[Row], report: HtmlReport) -> str:
    """The whole page. It loads nothing, and lists what it leaves out."""
    last = latest_rows(rows)
    cases = rows_by_case(last)
    places = {key: f"c{number}" for number, key in enumerate(worst_cases_first(cases), start=1)}
    summaries = summarize_targets(last)
    totals = run_totals(last)
    result = report.result or totals.result()
    parts = [
        heading_section(report.name, report.began, totals, result),
        *(tag("p", f"! {note}", class_="note") for note in report.notes),
        figures_section(totals, summaries),
    ]
    if summaries:
        parts.append(targets_section(summaries))
    if report.baseline is not None:
        parts.append(changes_section(report.baseline))
    if summaries:
        parts.append(plots_section(cases, summaries))
    parts += [
        _heat_section(cases, places),
        _cases_section(
            case_list(cases, places, report.out, report.asked, report.graded_from), summaries
        ),
    ]
    return _document(report.name, tag("main", *parts))


def _heat_section(
    cases: Mapping[CaseKey, tuple[Row, ...]], places: Mapping[CaseKey, str]
) -> Markup | None:
    drawn = heat_map(cases, places)
    if drawn is None:
        return None
    left = f" {drawn.left_out:,} steadier or better ones are left out." if drawn.left_out else ""
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


def _cases_section(listed: CaseList, summaries: Sequence[TargetSummary]) -> Markup:
    note = "Open a case to see its input, answer, tool calls and grades."
    if listed.without:
        note += f" {count_text(listed.without, 'case')} have no details here, to keep this page small; see the run's folder."
    return tag(
        "section",
        tag("h2", "Cases"),
        tag("p", note, class_="note"),
        _filters(summaries),
        listed.markup,
        tag("p", "No case matches.", id="none", class_="note", hidden="hidden"),
        class_="card list",
    )


def _filters(summaries: Sequence[TargetSummary]) -> Markup:
    """Filters, shown only with scripts enabled."""
    states = (tag("option", words, value=value) for value, words in CASE_STATES)
    parts = [
        tag(
            "label",
            "Find ",
            void_tag("input", type="search", id="find", placeholder="part of a name"),
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
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_asset_digest(style)}'; script-src 'sha256-{_asset_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = join_markup(
        (
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{escape_text(policy)}">'),
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
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _asset_digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
