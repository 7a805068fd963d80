"""Does the answer say what it should? Comparisons of text; each is all or nothing."""

from collections.abc import Callable, Sequence
from typing import Final

from goent.evals.graders.findings import Check, Finding, Look, Misfit, all_of, failed, passed
from goent.evals.graders.javascript import compiled
from goent.evals.graders.patterns import is_found
from goent.evals.graders.settings import Nothing, OneText, Pattern, SomeTexts, read
from goent.evals.graders.values import json_value

SHOWN: Final = 100  # characters of an answer that did not fit


def one_text(verb: str, negation: str, holds: Callable[[str, str], bool]) -> Check:
    """`verb` and `negation` are what is said of an answer that fits, and of one that does not."""

    def check(look: Look) -> Finding:
        value = read(look.spec, OneText).value
        _something(look, (value,))
        if holds(look.trace.answer, value):
            return all_of([passed(f"The answer {verb} {value!r}")])
        it_is = _shown(look.trace.answer, from_end=holds is _ends)
        return all_of([failed(f"The answer {negation} {value!r}; it is {it_is}")])

    return check


def equals(look: Look) -> Finding:
    value = read(look.spec, OneText).value
    if look.trace.answer.strip() == value.strip():
        return all_of([passed(f"The answer is {value!r}")])
    return all_of([failed(f"Expected {value!r}, got {_shown(look.trace.answer)}")])


def some_texts(*, every: bool, fold: bool) -> Check:
    def check(look: Look) -> Finding:
        values = read(look.spec, SomeTexts).value
        _something(look, values)
        contains = _icontains if fold else _contains
        found = [value for value in values if contains(look.trace.answer, value)]
        missing = [value for value in values if value not in found]
        fits = not missing if every else bool(found)
        text = f"Of {list(values)!r} the answer lacks {missing!r}"
        if fits:
            return all_of([passed(text)])
        return all_of([failed(f"{text}; it is {_shown(look.trace.answer)}")])

    return check


def _shown(answer: str, *, from_end: bool = False) -> str:
    """The answer, or, of a long one, the end that was looked at."""
    answer = answer.strip()
    if len(answer) <= SHOWN:
        return repr(answer)
    return f"…{answer[-SHOWN:]!r}" if from_end else f"{answer[:SHOWN]!r}…"


def _something(look: Look, values: Sequence[str]) -> None:
    """Raises `Misfit` for what every answer contains."""
    if not look.compat and not (values and all(values)):
        raise Misfit(
            f"Grader {look.spec.name!r} ({look.spec.type}): an empty text is in every answer; "
            "give a `value` to look for."
        )


def _contains(answer: str, value: str) -> bool:
    return value in answer


def _icontains(answer: str, value: str) -> bool:
    return value.lower() in answer.lower()


def regex(look: Look) -> Finding:
    settings = read(look.spec, Pattern)
    pattern = compiled(settings.value, settings.flags)
    written = f"/{settings.value}/{settings.flags}"
    if is_found(pattern, look.trace.answer):
        return all_of([passed(f"The answer matches {written}")])
    it_is = _shown(look.trace.answer)
    return all_of([failed(f"The answer does not match {written}; it is {it_is}")])


def is_json(look: Look) -> Finding:
    read(look.spec, Nothing)
    try:
        json_value(look.trace.answer)
    except ValueError as error:
        return all_of(
            [failed(f"The answer is no JSON; it is {_shown(look.trace.answer)}", str(error))]
        )
    return all_of([passed("The answer is JSON")])


def _starts(answer: str, value: str) -> bool:
    return answer.strip().startswith(value.strip())


def _ends(answer: str, value: str) -> bool:
    return answer.strip().endswith(value.strip())


TEXTS: dict[str, Check] = {
    "contains": one_text("contains", "lacks", _contains),
    "icontains": one_text("contains, in any case,", "lacks, in any case,", _icontains),
    "equals": equals,
    "starts-with": one_text("starts with", "does not start with", _starts),
    "ends-with": one_text("ends with", "does not end with", _ends),
    "contains-any": some_texts(every=False, fold=False),
    "contains-all": some_texts(every=True, fold=False),
    "icontains-any": some_texts(every=False, fold=True),
    "icontains-all": some_texts(every=True, fold=True),
    "regex": regex,
    "is-json": is_json,
}
