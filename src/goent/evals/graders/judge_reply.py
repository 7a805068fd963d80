"""Reads a judge's reply: its JSON, told apart from JSON that it quotes from the evidence."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from goent.domain.errors import GoentError
from goent.evals.eval_results import Assertion
from goent.evals.graders.findings import GraderFinding, passed_share
from goent.evals.graders.json_values import is_array, is_object, json_equal
from goent.evals.graders.judge_prompt import (
    BEST_MARK,
    RubricItem,
    RubricMark,
    rubric_finding,
    shorten,
)

DEEPEST_NESTED_TEXT = 20  # texts in objects in texts
LONGEST_REPLY = 200_000  # characters of a reply
MOST_OBJECTS = 50  # objects in it
_BRACED = re.compile(r"\{++([^{}\":]*+)\}++")  # possessive: it takes as long as the text is
_FENCE = "```"


class UnusableReply(GoentError):
    """The reply has the wrong form; the judge is shown the message when it is asked again."""


class _Claim(Struct, frozen=True, kw_only=True):
    text: str
    passed: bool
    evidence: str | None = None


class _CheckReply(Struct, frozen=True, kw_only=True):
    id: str | int
    satisfied: bool | None = None
    score: float | None = None
    reasoning: str | None = None


class _JudgeReply(Struct, frozen=True, kw_only=True):
    score: float | None = None
    assertions: tuple[_Claim, ...] | None = None
    hits: tuple[str, ...] | None = None
    misses: tuple[str, ...] | None = None
    checks: tuple[_CheckReply, ...] | None = None
    reasoning: str | None = None
    overall_reasoning: str | None = None


def read_reply(
    text: str, *, evidence: Sequence[object], items: Sequence[RubricItem], compat: bool
) -> GraderFinding:
    """Raises `UnusableReply`. An object quoted from the evidence is not a verdict.

    Nor are several that disagree: which is the judge's own cannot be told.
    """
    objections: list[str] = []
    fitting: list[GraderFinding] = []
    for reply in _reply_objects(text, evidence):
        try:
            fitting.append(_read_object(reply, items, compat=compat))
        except (msgspec.DecodeError, UnicodeError, RecursionError, UnusableReply) as error:
            objections.append(str(error))
    if not fitting:
        raise UnusableReply(objections[-1] if objections else "it holds no JSON object of your own")
    if len({(found.score, found.verdict) for found in fitting}) > 1:
        raise UnusableReply(f"it holds {len(fitting)} JSON objects that disagree")
    return fitting[-1]


def _read_object(reply: str, items: Sequence[RubricItem], *, compat: bool) -> GraderFinding:
    parsed = msgspec.json.decode(reply.encode(), type=_JudgeReply)
    found = _checks_finding(parsed, items, compat=compat) if items else _opinion_finding(parsed)
    said = parsed.overall_reasoning or parsed.reasoning
    return msgspec.structs.replace(found, details={"reasoning": said} if said else None)


def _reply_objects(text: str, evidence: Sequence[object]) -> list[str]:
    """The reply if it is one object; otherwise all objects in it but those of the evidence."""
    if len(text) > LONGEST_REPLY:
        raise UnusableReply(f"it has more than {LONGEST_REPLY} characters")
    try:
        found = list(islice(_json_objects(text), MOST_OBJECTS + 1))
        if len(found) > MOST_OBJECTS:
            raise UnusableReply(f"it holds more than {MOST_OBJECTS} JSON objects")
        if len(found) == 1 and found[0][0] == _strip_fence(text):
            return [found[0][0]]
        theirs = list(_evidence_objects(evidence)) if found else []
        return [own for own, value in found if not any(json_equal(value, one) for one in theirs)]
    except RecursionError:
        raise UnusableReply("it holds no JSON object that can be read: nested too deeply") from None


def _json_objects(text: str) -> Iterator[tuple[str, object]]:
    """Raises `UnusableReply` for an object that cannot be read: it may hold quoted ones."""
    decoder = json.JSONDecoder()
    end = 0
    while (start := text.find("{", end)) >= 0:
        braced = _BRACED.match(text, start)
        if braced and braced[1].strip():  # such as {this}
            end = braced.end()
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except ValueError as error:
            raise UnusableReply(f"it holds no JSON object that can be read: {error}") from None
        yield text[start:end], value


def _strip_fence(text: str) -> str:
    text = text.strip()
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inside = text[len(_FENCE) : -len(_FENCE)]
    return (inside[4:] if inside[:4].lower() == "json" else inside).strip()


def _opinion_finding(reply: _JudgeReply) -> GraderFinding:
    claims = (
        *(
            Assertion(text=one.text, passed=one.passed, evidence=one.evidence or "")
            for one in reply.assertions or ()
        ),
        *(Assertion(text=text, passed=True) for text in reply.hits or ()),
        *(Assertion(text=text, passed=False) for text in reply.misses or ()),
    )
    score = reply.score
    if score is None:
        if not claims:
            raise UnusableReply("it has neither `score` nor `assertions`")
        score = passed_share(claims)
    if not 0 <= score <= 1:
        raise UnusableReply(f"`score` must be from 0 to 1, not {score:g}")
    return GraderFinding(score=score, assertions=claims)


def _checks_finding(
    reply: _JudgeReply, items: Sequence[RubricItem], *, compat: bool
) -> GraderFinding:
    if reply.checks is None:
        raise UnusableReply("it has no `checks`")
    known = {item.id: item for item in items}
    marks: dict[str, RubricMark] = {}
    for check in reply.checks:
        item = known.get(str(check.id))
        if item is None:
            continue
        if item.id in marks and not compat:
            raise UnusableReply(f"`checks` has {item.id!r} twice")
        marks[item.id] = RubricMark(share=_mark_share(item, check), reason=check.reasoning or "")
    if (missing := sorted(known.keys() - marks.keys())) and not compat:
        raise UnusableReply(f"`checks` lacks {missing!r}")
    return rubric_finding(items, marks, compat=compat)


def _mark_share(item: RubricItem, check: _CheckReply) -> float:
    if not item.ranges:
        if check.satisfied is None:
            raise UnusableReply(f"the check of {item.id!r} has no `satisfied`")
        return float(check.satisfied)
    if check.score is None or not 0 <= check.score <= BEST_MARK:
        raise UnusableReply(f"the check of {item.id!r} needs a `score` from 0 to {BEST_MARK:g}")
    return check.score / BEST_MARK


def _evidence_objects(value: object) -> Iterator[Mapping[str, object]]:
    """All JSON objects in a value, at every depth and in texts; slow for large evidence."""
    queue = [(value, 0)]
    while queue:
        one, depth = queue.pop()
        if isinstance(one, str):
            if depth < DEEPEST_NESTED_TEXT:
                queue += [(part, depth + 1) for part in _json_values_in(shorten(one))]
        elif is_object(one):
            yield one
            queue += [(part, depth) for part in one.values()]
        elif is_array(one):
            queue += [(part, depth) for part in one]


def _json_values_in(text: str) -> Iterator[object]:
    """Also those inside of text that is not JSON: a quotation may begin anywhere."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
