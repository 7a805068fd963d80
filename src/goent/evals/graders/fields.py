"""Are the values of a structured answer right? Field by field, against the case's reference."""

import json
import math
import re
from collections.abc import Iterator
from datetime import date, datetime

from goent.evals.graders.findings import Finding, Look, Misfit, failed, passed
from goent.evals.graders.settings import Field, Fields, read
from goent.evals.graders.values import absent, at, json_value, no_number, same
from goent.evals.grades import Assertion
from goent.evals.suites import Case

MOST_STARTS = 500  # places at which an object is looked for
MOST_READ = 1_000_000  # characters that are read in vain, beside once the whole
_NO_JSON = "The answer holds no JSON, or several objects that differ"
_STRICT = json.JSONDecoder(parse_constant=no_number)
_DIGITS = re.compile(r"[-+\d.eE\s]+", re.ASCII)
_FORMATS = ("YYYY-MM-DD", "DD-MMM-YYYY", "MM/DD/YYYY", "DD/MM/YYYY", "YYYY/MM/DD")
_PARTS = {"YYYY": "%Y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "DD": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}  # fmt: skip
_PART = re.compile("|".join(_PARTS))


def field_accuracy(look: Look) -> Finding:
    settings = read(look.spec, Fields)
    expected = _reference(look.case)
    if not look.compat:
        _complete(look, settings, expected)
    try:
        actual = found_json(look.trace.answer, compat=look.compat)
    except ValueError:
        return Finding(score=0.0, assertions=(failed(_NO_JSON),))
    checks = [(field, _field(field, expected, actual)) for field in settings.fields]
    counted = [(field, check) for field, check in checks if check is not None]
    notes = tuple(check or passed(f"{field.path}: left out") for field, check in checks)
    total = sum(field.weight for field, _ in counted)
    hits = sum(field.weight for field, check in counted if check.passed)
    score = hits / total if total > 0 else 0.0
    if settings.aggregation == "all_or_nothing":
        score = float(bool(counted) and all(check.passed for _, check in counted))
    return Finding(score=score, assertions=notes)


def found_json(text: str, *, compat: bool = False) -> object:
    """The text itself, what stands between fences, or the one object in it; else `ValueError`.

    AgentV takes the first object, whatever comes after; here several that differ are none.
    """
    for whole in (text, _fenced(text)):
        try:
            return json_value(whole)
        except ValueError:
            continue
    try:
        values = list(_objects(text, 1 if compat else MOST_STARTS))
        if values and all(same(values[0], other) for other in values):
            return values[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None
    raise ValueError("not one object")


def _fenced(text: str) -> str:
    """What stands between the first two fences."""
    _, _, after = text.partition("```")
    inside, end, _ = after.partition("```")
    return inside.removeprefix("json").strip() if end else ""


def _objects(text: str, most: int) -> Iterator[object]:
    """Those that can be read, from the first so many places at which one may begin. Raises `ValueError`."""
    start = text.find("{")
    left = MOST_READ + len(text)
    for _ in range(most):
        if start < 0:
            return
        try:
            value, end = _STRICT.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError) as error:
            end = start + 1
            left -= getattr(error, "pos", end) - start
        if left < 0:
            raise ValueError("too much that is no JSON")
        start = text.find("{", end)


def _reference(case: Case) -> object:
    for message in reversed(case.expected):
        if message.role == "assistant":
            content = message.content
            try:
                return found_json(content) if isinstance(content, str) else content
            except ValueError:
                return None
    return None


def _complete(look: Look, settings: Fields, expected: object) -> None:
    """A field without a value to compare with would be a free point."""
    lacking = [field.path for field in settings.fields if absent(at(expected, field.path))]
    if not settings.fields:
        raise Misfit(f"Grader {look.spec.name!r}: `fields` names none; list them: [{{path: …}}].")
    if lacking:
        whose = f"the expected output of case {look.case.id!r}"
        raise Misfit(f"Grader {look.spec.name!r}: {whose} has no {', '.join(map(repr, lacking))}.")


def _field(field: Field, expected: object, actual: object) -> Assertion | None:
    """None: optional, and not there."""
    wanted, got = at(expected, field.path), at(actual, field.path)
    if absent(wanted):
        return passed(f"{field.path}: nothing is expected of it")
    if absent(got):
        return failed(f"{field.path}: missing") if field.required else None
    match field.match:
        case "numeric_tolerance":
            right = _near(field, wanted, got)
        case "date":
            right = _same_day(field, wanted, got)
        case "exact":
            right = same(wanted, got)
    return passed(field.path) if right else failed(f"{field.path}: {got!r}, not {wanted!r}")


def _near(field: Field, wanted: object, got: object) -> bool:
    left, right = _number(wanted), _number(got)
    if left is None or right is None:
        return False
    allowed = field.tolerance * abs(left) if field.relative else field.tolerance
    return abs(left - right) <= allowed


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        return None  # Python would read 1_0 as ten
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _same_day(field: Field, wanted: object, got: object) -> bool:
    left, right = _day(field, wanted), _day(field, got)
    return left is not None and left == right


def _day(field: Field, value: object) -> date | None:
    for form in field.formats or _FORMATS:
        try:
            python = _PART.sub(lambda part: _PARTS[part[0]], form)
            return datetime.strptime(str(value).strip(), python).date()  # noqa: DTZ007 (a day)
        except ValueError:
            continue
    return None
