"""Writes a run as Markdown for pull requests and as JUnit XML for build servers."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from goent.evals.eval_results import CaseKey, Row, latest_rows
from goent.evals.reports.comparison import RunComparison
from goent.evals.reports.report_text import answered_by_text, duration_text, repeat_mark
from goent.evals.reports.run_summary import CostSummary, IntervalEstimate, TargetSummary
from goent.evals.reports.trial_evidence import short_reason

MAX_CODE = 120
MAX_NOTE = 400
MAX_ROWS = 10
# Letters, digits, "-" and "." are literal; "_" is literal inside a word.
_SPECIAL_CHARACTERS = re.compile(r"(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])|([!-,/:-@\[-`{-~])")


def summary_markdown(summaries: Sequence[TargetSummary], notes: Sequence[str] = ()) -> str:
    """The notes, a table of targets, repeated trials, and the weakest cases."""
    lines = ["## Evaluation", ""]
    lines += [line for note in notes for line in (f"**Note:** {markdown_code(note, MAX_NOTE)}", "")]
    if not summaries:
        return "\n".join([*lines, "No case was run.", ""])
    header = ("target", "cases", "passed", "mean score", "errors", "cost", "median time")
    lines += _table(header, (_target_cells(summary) for summary in summaries))
    lines += _fallback_lines(summaries)
    repeated = [_repeat_cells(summary) for summary in summaries if summary.repeats is not None]
    if repeated:
        lines += _table(("target", "k", "pass@k", "pass^k", "flip rate"), repeated)
    weak = [
        (
            _case_code(case.key),
            f"{case.score:.2f}",
            f"{case.passed}/{case.trials}",
            _name_codes(case.failed_graders),
        )
        for summary in summaries
        for case in summary.worst
    ]
    if weak:
        lines += ["### Weakest cases", ""]
        lines += _table(("case", "score", "passed", "failed graders"), weak)
    alike = Counter(
        (_case_code(row.key), markdown_code(row.error or "unknown"))
        for each in summaries
        for row in each.errors
    )
    errors = [(case, why + repeat_mark(n)) for (case, why), n in alike.items()]
    if errors:
        lines += [
            "### Errors",
            "",
            *_table(("case", "error"), errors[:MAX_ROWS]),
            *_more_lines(errors),
        ]
    skipped = list(_skipped_rows(summaries))
    if skipped:
        lines += [
            "### Skipped",
            "",
            *_table(("case", "why"), skipped[:MAX_ROWS]),
            *_more_lines(skipped),
        ]
    return "\n".join(lines)


def comparison_markdown(compared: RunComparison) -> str:
    """The conclusion, the numbers behind it, and the cases that changed most."""
    lines = ["## Comparison", "", f"**{compared.text}**", ""]
    if compared.delta is not None:
        lines += _table(("", ""), _comparison_facts(compared))
    if compared.changed:
        cells = [
            (_case_code(pair.key), f"{pair.before:.2f}", f"{pair.after:.2f}", f"{pair.delta:+.2f}")
            for pair in compared.changed
        ]
        header = ("case", "before", "after", "change")
        lines += ["### Changed most", "", *_table(header, cells[:MAX_ROWS]), *_more_lines(cells)]
    if left_out := compared.unpaired.text:
        lines += [f"Not compared: {left_out}.", ""]
    return "\n".join(lines)


def markdown_code(text: str, limit: int = MAX_CODE) -> str:
    """Foreign text as code on one line, without any Markdown or HTML."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    return f"<code>{_SPECIAL_CHARACTERS.sub(_character_reference, line)}</code>"


def _character_reference(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};" if found[1] else found[0]


def _target_cells(summary: TargetSummary) -> tuple[str, ...]:
    return (
        markdown_code(summary.target),
        str(summary.cases),
        _estimate_text(summary.pass_rate, percent=True),
        _estimate_text(summary.mean, percent=False),
        str(len(summary.errors)),
        _spent_text(summary.spent, summary.trials),
        duration_text(summary.durations and summary.durations.median_ms),
    )


def _fallback_lines(summaries: Sequence[TargetSummary]) -> Iterator[str]:
    """Which fallbacks answered for a target, and how often."""
    for summary in summaries:
        for name, n in summary.answered_by.items():
            yield f"{answered_by_text(n, markdown_code(name), markdown_code(summary.target))}."
            yield ""


def _skipped_rows(summaries: Sequence[TargetSummary]) -> Iterator[tuple[str, str]]:
    for key, row in {row.key: row for each in summaries for row in each.skipped}.items():
        yield _case_code(key), markdown_code(row.error or "")


def _repeat_cells(summary: TargetSummary) -> tuple[str, ...]:
    repeats = summary.repeats
    if repeats is None:
        return ()
    rates = (repeats.pass_at_k, repeats.pass_hat_k, repeats.flip_rate)
    return (markdown_code(summary.target), str(repeats.k), *(f"{rate:.1%}" for rate in rates))


def _estimate_text(estimate: IntervalEstimate | None, *, percent: bool) -> str:
    if estimate is None:
        return "none"
    form = ".1%" if percent else ".3f"
    value = format(estimate.value, form)
    if estimate.interval is None:
        return value
    return (
        f"{value} ({format(estimate.interval.low, form)} to {format(estimate.interval.high, form)})"
    )


def _spent_text(spent: CostSummary, trials: int) -> str:
    if spent.total_usd is not None:
        return f"${spent.total_usd:.4f}"
    if spent.unknown == trials:
        return "unknown"
    return f"at least ${spent.known_usd:.4f} ({spent.unknown} of {trials} unknown)"


def _comparison_facts(compared: RunComparison) -> Iterator[tuple[str, str]]:
    yield "mean change", f"{compared.delta or 0.0:+.3f} (p = {compared.p_score:.2g})"
    if compared.interval is not None:
        yield "95 % interval", f"{compared.interval.low:+.3f} to {compared.interval.high:+.3f}"
    yield "wins, losses, ties", f"{compared.wins}, {compared.losses}, {compared.ties}"
    yield (
        "now passing, now failing",
        f"{compared.gained}, {compared.lost} (p = {compared.p_pass:.2g})",
    )


def _case_code(key: CaseKey) -> str:
    return markdown_code(" / ".join(part for part in (key.target, key.suite, key.test_id) if part))


def _name_codes(names: Iterable[str]) -> str:
    return ", ".join(markdown_code(name) for name in names)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _more_lines(rows: Sequence[object]) -> list[str]:
    return [f"… and {len(rows) - MAX_ROWS} more.", ""] if len(rows) > MAX_ROWS else []


# Characters that XML 1.0 cannot hold, not even as a reference.
_INVALID_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

MAX_MESSAGE = 500  # characters of a message; the text below it has all
UNRUN_TEST = "all trials were made"
ReasonOf = Callable[[Row], str]


def junit_xml(
    rows: Iterable[Row],
    *,
    name: str = "go-ent eval",
    reason: ReasonOf = short_reason,
    unrun: str = "",
) -> bytes:
    """The whole document, in UTF-8. `reason`: why a trial failed; `unrun`: why trials were not made."""
    targets: dict[str, list[Row]] = {}
    for row in latest_rows(rows):
        targets.setdefault(row.target, []).append(row)
    everything = [row for some in targets.values() for row in some]
    root = ET.Element(
        "testsuites",
        {"name": _valid_xml_text(name), **_count_attributes(everything, missing=bool(unrun))},
    )
    for target, some in sorted(targets.items()):
        suite = ET.SubElement(
            root, "testsuite", {"name": _valid_xml_text(target), **_count_attributes(some)}
        )
        for row in some:
            _add_case(suite, row, reason)
    if unrun:
        _add_unrun(root, name, unrun)
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _add_unrun(root: ET.Element, name: str, why: str) -> None:
    """Adds an error, so that an incomplete run does not look complete."""
    suite = ET.SubElement(
        root, "testsuite", {"name": _valid_xml_text(name), **_count_attributes((), missing=True)}
    )
    case = ET.SubElement(
        suite, "testcase", {"name": UNRUN_TEST, "classname": _valid_xml_text(name)}
    )
    _add_result(case, "error", why, why)


def _add_case(suite: ET.Element, row: Row, reason: ReasonOf) -> None:
    place = ".".join(part for part in (row.target, row.suite) if part)
    trial = f" [trial {row.trial}/{row.trials}]" if row.trials > 1 else ""
    attributes = {"name": _valid_xml_text(row.test_id) + trial, "classname": _valid_xml_text(place)}
    case = ET.SubElement(suite, "testcase", attributes | _time_attribute([row]))
    grades = "\n".join(
        f"{score.verdict}: {score.name} ({score.type}) {score.score:.3g}" for score in row.scores
    )
    if row.execution_status == "execution_error":
        error = row.error or "the attempt failed"
        _add_result(case, "error", error.splitlines()[0] if error.strip() else "", error)
    elif row.skipped:
        _add_result(case, "skipped", row.error or "", "")
    elif row.execution_status == "quality_failure":
        why = reason(row)
        score = f"score {row.score:.3g}"
        told = " ".join(f"{score}: {why}".split()) if why else score
        text = "\n".join(part for part in (why, grades) if part)
        _add_result(case, "failure", told[:MAX_MESSAGE], text or row.error or "")
    elif grades:
        ET.SubElement(case, "system-out").text = _valid_xml_text(grades)


def _add_result(case: ET.Element, tag: str, message: str, text: str) -> None:
    ET.SubElement(case, tag, {"message": _valid_xml_text(message)}).text = _valid_xml_text(text)


def _count_attributes(rows: Sequence[Row], *, missing: bool = False) -> dict[str, str]:
    return {
        "tests": str(len(rows) + missing),
        "failures": str(sum(row.execution_status == "quality_failure" for row in rows)),
        "errors": str(sum(row.execution_status == "execution_error" for row in rows) + missing),
        "skipped": str(sum(row.skipped for row in rows)),
        **_time_attribute(rows),
    }


def _time_attribute(rows: Sequence[Row]) -> dict[str, str]:
    """Omitted if no duration is known."""
    known = [row.duration_ms for row in rows if row.duration_ms is not None]
    return {"time": f"{sum(known) / 1000:.3f}"} if known else {}


def _valid_xml_text(text: str) -> str:
    return _INVALID_IN_XML.sub("", text)
