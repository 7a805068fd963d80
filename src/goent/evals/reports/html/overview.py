"""How good, how sure, how dear, how fast? The verdict and the targets."""

from collections.abc import Sequence

from goent.evals.reports.html.markup import Markup, tag
from goent.evals.reports.html.plots import (
    MOST_SERIES,
    interval_bar,
)
from goent.evals.reports.html.words import (
    count,
    cut,
    estimate,
    interval,
    money,
    percent,
    spent,
)
from goent.evals.reports.summary import Estimate, TargetSummary
from goent.evals.reports.totals import Result, Totals
from goent.evals.reports.words import took

TITLES: dict[Result, tuple[str, str]] = {
    "passed": ("✓ passed", "passed"),
    "failed": ("✗ failed", "failed"),
    "errors": ("! not all could be judged", "error"),
    "unfinished": ("! not finished", "error"),
    "empty": ("nothing was run", "error"),
}


def heading(name: str, began: str, totals: Totals, result: Result) -> Markup:
    words, look = TITLES[result]
    said = [count(totals.cases, "case")]
    if totals.targets > 1:
        said.append(count(totals.targets, "target"))
    if totals.trials > totals.cases:
        said.append(count(totals.trials, "trial"))
    said.append(began)
    return tag(
        "header",
        tag("p", "go-ent eval", class_="eyebrow"),
        tag("h1", name, " ", tag("span", words, class_=f"badge large {look}")),
        tag("p", " · ".join(part for part in said if part), class_="note"),
    )


def figures(totals: Totals, summaries: Sequence[TargetSummary]) -> Markup:
    """The numbers that somebody looks for first."""
    unit = "trials" if totals.trials > totals.cases else "cases"
    rest = [f"{totals.failed:,} failed" if totals.failed else ""]
    rest.append(count(totals.errors, "error") if totals.errors else "")
    rest.append(f"{totals.skipped:,} skipped" if totals.skipped else "")
    told = ", ".join(part for part in rest if part) or "all of them"
    cards = [
        _figure("Passed", f"{totals.passed:,} of {totals.trials:,} {unit}", told),
        _of_targets("Pass rate", [(each.target, each.pass_rate) for each in summaries], rate=True),
        _of_targets("Mean score", [(each.target, each.mean) for each in summaries], rate=False),
        _figure("Cost", spent(totals.spent, totals.trials), _tokens(totals, summaries)),
        _times(summaries),
    ]
    return tag("section", *cards, class_="figures", aria_label="In short")


def _figure(name: str, value: str, below: str) -> Markup:
    return tag(
        "div",
        tag("p", name, class_="name"),
        tag("p", value, class_="value"),
        tag("p", below, class_="note"),
        class_="card",
    )


def _of_targets(name: str, found: Sequence[tuple[str, Estimate | None]], *, rate: bool) -> Markup:
    """One target's own; of several the best, and who it is."""
    known = [(target, each) for target, each in found if each is not None]
    if not known:
        return _figure(name, "none", "no case could be scored")
    target, best = max(known, key=lambda pair: pair[1].value)
    spread = interval(best.interval, rate=rate)
    if len(found) == 1:
        return _figure(
            name, estimate(best, rate=rate), f"95 %: {spread}" if best.interval else spread
        )
    return _figure(
        f"Best {name.lower()}", estimate(best, rate=rate), f"{cut(target, 28)}: {spread}"
    )


def _tokens(totals: Totals, summaries: Sequence[TargetSummary]) -> str:
    """What was used, and what judges took besides."""
    judges = totals.judging
    if judges.known_usd or judges.unknown:
        return f"and {spent(judges, totals.trials)} for judges"
    unknown = sum(each.tokens.unknown for each in summaries)
    known = [each.tokens.known for each in summaries]
    used = sum(usage.input + usage.output + usage.cached for usage in known)
    if totals.spent.unknown:
        return f"unknown for {totals.spent.unknown:,} of {totals.trials:,} trials"
    return f"{'at least ' if unknown else ''}{used:,} tokens" if used else ""


def _times(summaries: Sequence[TargetSummary]) -> Markup:
    known = [each.durations for each in summaries if each.durations is not None]
    if not known:
        return _figure("Median time", "unknown", "")
    medians = sorted(each.median_ms for each in known)
    value = took(medians[0])
    if len(medians) > 1 and took(medians[-1]) != value:
        value = f"{value} to {took(medians[-1])}"
    slowest = max(each.longest_ms for each in known)
    return _figure("Median time", value, f"the longest took {took(slowest)}")


def targets(summaries: Sequence[TargetSummary]) -> Markup:
    """A row for each, with its pass rate drawn."""
    repeated = any(each.repeats for each in summaries)
    heads = ["Target", "Pass rate", "", "Mean score", "Errors", "Cost", "Per pass", "Median", "p90"]
    if repeated:
        heads[5:5] = ["pass@k", "pass^k", "Flips"]
    rows = [_target(number, each, repeated=repeated) for number, each in enumerate(summaries)]
    head = tag("thead", tag("tr", *map(column, heads)))
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


def column(head: str, class_: str | None = None) -> Markup:
    """The head of a column; one that holds drawings has no words."""
    return tag("th", head, scope="col", class_=class_) if head else tag("td")


def _target(number: int, found: TargetSummary, *, repeated: bool) -> Markup:
    rate = estimate(found.pass_rate, rate=True)
    spread = interval(found.pass_rate.interval, rate=True) if found.pass_rate else ""
    mean = interval(found.mean.interval, rate=False) if found.mean and found.mean.interval else ""
    durations = found.durations
    cells = [
        tag(
            "th",
            tag("i", class_=f"key s{number % MOST_SERIES}"),
            cut(found.target, 60),
            scope="row",
        ),
        _two(rate, spread),
        tag("td", interval_bar(found.pass_rate, number, f"{rate}, {spread}"), class_="drawn"),
        _two(estimate(found.mean, rate=False), mean),
        _number(str(len(found.errors) or "-")),
    ]
    if repeated:
        cells += _repeats(found)
    total, passed = found.spent.total_usd, found.passed
    cells += [
        _number(spent(found.spent, found.trials)),
        _number(money(total / passed) if total is not None and passed else "-"),
        _number(took(durations.median_ms) if durations else "unknown"),
        _number(took(durations.p90_ms) if durations else "unknown"),
    ]
    return tag("tr", *cells)


def _repeats(found: TargetSummary) -> Sequence[Markup]:
    repeats = found.repeats
    if repeats is None:
        return [_number("-")] * 3
    return [
        _two(percent(repeats.pass_at_k), f"k = {repeats.k}"),
        _two(percent(repeats.pass_hat_k), f"k = {repeats.k}"),
        _number(percent(repeats.flip_rate)),
    ]


def _number(words: str) -> Markup:
    return tag("td", words, class_="number")


def _two(words: str, below: str) -> Markup:
    return tag("td", words, tag("small", below), class_="number")
