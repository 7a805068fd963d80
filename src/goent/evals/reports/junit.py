"""How does a build server read a run? As JUnit's XML: a suite for each target, a test for each trial."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence

from goent.evals.reports.evidence import in_short
from goent.evals.rows import Row, latest

# Characters that XML 1.0 cannot hold, not even as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

LONGEST = 500  # characters of a message; the text below it has all
UNRUN = "all trials were made"
Reason = Callable[[Row], str]


def junit(
    rows: Iterable[Row],
    *,
    name: str = "go-ent eval",
    reason: Reason = in_short,
    unrun: str = "",
) -> bytes:
    """The whole document, in UTF-8. `reason`: why a trial failed; `unrun`: what is said of trials that were not made."""
    targets: dict[str, list[Row]] = {}
    for row in latest(rows):
        targets.setdefault(row.target, []).append(row)
    everything = [row for some in targets.values() for row in some]
    root = ET.Element(
        "testsuites", {"name": _clean(name), **_counts(everything, missing=bool(unrun))}
    )
    for target, some in sorted(targets.items()):
        suite = ET.SubElement(root, "testsuite", {"name": _clean(target), **_counts(some)})
        for row in some:
            _add_case(suite, row, reason)
    if unrun:
        _add_unrun(root, name, unrun)
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _add_unrun(root: ET.Element, name: str, why: str) -> None:
    """A test of its own: who counts tests must not take a part for the whole."""
    suite = ET.SubElement(root, "testsuite", {"name": _clean(name), **_counts((), missing=True)})
    case = ET.SubElement(suite, "testcase", {"name": UNRUN, "classname": _clean(name)})
    _add(case, "error", why, why)


def _add_case(suite: ET.Element, row: Row, reason: Reason) -> None:
    place = ".".join(part for part in (row.target, row.suite) if part)
    trial = f" [trial {row.trial}/{row.trials}]" if row.trials > 1 else ""
    attributes = {"name": _clean(row.test_id) + trial, "classname": _clean(place)}
    case = ET.SubElement(suite, "testcase", attributes | _time([row]))
    grades = "\n".join(
        f"{score.verdict}: {score.name} ({score.type}) {score.score:.3g}" for score in row.scores
    )
    if row.execution_status == "execution_error":
        error = row.error or "the attempt failed"
        _add(case, "error", error.splitlines()[0] if error.strip() else "", error)
    elif row.skipped:
        _add(case, "skipped", row.error or "", "")
    elif row.execution_status == "quality_failure":
        why = reason(row)
        score = f"score {row.score:.3g}"
        told = " ".join(f"{score}: {why}".split()) if why else score
        text = "\n".join(part for part in (why, grades) if part)
        _add(case, "failure", told[:LONGEST], text or row.error or "")
    elif grades:
        ET.SubElement(case, "system-out").text = _clean(grades)


def _add(case: ET.Element, tag: str, message: str, text: str) -> None:
    ET.SubElement(case, tag, {"message": _clean(message)}).text = _clean(text)


def _counts(rows: Sequence[Row], *, missing: bool = False) -> dict[str, str]:
    return {
        "tests": str(len(rows) + missing),
        "failures": str(sum(row.execution_status == "quality_failure" for row in rows)),
        "errors": str(sum(row.execution_status == "execution_error" for row in rows) + missing),
        "skipped": str(sum(row.skipped for row in rows)),
        **_time(rows),
    }


def _time(rows: Sequence[Row]) -> dict[str, str]:
    """Left out if not one is known: unknown is not 0."""
    known = [row.duration_ms for row in rows if row.duration_ms is not None]
    return {"time": f"{sum(known) / 1000:.3f}"} if known else {}


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", text)
