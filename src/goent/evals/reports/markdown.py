"""How is a run told in a pull request? As Markdown, whose names can neither break a table nor call anybody."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from goent.evals.reports.comparing import Comparison
from goent.evals.reports.summary import Estimate, Spent, TargetSummary
from goent.evals.reports.words import answered, times, took
from goent.evals.rows import CaseKey

LONGEST = 120
LONGEST_NOTE = 400
MOST = 10
# Letters, digits, "-" and "." mean nothing by themselves; "_" means nothing inside a word.
_MEANING = re.compile(r"(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])|([!-,/:-@\[-`{-~])")


def summary_markdown(summaries: Sequence[TargetSummary], notes: Sequence[str] = ()) -> str:
    """A table of the targets, what repeated trials tell, and the weakest cases. `notes` are told first."""
    lines = ["## Evaluation", ""]
    lines += [line for note in notes for line in (f"**Note:** {code(note, LONGEST_NOTE)}", "")]
    if not summaries:
        return "\n".join([*lines, "No case was run.", ""])
    header = ("target", "cases", "passed", "mean score", "errors", "cost", "median time")
    lines += _table(header, (_target_cells(summary) for summary in summaries))
    lines += _answered(summaries)
    repeated = [_repeat_cells(summary) for summary in summaries if summary.repeats is not None]
    if repeated:
        lines += _table(("target", "k", "pass@k", "pass^k", "flip rate"), repeated)
    weak = [
        (
            _case(case.key),
            f"{case.score:.2f}",
            f"{case.passed}/{case.trials}",
            _names(case.failed_graders),
        )
        for summary in summaries
        for case in summary.worst
    ]
    if weak:
        lines += ["### Weakest cases", ""]
        lines += _table(("case", "score", "passed", "not content"), weak)
    alike = Counter(
        (_case(row.key), code(row.error or "unknown")) for each in summaries for row in each.errors
    )
    errors = [(case, why + times(n)) for (case, why), n in alike.items()]
    if errors:
        lines += ["### Errors", "", *_table(("case", "error"), errors[:MOST]), *_more(errors)]
    skipped = list(_skipped(summaries))
    if skipped:
        lines += ["### Skipped", "", *_table(("case", "why"), skipped[:MOST]), *_more(skipped)]
    return "\n".join(lines)


def comparison_markdown(compared: Comparison) -> str:
    """The conclusion first, then the numbers it rests on, then the cases that changed most."""
    lines = ["## Comparison", "", f"**{compared.words}**", ""]
    if compared.delta is not None:
        lines += _table(("", ""), _facts(compared))
    if compared.changed:
        cells = [
            (_case(pair.key), f"{pair.before:.2f}", f"{pair.after:.2f}", f"{pair.delta:+.2f}")
            for pair in compared.changed
        ]
        header = ("case", "before", "after", "change")
        lines += ["### Changed most", "", *_table(header, cells[:MOST]), *_more(cells)]
    if left_out := compared.unpaired.words:
        lines += [f"Not compared: {left_out}.", ""]
    return "\n".join(lines)


def code(text: str, limit: int = LONGEST) -> str:
    """Somebody else's words, as code: on one line, and nothing in them is Markdown or HTML."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    return f"<code>{_MEANING.sub(_reference, line)}</code>"


def _reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};" if found[1] else found[0]


def _target_cells(summary: TargetSummary) -> tuple[str, ...]:
    return (
        code(summary.target),
        str(summary.cases),
        _estimate(summary.pass_rate, percent=True),
        _estimate(summary.mean, percent=False),
        str(len(summary.errors)),
        _spent(summary.spent, summary.trials),
        took(summary.durations and summary.durations.median_ms),
    )


def _answered(summaries: Sequence[TargetSummary]) -> Iterator[str]:
    """Who has answered in place of a target, and how often."""
    for summary in summaries:
        for name, n in summary.answered_by.items():
            yield f"{answered(n, code(name), code(summary.target))}."
            yield ""


def _skipped(summaries: Sequence[TargetSummary]) -> Iterator[tuple[str, str]]:
    for key, row in {row.key: row for each in summaries for row in each.skipped}.items():
        yield _case(key), code(row.error or "")


def _repeat_cells(summary: TargetSummary) -> tuple[str, ...]:
    repeats = summary.repeats
    if repeats is None:
        return ()
    rates = (repeats.pass_at_k, repeats.pass_hat_k, repeats.flip_rate)
    return (code(summary.target), str(repeats.k), *(f"{rate:.1%}" for rate in rates))


def _estimate(estimate: Estimate | None, *, percent: bool) -> str:
    if estimate is None:
        return "none"
    form = ".1%" if percent else ".3f"
    value = format(estimate.value, form)
    if estimate.interval is None:
        return value
    return (
        f"{value} ({format(estimate.interval.low, form)} to {format(estimate.interval.high, form)})"
    )


def _spent(spent: Spent, trials: int) -> str:
    if spent.total_usd is not None:
        return f"${spent.total_usd:.4f}"
    if spent.unknown == trials:
        return "unknown"
    return f"at least ${spent.known_usd:.4f} ({spent.unknown} of {trials} unknown)"


def _facts(compared: Comparison) -> Iterator[tuple[str, str]]:
    yield "mean change", f"{compared.delta or 0.0:+.3f} (p = {compared.p_score:.2g})"
    if compared.interval is not None:
        yield "95 % interval", f"{compared.interval.low:+.3f} to {compared.interval.high:+.3f}"
    yield "wins, losses, ties", f"{compared.wins}, {compared.losses}, {compared.ties}"
    yield (
        "now passing, now failing",
        f"{compared.gained}, {compared.lost} (p = {compared.p_pass:.2g})",
    )


def _case(key: CaseKey) -> str:
    return code(" / ".join(part for part in (key.target, key.suite, key.test_id) if part))


def _names(names: Iterable[str]) -> str:
    return ", ".join(code(name) for name in names)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _more(rows: Sequence[object]) -> list[str]:
    return [f"… and {len(rows) - MOST} more.", ""] if len(rows) > MOST else []
