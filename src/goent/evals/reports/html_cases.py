"""Builds the list of cases in the HTML report, each with the details of its trials."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean

import msgspec

from goent.domain.types import Value
from goent.evals.eval_results import Assertion, CaseKey, Grade, Row
from goent.evals.reports.html_markup import Markup, join_markup, tag, void_tag
from goent.evals.reports.html_plots import STATUS_CLASSES, PlotAxis, svg
from goent.evals.reports.report_text import (
    count_text,
    duration_text,
    money_text,
    score_text,
    truncate,
)
from goent.evals.reports.trial_evidence import (
    TrialEvidence,
    read_evidence,
    reason_from_evidence,
    short_reason,
)
from goent.evals.traces import Trace, TracedCall, sum_if_known

MAX_TEXT = 6000
MAX_VALUE = 1500  # characters of an argument, a reply, a piece of evidence
MAX_LABEL = 110
MAX_CALLS = 60
MAX_LINES = 300
MAX_ASSERTIONS = 40
VERDICT_SIGNS = {"pass": "✓", "fail": "✗", "borderline": "≈", "skip": "-"}
STATUS_LABELS = {
    "ok": "passed",
    "quality_failure": "failed",
    "execution_error": "error",
    "skipped": "skipped",
}


def trial_details(row: Row, evidence: TrialEvidence, *, unfolded: bool) -> Markup:
    """All details of one trial, folded or not."""
    trace = evidence.trace
    parts = [_failure(row, trace)]
    if evidence.graded is not None and evidence.graded.grades:
        parts.append(
            _titled_part(
                "Graders", tag("ul", *map(_grade_item, evidence.graded.grades), class_="grades")
            )
        )
    elif row.scores:
        told = (
            f"{VERDICT_SIGNS[each.verdict]} {each.name} {score_text(each.score)}"
            for each in row.scores
        )
        parts.append(_titled_part("Graders", tag("p", ", ".join(told))))
    if trace is not None:
        parts += _trace_parts(trace)
    if evidence.missing:
        parts.append(tag("p", f"Not shown: {'; '.join(evidence.missing)}.", class_="note"))
    if row.trace_path:
        parts.append(tag("p", "Trace: ", tag("code", row.trace_path), class_="note"))
    look = f"trial {STATUS_LABELS[row.execution_status]}"
    inside = tag("div", *parts, class_="parts")
    return tag(
        "details", _trial_heading(row), inside, class_=look, open="open" if unfolded else None
    )


def text_block(words: str, limit: int = MAX_TEXT) -> Markup:
    """Preformatted text; a long one is cut, with a note."""
    if len(words) <= limit:
        return tag("pre", words)
    note = tag("span", f"… {len(words) - limit:,} more characters", class_="note")
    return tag("pre", words[:limit], note)


def _trial_heading(row: Row) -> Markup:
    usage = row.token_usage
    facts = [
        f"trial {row.trial} of {row.trials}" if row.trials > 1 else "",
        f"score {score_text(row.score)}" if row.scored else "",
        duration_text(row.duration_ms) if row.duration_ms is not None else "",
        money_text(row.cost_usd) if row.cost_usd is not None else "cost unknown",
        _judge_cost(row),
        f"{usage.input:,} tokens in, {usage.output:,} out" if usage else "",
        f"attempt {row.attempt + 1}" if row.attempt else "",
        f"answered by {row.answered_by}" if row.answered_by else "",
    ]
    state = STATUS_LABELS[row.execution_status]
    badge = tag("span", state, class_=f"badge {state}")
    return tag("summary", badge, " ", " · ".join(fact for fact in facts if fact))


def _judge_cost(row: Row) -> str:
    if row.judge_cost_usd is None:
        return "judges: cost unknown"
    return f"judges {money_text(row.judge_cost_usd)}" if row.judge_cost_usd else ""


def _was_cut_off(trace: Trace | None) -> bool:
    """Whether it had started; an immediate failure was not cut off."""
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
    cut_off = " It was cut off; this is the partial trace." if _was_cut_off(trace) else ""
    judged = trace is not None and trace.failure is None
    what = "It could not be judged." if judged else "The attempt failed."
    return tag("div", tag("strong", what), cut_off, text_block(words), class_="failure")


def _trace_parts(trace: Trace) -> Iterator[Markup | None]:
    try:
        answer = text_block(trace.answer) if trace.answer else tag("p", "none", class_="note")
    except RecursionError:
        answer = tag("p", "nested too deeply to be shown", class_="note")
    yield _titled_part("Answer", answer)
    if calls := trace.all_calls:
        yield _titled_part(f"Tool calls ({len(calls)})", _call_list(calls))
    if trace.permissions:
        asked = (
            tag(
                "li",
                f"{each.decision}: {each.permission} ",
                tag("code", truncate(" ".join(each.patterns), MAX_LABEL)),
            )
            for each in trace.permissions
        )
        yield _titled_part("Permissions", tag("ul", *asked))
    if trace.file_changes:
        yield _titled_part("Changed files", _diff_block(trace.file_changes))
    if trace.log_path:
        yield tag("p", "Log: ", tag("code", trace.log_path), class_="note")


def _titled_part(title: str, *parts: Markup | None) -> Markup:
    return tag("div", tag("h3", title), *parts, class_="part")


def _grade_item(grade: Grade) -> Markup:
    shown = grade.assertions[:MAX_ASSERTIONS]
    parts = [_assertion_item(each) for each in shown]
    if len(grade.assertions) > len(shown):
        parts.append(tag("li", f"… {len(grade.assertions) - len(shown)} more", class_="note"))
    members = [_grade_item(member) for member in grade.members]
    weight = "" if grade.weight == 1 else f" · weight {grade.weight:g}"
    return tag(
        "li",
        tag("span", VERDICT_SIGNS[grade.verdict], class_="sign"),
        tag("strong", truncate(grade.name, MAX_LABEL)),
        tag("span", f" {grade.type} · {score_text(grade.score)}{weight}", class_="note"),
        tag("p", truncate(grade.error, MAX_VALUE), class_="note") if grade.error else None,
        tag("ul", *parts, *members) if parts or members else None,
        class_=grade.verdict,
    )


def _assertion_item(found: Assertion) -> Markup:
    return tag(
        "li",
        tag("span", "✓" if found.passed else "✗", class_="sign"),
        truncate(found.text, MAX_VALUE),
        tag("pre", truncate(found.evidence, MAX_VALUE), class_="evidence")
        if found.evidence
        else None,
        class_="pass" if found.passed else "fail",
    )


def _call_list(calls: Sequence[tuple[int, TracedCall]]) -> Markup:
    """Calls of a subagent are indented below the call that made it."""
    spans = _call_spans([call for _, call in calls])
    parts = [
        _call_item(call, span, depth) for (depth, call), span in zip(calls, spans, strict=True)
    ][:MAX_CALLS]
    if len(calls) > MAX_CALLS:
        parts.append(
            tag("li", f"… {count_text(len(calls) - MAX_CALLS, 'more call')}", class_="note")
        )
    return tag("ol", *parts, class_="calls")


def _call_item(call: TracedCall, span: Markup | None, depth: int) -> Markup:
    given, got = _value_text(call.input), _value_text(call.output)
    lasted = f" {duration_text(call.duration_ms)}" if call.duration_ms is not None else ""
    heading = tag(
        "summary",
        tag("span", call.tool, class_="tool"),
        tag("code", truncate(" ".join(given.split()), MAX_LABEL)),
        span,
        tag("span", f"{call.status}{lasted}", class_=f"how {call.status}"),
    )
    inside = [text_block(given, MAX_VALUE), text_block(got, MAX_VALUE) if got else None]
    return tag("li", tag("details", heading, *inside), class_="sub" if depth else None)


def _value_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    except RecursionError:
        return "nested too deeply to be shown"


def _call_spans(calls: Sequence[TracedCall]) -> list[Markup | None]:
    """Draws when each call was made, between the first and the last; None where unknown."""
    told = [(_seconds(call.start_time), call.duration_ms) for call in calls]
    known = [(begun, lasted) for begun, lasted in told if begun is not None and lasted is not None]
    if len(known) < 2:  # noqa: PLR2004 (one alone has no order)
        return [None] * len(calls)
    first = min(begun for begun, _ in known)
    last = max(begun + lasted / 1000 for begun, lasted in known)
    axis = PlotAxis(low=first, high=max(last, first + 0.001), start=0.0, end=180.0)
    drawn: list[Markup | None] = []
    for call, (begun, lasted) in zip(calls, told, strict=True):
        if begun is None or lasted is None:
            drawn.append(None)
            continue
        x, look = axis.position(begun), "fail" if call.status in {"error", "timeout"} else "call"
        wide = max(2.0, axis.position(begun + lasted / 1000) - x)
        bar = void_tag("rect", x=x, y=3, width=wide, height=8, rx=2, class_=look)
        title = f"began after {duration_text((begun - first) * 1000)}"
        drawn.append(svg(bar, width=180, height=14, title=title, class_="span"))
    return drawn


def _seconds(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp() if moment else None
    except ValueError:
        return None


def _diff_block(changes: str) -> Markup:
    lines = changes.splitlines()
    shown = [
        tag("span", truncate(line, 400) + "\n", class_=_diff_line_class(line))
        for line in lines[:MAX_LINES]
    ]
    if len(lines) > MAX_LINES:
        shown.append(tag("span", f"… {len(lines) - MAX_LINES:,} more lines", class_="note"))
    return tag("pre", join_markup(shown), class_="diff")


def _diff_line_class(line: str) -> str | None:
    if line.startswith(("diff ", "+++", "---", "index ", "new file", "deleted file")):
        return "file"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1])


MANY_CASES = 1000  # above it only cases that did not pass have details
DETAILS_BUDGET = 5_000_000  # bytes of details
MAX_TRIALS = 20
CASE_COLUMNS = (
    ("state", ""),
    ("name", "Case"),
    ("target", "Target"),
    ("score", "Score"),
    ("trials", "Trials"),
    ("cost", "Cost"),
    ("time", "Time"),
)
_STATE_RANKS = {"error": 0, "failed": 1, "mixed": 2, "skipped": 3, "passed": 4}
_STATE_SIGNS = {"error": "!", "failed": "✗", "mixed": "≈", "skipped": "-", "passed": "✓"}


class CaseInput(Value, frozen=True, kw_only=True):
    """What a case asks for, from its suite."""

    input: str
    criteria: str = ""


class CaseList(Value, frozen=True, kw_only=True):
    """The list, and the number of cases without details."""

    markup: Markup
    without: int


def case_state(trials: Sequence[Row]) -> str:
    """`mixed` if some trials passed and some did not."""
    passed = sum(row.passed for row in trials)
    if passed == len(trials):
        return "passed"
    if all(row.skipped for row in trials):
        return "skipped"
    if not any(row.scored for row in trials):
        return "error"
    return "mixed" if passed else "failed"


def worst_cases_first(cases: Mapping[CaseKey, tuple[Row, ...]]) -> list[CaseKey]:
    """Errors and failures first."""
    return sorted(
        cases, key=lambda key: (_STATE_RANKS[case_state(cases[key])], _mean_score(cases[key]), key)
    )


def case_list(
    cases: Mapping[CaseKey, tuple[Row, ...]],
    places: Mapping[CaseKey, str],
    out: Path,
    asked: Mapping[tuple[str, str], CaseInput],
    graded_from: Path | None = None,
) -> CaseList:
    """`places` has the anchors of the cases, in their order."""
    room = DETAILS_BUDGET
    without = 0
    parts: list[Markup] = []
    for key, place in places.items():
        trials = cases[key]
        state = case_state(trials)
        inside = None
        if room > 0 and (state != "passed" or len(cases) <= MANY_CASES):
            seen = tuple(
                (row, read_evidence(row, out, graded_from)) for row in _worst_first(trials)
            )
            inside = _case_details(seen, len(trials), asked.get((key.suite, key.test_id)))
            room -= len(inside.encode())
            why = reason_from_evidence(*seen[0])
        else:
            without += 1
            why = short_reason(_worst_first(trials)[0])
        parts.append(_case_line(key, trials, why, place, inside))
    heading = tag("div", *(_sort_button(*column) for column in CASE_COLUMNS), class_="line heads")
    return CaseList(
        markup=join_markup((heading, tag("div", join_markup(parts), id="cases", class_="cases"))),
        without=without,
    )


def _sort_button(key: str, title: str) -> Markup:
    if not title:
        return tag("span")
    return tag("button", title, type="button", data_sort=key, class_=f"c-{key}")


def _case_line(
    key: CaseKey, trials: Sequence[Row], why: str, place: str, inside: Markup | None
) -> Markup:
    state = case_state(trials)
    cost = sum_if_known([row.cost_usd for row in trials])
    time = sum_if_known([row.duration_ms for row in trials])
    mean = _mean_score(trials)
    each = None if time is None else time / len(trials)
    name = f"{key.suite} / {key.test_id}" if key.suite else key.test_id
    cells = (
        tag("span", _STATE_SIGNS[state], class_=f"sign {state}", title=state),
        tag(
            "span",
            tag("b", truncate(name, 160)),
            tag("small", truncate(" ".join(why.split()), 140)) if why else None,
            class_="c-name",
        ),
        tag("span", key.target, class_="c-target"),
        tag("span", state if state in ("error", "skipped") else score_text(mean), class_="c-score"),
        tag("span", _trial_strip(trials), class_="c-trials"),
        tag("span", "?" if cost is None else money_text(cost), class_="c-cost"),
        tag("span", "?" if each is None else duration_text(each), class_="c-time"),
    )
    values: dict[str, str | float | None] = {
        "id": place,
        "data_state": state,
        "data_target": key.target,
        "data_name": truncate(name.lower(), 300),
        "data_score": f"{mean:.4f}",
        "data_trials": f"{sum(row.passed for row in trials) / len(trials):.3f}",
        "data_cost": "" if cost is None else f"{cost:.8f}",
        "data_time": "" if each is None else f"{each:.1f}",
    }
    if inside is None:
        return tag("div", *cells, class_="case line", **values)
    summary = tag("summary", *cells, class_="line")
    return tag("details", summary, tag("div", inside, class_="inside"), class_="case", **values)


def _trial_strip(trials: Sequence[Row]) -> Markup:
    """A square for each trial."""
    passed = f"{sum(row.passed for row in trials)}/{len(trials)}"
    if not 1 < len(trials) <= MAX_TRIALS:
        return tag("span", passed)
    squares = (tag("i", class_=STATUS_CLASSES[row.execution_status]) for row in trials)
    return tag(
        "span",
        *squares,
        class_="strip",
        title=f"{passed} passed",
        role="img",
        aria_label=f"{passed} passed",
    )


def _case_details(
    seen: Sequence[tuple[Row, TrialEvidence]], trials: int, asked: CaseInput | None
) -> Markup:
    parts: list[Markup] = []
    if asked is not None:
        parts.append(tag("div", tag("h3", "Input"), text_block(asked.input), class_="part"))
    if asked is not None and asked.criteria:
        parts.append(tag("div", tag("h3", "Criteria"), text_block(asked.criteria), class_="part"))
    parts += [trial_details(row, each, unfolded=at == 0) for at, (row, each) in enumerate(seen)]
    if trials > len(seen):
        parts.append(tag("p", f"{count_text(trials - len(seen), 'more trial')}.", class_="note"))
    return join_markup(parts)


def _worst_first(trials: Sequence[Row]) -> list[Row]:
    return sorted(trials, key=lambda row: (row.passed, row.trial))[:MAX_TRIALS]


def _mean_score(trials: Sequence[Row]) -> float:
    scored = [row.score for row in trials if row.scored]
    return fmean(scored) if scored else 0.0
