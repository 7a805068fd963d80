"""Grades the answer: its text, and the fields of its JSON."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import Final, Literal

from goent.evals.eval_results import Assertion
from goent.evals.graders.findings import GraderFinding, GraderInput, InvalidGrader, single_check
from goent.evals.graders.grader_kind import (
    GraderCheck,
    GraderKind,
    GraderSettings,
    read_grader_settings,
)
from goent.evals.graders.javascript_regex import compile_javascript, pattern_found
from goent.evals.graders.json_values import (
    is_absent,
    json_equal,
    json_value,
    reject_constant,
    value_at,
)
from goent.evals.suites import EvalCase

SHOWN_ANSWER: Final = 100  # characters of an answer that did not fit
MOST_STARTS = 500  # places at which an object is looked for
MOST_READ = 1_000_000  # characters read in vain, beyond the whole text once
_NO_JSON = "The answer holds no JSON, or several objects that differ"
_STRICT_DECODER = json.JSONDecoder(parse_constant=reject_constant)
_DIGITS = re.compile(r"[-+\d.eE\s]+", re.ASCII)
_DATE_FORMATS = ("YYYY-MM-DD", "DD-MMM-YYYY", "MM/DD/YYYY", "DD/MM/YYYY", "YYYY/MM/DD")
_DATE_PARTS = {"YYYY": "%Y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "DD": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}  # fmt: skip
_DATE_PART = re.compile("|".join(_DATE_PARTS))


class TextSettings(GraderSettings, frozen=True, kw_only=True):
    """What the answer is compared with."""

    value: str


class TextListSettings(GraderSettings, frozen=True, kw_only=True):
    """What the answer should contain, all or any."""

    value: tuple[str, ...]


class RegexSettings(GraderSettings, frozen=True, kw_only=True):
    """A regular expression as JavaScript writes it."""

    value: str
    flags: str = ""


class NoSettings(GraderSettings, frozen=True, kw_only=True):
    """There is nothing to set."""


class ExpectedField(GraderSettings, frozen=True, kw_only=True):
    """One value, at a path such as `a.b[0].c`."""

    path: str
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    required: bool = True
    weight: float = 1.0
    tolerance: float = 0.0
    relative: bool = False
    formats: tuple[str, ...] = ()


class FieldSettings(GraderSettings, frozen=True, kw_only=True):
    """Settings of `field-accuracy`."""

    fields: tuple[ExpectedField, ...]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"


def equals(look: GraderInput) -> GraderFinding:
    value = read_grader_settings(look.spec, TextSettings).value
    if look.trace.answer.strip() == value.strip():
        return single_check(f"The answer is {value!r}", passed=True)
    return single_check(f"Expected {value!r}, got {_shown(look.trace.answer)}", passed=False)


def regex(look: GraderInput) -> GraderFinding:
    settings = read_grader_settings(look.spec, RegexSettings)
    pattern = compile_javascript(settings.value, settings.flags)
    written = f"/{settings.value}/{settings.flags}"
    if pattern_found(pattern, look.trace.answer):
        return single_check(f"The answer matches {written}", passed=True)
    it_is = _shown(look.trace.answer)
    return single_check(f"The answer does not match {written}; it is {it_is}", passed=False)


def is_json(look: GraderInput) -> GraderFinding:
    read_grader_settings(look.spec, NoSettings)
    try:
        json_value(look.trace.answer)
    except ValueError as error:
        text = f"The answer is not JSON; it is {_shown(look.trace.answer)}"
        return single_check(text, passed=False, evidence=str(error))
    return single_check("The answer is JSON", passed=True)


def _text_check(verb: str, negation: str, holds: Callable[[str, str], bool]) -> GraderCheck:
    """`verb` and `negation` describe an answer that fits, and one that does not."""

    def check(look: GraderInput) -> GraderFinding:
        value = read_grader_settings(look.spec, TextSettings).value
        _check_values(look, (value,))
        if holds(look.trace.answer, value):
            return single_check(f"The answer {verb} {value!r}", passed=True)
        it_is = _shown(look.trace.answer, from_end=holds is _ends)
        return single_check(f"The answer {negation} {value!r}; it is {it_is}", passed=False)

    return check


def _text_list_check(quantify: Callable[[list[bool]], bool], *, fold: bool) -> GraderCheck:
    def check(look: GraderInput) -> GraderFinding:
        values = read_grader_settings(look.spec, TextListSettings).value
        _check_values(look, values)
        contains = _icontains if fold else _contains
        found = [contains(look.trace.answer, value) for value in values]
        missing = [value for value, there in zip(values, found, strict=True) if not there]
        text = f"Of {list(values)!r} the answer lacks {missing!r}"
        if quantify(found):
            return single_check(text, passed=True)
        return single_check(f"{text}; it is {_shown(look.trace.answer)}", passed=False)

    return check


def _shown(answer: str, *, from_end: bool = False) -> str:
    """The answer, or the end of a long one that was compared."""
    answer = answer.strip()
    if len(answer) <= SHOWN_ANSWER:
        return repr(answer)
    return f"…{answer[-SHOWN_ANSWER:]!r}" if from_end else f"{answer[:SHOWN_ANSWER]!r}…"


def _check_values(look: GraderInput, values: Sequence[str]) -> None:
    """Raises `InvalidGrader` for what every answer contains."""
    if not look.compat and not (values and all(values)):
        raise InvalidGrader(
            f"Grader {look.spec.name!r} ({look.spec.type}): an empty text is in every answer; "
            "give a `value` to look for."
        )


def _contains(answer: str, value: str) -> bool:
    return value in answer


def _icontains(answer: str, value: str) -> bool:
    return value.lower() in answer.lower()


def _starts(answer: str, value: str) -> bool:
    return answer.strip().startswith(value.strip())


def _ends(answer: str, value: str) -> bool:
    return answer.strip().endswith(value.strip())


def field_accuracy(look: GraderInput) -> GraderFinding:
    settings = read_grader_settings(look.spec, FieldSettings)
    expected = _reference_value(look.case)
    if not look.compat:
        _check_reference(look, settings, expected)
    try:
        actual = find_json(look.trace.answer, compat=look.compat)
    except ValueError:
        return single_check(_NO_JSON, passed=False)
    checks = [(field, _field_assertion(field, expected, actual)) for field in settings.fields]
    counted = [(field, check) for field, check in checks if check is not None]
    notes = tuple(
        check or Assertion(text=f"{field.path}: left out", passed=True) for field, check in checks
    )
    total = sum(field.weight for field, _ in counted)
    hits = sum(field.weight for field, check in counted if check.passed)
    score = hits / total if total > 0 else 0.0
    if settings.aggregation == "all_or_nothing":
        score = float(bool(counted) and all(check.passed for _, check in counted))
    return GraderFinding(score=score, assertions=notes)


def find_json(text: str, *, compat: bool = False) -> object:
    """The text itself, what is between fences, or the one object in it; else `ValueError`.

    AgentV takes the first object, whatever comes after; here several that differ are an error.
    """
    for whole in (text, _fenced_text(text)):
        try:
            return json_value(whole)
        except ValueError:
            continue
    try:
        values = list(_json_objects(text, 1 if compat else MOST_STARTS))
        if values and all(json_equal(values[0], other) for other in values):
            return values[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None
    raise ValueError("not one object")


def _fenced_text(text: str) -> str:
    _, _, after = text.partition("```")
    inside, end, _ = after.partition("```")
    return inside.removeprefix("json").strip() if end else ""


def _json_objects(text: str, most: int) -> Iterator[object]:
    """The objects found at the first `most` opening braces. Raises `ValueError`."""
    start = text.find("{")
    left = MOST_READ + len(text)
    for _ in range(most):
        if start < 0:
            return
        try:
            value, end = _STRICT_DECODER.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError) as error:
            end = start + 1
            left -= getattr(error, "pos", end) - start
        if left < 0:
            raise ValueError("too much that is not JSON")
        start = text.find("{", end)


def _reference_value(case: EvalCase) -> object:
    for message in reversed(case.expected):
        if message.role == "assistant":
            content = message.content
            try:
                return find_json(content) if isinstance(content, str) else content
            except ValueError:
                return None
    return None


def _check_reference(look: GraderInput, settings: FieldSettings, expected: object) -> None:
    """Raises `InvalidGrader`: a field without a value to compare with would be a free point."""
    lacking = [field.path for field in settings.fields if is_absent(value_at(expected, field.path))]
    if not settings.fields:
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: `fields` is empty; list them: [{{path: …}}]."
        )
    if lacking:
        whose = f"the expected output of case {look.case.id!r}"
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: {whose} has no {', '.join(map(repr, lacking))}."
        )


def _field_assertion(field: ExpectedField, expected: object, actual: object) -> Assertion | None:
    """None: optional, and missing."""
    wanted, got = value_at(expected, field.path), value_at(actual, field.path)
    if is_absent(wanted):
        return Assertion(text=f"{field.path}: nothing is expected of it", passed=True)
    if is_absent(got):
        missing = Assertion(text=f"{field.path}: missing", passed=False)
        return missing if field.required else None
    match field.match:
        case "numeric_tolerance":
            right = _near(field, wanted, got)
        case "date":
            right = _same_day(field, wanted, got)
        case "exact":
            right = json_equal(wanted, got)
    text = field.path if right else f"{field.path}: {got!r}, not {wanted!r}"
    return Assertion(text=text, passed=right)


def _near(field: ExpectedField, wanted: object, got: object) -> bool:
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


def _same_day(field: ExpectedField, wanted: object, got: object) -> bool:
    left, right = _day(field, wanted), _day(field, got)
    return left is not None and left == right


def _day(field: ExpectedField, value: object) -> date | None:
    for form in field.formats or _DATE_FORMATS:
        try:
            python = _DATE_PART.sub(lambda part: _DATE_PARTS[part[0]], form)
            return datetime.strptime(str(value).strip(), python).date()  # noqa: DTZ007 (a day)
        except ValueError:
            continue
    return None


def _text_kind(
    name: str, check: GraderCheck, settings: type[GraderSettings] = TextSettings
) -> GraderKind:
    return GraderKind(name=name, settings=settings, check=check, score="1 or 0")


ANSWER_GRADERS = (
    _text_kind("contains", _text_check("contains", "lacks", _contains)),
    _text_kind("contains-any", _text_list_check(any, fold=False), TextListSettings),
    _text_kind("contains-all", _text_list_check(all, fold=False), TextListSettings),
    _text_kind(
        "icontains", _text_check("contains, in any case,", "lacks, in any case,", _icontains)
    ),
    _text_kind("icontains-any", _text_list_check(any, fold=True), TextListSettings),
    _text_kind("icontains-all", _text_list_check(all, fold=True), TextListSettings),
    _text_kind("starts-with", _text_check("starts with", "does not start with", _starts)),
    _text_kind("ends-with", _text_check("ends with", "does not end with", _ends)),
    _text_kind("equals", equals),
    _text_kind("regex", regex, RegexSettings),
    _text_kind("is-json", is_json, NoSettings),
    GraderKind(
        name="field-accuracy",
        settings=FieldSettings,
        check=field_accuracy,
        score="weighted share of fields",
    ),
)
