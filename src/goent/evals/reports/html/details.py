"""What happened in one trial? What was answered, found and done, within bounds that are said."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from goent.evals.grades import Assertion, Grade
from goent.evals.reports.evidence import Evidence
from goent.evals.reports.html.axes import Axis
from goent.evals.reports.html.markup import Markup, join, tag, void
from goent.evals.reports.html.plots import svg
from goent.evals.reports.html.words import count, cut, money, score
from goent.evals.reports.words import took
from goent.evals.rows import Row
from goent.evals.traces import Trace, TracedCall

LONGEST = 6000
VALUE = 1500  # characters of an argument, a reply, a piece of evidence
SHORT = 110
MOST_CALLS = 60
MOST_LINES = 300
MOST_ASSERTIONS = 40
SIGNS = {"pass": "✓", "fail": "✗", "borderline": "≈", "skip": "-"}
STATUS = {
    "ok": "passed",
    "quality_failure": "failed",
    "execution_error": "error",
    "skipped": "skipped",
}


def trial_details(row: Row, evidence: Evidence, *, unfolded: bool) -> Markup:
    """One trial, whole; of several, all but the first are folded."""
    trace = evidence.trace
    parts = [_failure(row, trace)]
    if evidence.graded is not None and evidence.graded.grades:
        parts.append(
            _titled("Graders", tag("ul", *map(_grade, evidence.graded.grades), class_="grades"))
        )
    elif row.scores:
        told = (f"{SIGNS[each.verdict]} {each.name} {score(each.score)}" for each in row.scores)
        parts.append(_titled("Graders", tag("p", ", ".join(told))))
    if trace is not None:
        parts += _of_trace(trace)
    if evidence.missing:
        parts.append(tag("p", f"Not shown: {'; '.join(evidence.missing)}.", class_="note"))
    if row.trace_path:
        parts.append(tag("p", "Trace: ", tag("code", row.trace_path), class_="note"))
    look = f"trial {STATUS[row.execution_status]}"
    inside = tag("div", *parts, class_="parts")
    return tag("details", _heading(row), inside, class_=look, open="open" if unfolded else None)


def block(words: str, limit: int = LONGEST) -> Markup:
    """As it was written; a long one is cut, and says so."""
    if len(words) <= limit:
        return tag("pre", words)
    note = tag("span", f"… {len(words) - limit:,} more characters", class_="note")
    return tag("pre", words[:limit], note)


def _heading(row: Row) -> Markup:
    usage = row.token_usage
    facts = [
        f"trial {row.trial} of {row.trials}" if row.trials > 1 else "",
        f"score {score(row.score)}" if row.scored else "",
        took(row.duration_ms) if row.duration_ms is not None else "",
        money(row.cost_usd) if row.cost_usd is not None else "cost unknown",
        _judges(row),
        f"{usage.input:,} tokens in, {usage.output:,} out" if usage else "",
        f"attempt {row.attempt + 1}" if row.attempt else "",
        f"answered by {row.answered_by}" if row.answered_by else "",
    ]
    state = STATUS[row.execution_status]
    badge = tag("span", state, class_=f"badge {state}")
    return tag("summary", badge, " ", " · ".join(fact for fact in facts if fact))


def _judges(row: Row) -> str:
    if row.judge_cost_usd is None:
        return "judges: cost unknown"
    return f"judges {money(row.judge_cost_usd)}" if row.judge_cost_usd else ""


def _cut_off(trace: Trace | None) -> bool:
    """Whether it had begun: what failed at once was not cut off."""
    if trace is None or not trace.partial:
        return False
    return bool(trace.messages) or (trace.failure is not None and trace.failure.kind == "timeout")


def _failure(row: Row, trace: Trace | None) -> Markup | None:
    if trace is not None and trace.failure is not None:
        words = f"{trace.failure.kind}: {trace.failure.message}"
    elif row.error:
        words = row.error
    else:
        return None
    cut_off = " It was cut off: what follows is what there was." if _cut_off(trace) else ""
    judged = trace is not None and trace.failure is None
    what = "It could not be judged." if judged else "The attempt failed."
    return tag("div", tag("strong", what), cut_off, block(words), class_="failure")


def _of_trace(trace: Trace) -> Iterator[Markup | None]:
    try:
        answer = block(trace.answer) if trace.answer else tag("p", "none", class_="note")
    except RecursionError:
        answer = tag("p", "nested too deeply to be shown", class_="note")
    yield _titled("Answer", answer)
    if calls := trace.all_calls:
        yield _titled(f"Tool calls ({len(calls)})", _calls(calls))
    if trace.permissions:
        asked = (
            tag(
                "li",
                f"{each.decision}: {each.permission} ",
                tag("code", cut(" ".join(each.patterns), SHORT)),
            )
            for each in trace.permissions
        )
        yield _titled("Permissions", tag("ul", *asked))
    if trace.file_changes:
        yield _titled("Changed files", _diff(trace.file_changes))
    if trace.log_path:
        yield tag("p", "Log: ", tag("code", trace.log_path), class_="note")


def _titled(title: str, *parts: Markup | None) -> Markup:
    return tag("div", tag("h3", title), *parts, class_="part")


def _grade(grade: Grade) -> Markup:
    shown = grade.assertions[:MOST_ASSERTIONS]
    parts = [_assertion(each) for each in shown]
    if len(grade.assertions) > len(shown):
        parts.append(tag("li", f"… {len(grade.assertions) - len(shown)} more", class_="note"))
    members = [_grade(member) for member in grade.members]
    weight = "" if grade.weight == 1 else f" · weight {grade.weight:g}"
    return tag(
        "li",
        tag("span", SIGNS[grade.verdict], class_="sign"),
        tag("strong", cut(grade.name, SHORT)),
        tag("span", f" {grade.type} · {score(grade.score)}{weight}", class_="note"),
        tag("p", cut(grade.error, VALUE), class_="note") if grade.error else None,
        tag("ul", *parts, *members) if parts or members else None,
        class_=grade.verdict,
    )


def _assertion(found: Assertion) -> Markup:
    return tag(
        "li",
        tag("span", "✓" if found.passed else "✗", class_="sign"),
        cut(found.text, VALUE),
        tag("pre", cut(found.evidence, VALUE), class_="evidence") if found.evidence else None,
        class_="pass" if found.passed else "fail",
    )


def _calls(calls: Sequence[tuple[int, TracedCall]]) -> Markup:
    """Those of a subagent are below the call that made it, and stand back."""
    spans = _spans([call for _, call in calls])
    parts = [_call(call, span, depth) for (depth, call), span in zip(calls, spans, strict=True)][
        :MOST_CALLS
    ]
    if len(calls) > MOST_CALLS:
        parts.append(tag("li", f"… {count(len(calls) - MOST_CALLS, 'more call')}", class_="note"))
    return tag("ol", *parts, class_="calls")


def _call(call: TracedCall, span: Markup | None, depth: int) -> Markup:
    given, got = _value(call.input), _value(call.output)
    lasted = f" {took(call.duration_ms)}" if call.duration_ms is not None else ""
    heading = tag(
        "summary",
        tag("span", call.tool, class_="tool"),
        tag("code", cut(" ".join(given.split()), SHORT)),
        span,
        tag("span", f"{call.status}{lasted}", class_=f"how {call.status}"),
    )
    inside = [block(given, VALUE), block(got, VALUE) if got else None]
    return tag("li", tag("details", heading, *inside), class_="sub" if depth else None)


def _value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    except RecursionError:
        return "nested too deeply to be shown"


def _spans(calls: Sequence[TracedCall]) -> list[Markup | None]:
    """When each call was made, between the first and the last; None where that is not known."""
    told = [(_seconds(call.start_time), call.duration_ms) for call in calls]
    known = [(begun, lasted) for begun, lasted in told if begun is not None and lasted is not None]
    if len(known) < 2:  # noqa: PLR2004 (one alone has no order)
        return [None] * len(calls)
    first = min(begun for begun, _ in known)
    last = max(begun + lasted / 1000 for begun, lasted in known)
    axis = Axis(low=first, high=max(last, first + 0.001), start=0.0, end=180.0)
    drawn: list[Markup | None] = []
    for call, (begun, lasted) in zip(calls, told, strict=True):
        if begun is None or lasted is None:
            drawn.append(None)
            continue
        x, look = axis.at(begun), "fail" if call.status in {"error", "timeout"} else "call"
        wide = max(2.0, axis.at(begun + lasted / 1000) - x)
        bar = void("rect", x=x, y=3, width=wide, height=8, rx=2, class_=look)
        title = f"began after {took((begun - first) * 1000)}"
        drawn.append(svg(bar, width=180, height=14, title=title, class_="span"))
    return drawn


def _seconds(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp() if moment else None
    except ValueError:
        return None


def _diff(changes: str) -> Markup:
    lines = changes.splitlines()
    shown = [tag("span", cut(line, 400) + "\n", class_=_line(line)) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(tag("span", f"… {len(lines) - MOST_LINES:,} more lines", class_="note"))
    return tag("pre", join(shown), class_="diff")


def _line(line: str) -> str | None:
    if line.startswith(("diff ", "+++", "---", "index ", "new file", "deleted file")):
        return "file"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1])
