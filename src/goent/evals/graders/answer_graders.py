r"""Grades the answer: its text, JavaScript regular expressions, and the fields of its JSON.

There `$` is the very end, `\d`, `\w` and `\b` know ASCII alone, a dot stops at every end of a line, and
groups are named without a P.

Some patterns take longer than anybody lives to find that they do not fit, if the text is made for it, and
the text is an agent's. A search is interrupted after so much time of the processor.
"""

import json
import math
import re
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from types import FrameType
from typing import Final

from goent.evals.eval_results import Assertion
from goent.evals.graders.findings import (
    GraderCheck,
    GraderFinding,
    GraderInput,
    InvalidGrader,
    all_or_nothing,
    failed_assertion,
    passed_assertion,
)
from goent.evals.graders.grader_settings import (
    ExpectedField,
    FieldSettings,
    NoSettings,
    RegexSettings,
    TextListSettings,
    TextSettings,
    read_grader_settings,
)
from goent.evals.graders.json_values import (
    is_absent,
    json_equal,
    json_value,
    reject_constant,
    value_at,
)
from goent.evals.suites import EvalCase

_REGEX_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_IDLE_FLAGS: Final = frozenset("dguvy")  # they change nothing about whether it matches
_TOKEN: Final = re.compile(
    r"\\u\{[0-9a-fA-F]+\}|\\k<\w+>|\\.|\[\^?\]|\[(?:\\.|[^\]\\])*\]|\$|\.|\(\?<(?![=!])", re.DOTALL
)
_CLASS_TOKEN: Final = re.compile(r"\\u\{[0-9a-fA-F]+\}|\\.|[\[&|~]", re.DOTALL)
_TOKENS: Final = {
    "(?<": "(?P<",
    "[]": "(?!)",
    "[^]": r"[\s\S]",
    **{token: f"(?a:{token})" for token in (r"\d", r"\D", r"\w", r"\W", r"\b", r"\B")},
}
_CLASS_MEMBERS: Final = {
    r"\d": "0-9",
    r"\D": r"\x00-/:-\U0010ffff",
    r"\w": "A-Za-z0-9_",
    r"\W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    **{sign: f"\\{sign}" for sign in "[&|~"},  # Python may give them a meaning one day
}


def compile_javascript(source: str, flags: str) -> re.Pattern[str]:
    """Raises `InvalidGrader`."""
    if strange := set(flags) - _REGEX_FLAGS.keys() - _IDLE_FLAGS:
        raise InvalidGrader(f"{sorted(strange)!r} are no flags of a regular expression.")
    tokens = {
        **_TOKENS,
        "$": "$" if "m" in flags else r"\Z",
        ".": "." if "s" in flags else r"[^\n\r\u2028\u2029]",
    }
    bits = sum((_REGEX_FLAGS[flag] for flag in set(flags) & _REGEX_FLAGS.keys()), start=re.NOFLAG)
    try:
        return re.compile(_TOKEN.sub(lambda found: _python_token(found[0], tokens), source), bits)
    except (re.error, OverflowError, ValueError) as error:
        raise InvalidGrader(f"{source!r} is no regular expression: {error}.") from None


def _python_token(token: str, tokens: dict[str, str]) -> str:
    if token in tokens:
        return tokens[token]
    if token.startswith("["):
        return "[" + _CLASS_TOKEN.sub(lambda found: _class_member(found[0]), token[1:-1]) + "]"
    if token.startswith(r"\k<"):
        return f"(?P={token[3:-1]})"
    return _character(token)


def _class_member(token: str) -> str:
    return _CLASS_MEMBERS.get(token) or _character(token)


def _character(token: str) -> str:
    return re.escape(chr(int(token[3:-1], 16))) if token.startswith(r"\u{") else token


SEARCH_LIMIT_S: Final = 1.0


def pattern_found(pattern: re.Pattern[str], text: str) -> bool:
    """Raises `InvalidGrader` if that cannot be said in time."""
    with _interrupted_after(SEARCH_LIMIT_S, pattern.pattern):
        return pattern.search(text) is not None


@contextmanager
def _interrupted_after(seconds: float, pattern: str) -> Generator[None]:
    """By a signal, for which Python looks while it searches; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise InvalidGrader(
            f"{pattern!r} needs more than {seconds:g} s for this text; make it simpler."
        )

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


SHOWN_ANSWER: Final = 100  # characters of an answer that did not fit


def text_check(verb: str, negation: str, holds: Callable[[str, str], bool]) -> GraderCheck:
    """`verb` and `negation` are what is said of an answer that fits, and of one that does not."""

    def check(look: GraderInput) -> GraderFinding:
        value = read_grader_settings(look.spec, TextSettings).value
        _check_values(look, (value,))
        if holds(look.trace.answer, value):
            return all_or_nothing([passed_assertion(f"The answer {verb} {value!r}")])
        it_is = _shown(look.trace.answer, from_end=holds is _ends)
        return all_or_nothing([failed_assertion(f"The answer {negation} {value!r}; it is {it_is}")])

    return check


def equals(look: GraderInput) -> GraderFinding:
    value = read_grader_settings(look.spec, TextSettings).value
    if look.trace.answer.strip() == value.strip():
        return all_or_nothing([passed_assertion(f"The answer is {value!r}")])
    return all_or_nothing(
        [failed_assertion(f"Expected {value!r}, got {_shown(look.trace.answer)}")]
    )


def text_list_check(*, every: bool, fold: bool) -> GraderCheck:
    def check(look: GraderInput) -> GraderFinding:
        values = read_grader_settings(look.spec, TextListSettings).value
        _check_values(look, values)
        contains = _icontains if fold else _contains
        found = [value for value in values if contains(look.trace.answer, value)]
        missing = [value for value in values if value not in found]
        fits = not missing if every else bool(found)
        text = f"Of {list(values)!r} the answer lacks {missing!r}"
        if fits:
            return all_or_nothing([passed_assertion(text)])
        return all_or_nothing([failed_assertion(f"{text}; it is {_shown(look.trace.answer)}")])

    return check


def _shown(answer: str, *, from_end: bool = False) -> str:
    """The answer, or, of a long one, the end that was looked at."""
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


def regex(look: GraderInput) -> GraderFinding:
    settings = read_grader_settings(look.spec, RegexSettings)
    pattern = compile_javascript(settings.value, settings.flags)
    written = f"/{settings.value}/{settings.flags}"
    if pattern_found(pattern, look.trace.answer):
        return all_or_nothing([passed_assertion(f"The answer matches {written}")])
    it_is = _shown(look.trace.answer)
    return all_or_nothing([failed_assertion(f"The answer does not match {written}; it is {it_is}")])


def is_json(look: GraderInput) -> GraderFinding:
    read_grader_settings(look.spec, NoSettings)
    try:
        json_value(look.trace.answer)
    except ValueError as error:
        return all_or_nothing(
            [
                failed_assertion(
                    f"The answer is no JSON; it is {_shown(look.trace.answer)}", str(error)
                )
            ]
        )
    return all_or_nothing([passed_assertion("The answer is JSON")])


def _starts(answer: str, value: str) -> bool:
    return answer.strip().startswith(value.strip())


def _ends(answer: str, value: str) -> bool:
    return answer.strip().endswith(value.strip())


TEXT_CHECKS: dict[str, GraderCheck] = {
    "contains": text_check("contains", "lacks", _contains),
    "icontains": text_check("contains, in any case,", "lacks, in any case,", _icontains),
    "equals": equals,
    "starts-with": text_check("starts with", "does not start with", _starts),
    "ends-with": text_check("ends with", "does not end with", _ends),
    "contains-any": text_list_check(every=False, fold=False),
    "contains-all": text_list_check(every=True, fold=False),
    "icontains-any": text_list_check(every=False, fold=True),
    "icontains-all": text_list_check(every=True, fold=True),
    "regex": regex,
    "is-json": is_json,
}

MOST_STARTS = 500  # places at which an object is looked for
MOST_READ = 1_000_000  # characters that are read in vain, beside once the whole
_NO_JSON = "The answer holds no JSON, or several objects that differ"
_STRICT_DECODER = json.JSONDecoder(parse_constant=reject_constant)
_DIGITS = re.compile(r"[-+\d.eE\s]+", re.ASCII)
_DATE_FORMATS = ("YYYY-MM-DD", "DD-MMM-YYYY", "MM/DD/YYYY", "DD/MM/YYYY", "YYYY/MM/DD")
_DATE_PARTS = {"YYYY": "%Y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "DD": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}  # fmt: skip
_DATE_PART = re.compile("|".join(_DATE_PARTS))


def field_accuracy(look: GraderInput) -> GraderFinding:
    settings = read_grader_settings(look.spec, FieldSettings)
    expected = _reference_value(look.case)
    if not look.compat:
        _check_reference(look, settings, expected)
    try:
        actual = find_json(look.trace.answer, compat=look.compat)
    except ValueError:
        return GraderFinding(score=0.0, assertions=(failed_assertion(_NO_JSON),))
    checks = [(field, _field_assertion(field, expected, actual)) for field in settings.fields]
    counted = [(field, check) for field, check in checks if check is not None]
    notes = tuple(check or passed_assertion(f"{field.path}: left out") for field, check in checks)
    total = sum(field.weight for field, _ in counted)
    hits = sum(field.weight for field, check in counted if check.passed)
    score = hits / total if total > 0 else 0.0
    if settings.aggregation == "all_or_nothing":
        score = float(bool(counted) and all(check.passed for _, check in counted))
    return GraderFinding(score=score, assertions=notes)


def find_json(text: str, *, compat: bool = False) -> object:
    """The text itself, what stands between fences, or the one object in it; else `ValueError`.

    AgentV takes the first object, whatever comes after; here several that differ are none.
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
    """What stands between the first two fences."""
    _, _, after = text.partition("```")
    inside, end, _ = after.partition("```")
    return inside.removeprefix("json").strip() if end else ""


def _json_objects(text: str, most: int) -> Iterator[object]:
    """Those that can be read, from the first so many places at which one may begin. Raises `ValueError`."""
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
            raise ValueError("too much that is no JSON")
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
    """A field without a value to compare with would be a free point."""
    lacking = [field.path for field in settings.fields if is_absent(value_at(expected, field.path))]
    if not settings.fields:
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: `fields` names none; list them: [{{path: …}}]."
        )
    if lacking:
        whose = f"the expected output of case {look.case.id!r}"
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: {whose} has no {', '.join(map(repr, lacking))}."
        )


def _field_assertion(field: ExpectedField, expected: object, actual: object) -> Assertion | None:
    """None: optional, and not there."""
    wanted, got = value_at(expected, field.path), value_at(actual, field.path)
    if is_absent(wanted):
        return passed_assertion(f"{field.path}: nothing is expected of it")
    if is_absent(got):
        return failed_assertion(f"{field.path}: missing") if field.required else None
    match field.match:
        case "numeric_tolerance":
            right = _near(field, wanted, got)
        case "date":
            right = _same_day(field, wanted, got)
        case "exact":
            right = json_equal(wanted, got)
    return (
        passed_assertion(field.path)
        if right
        else failed_assertion(f"{field.path}: {got!r}, not {wanted!r}")
    )


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
