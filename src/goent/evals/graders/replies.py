"""What did the judge say? One JSON object, wherever it stands in his reply."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from goent.domain.errors import GoentError
from goent.evals.graders.evidence import objects_in
from goent.evals.graders.findings import Finding, share
from goent.evals.graders.rubrics import BEST, Item, Mark, come_to
from goent.evals.graders.values import same
from goent.evals.grades import Assertion

LONGEST = 200_000  # characters of a reply
MOST = 50  # objects in it
_BRACED = re.compile(r"\{++([^{}\":]*+)\}++")  # possessive: it takes as long as the text is
_FENCE = "```"


class Unfit(GoentError):
    """The reply is not what was asked for; the message says why, and is told to the judge."""


class _Claim(Struct, frozen=True, kw_only=True):
    text: str
    passed: bool
    evidence: str | None = None


class _Check(Struct, frozen=True, kw_only=True):
    id: str | int
    satisfied: bool | None = None
    score: float | None = None
    reasoning: str | None = None


class _Reply(Struct, frozen=True, kw_only=True):
    score: float | None = None
    assertions: tuple[_Claim, ...] | None = None
    hits: tuple[str, ...] | None = None
    misses: tuple[str, ...] | None = None
    checks: tuple[_Check, ...] | None = None
    reasoning: str | None = None
    overall_reasoning: str | None = None


def read_reply(
    text: str, *, evidence: Sequence[object], items: Sequence[Item], compat: bool
) -> Finding:
    """Raises `Unfit`. An object that is quoted from the evidence is no verdict.

    Neither is any where several disagree: which of them is the judge's own cannot be seen.
    """
    objections: list[str] = []
    fitting: list[Finding] = []
    for reply in _objects(text, evidence):
        try:
            fitting.append(_read(reply, items, compat=compat))
        except (msgspec.DecodeError, UnicodeError, RecursionError, Unfit) as error:
            objections.append(str(error))
    if not fitting:
        raise Unfit(objections[-1] if objections else "it holds no JSON object of your own")
    if len({(found.score, found.verdict) for found in fitting}) > 1:
        raise Unfit(f"it holds {len(fitting)} JSON objects that disagree")
    return fitting[-1]


def _read(reply: str, items: Sequence[Item], *, compat: bool) -> Finding:
    parsed = msgspec.json.decode(reply.encode(), type=_Reply)
    found = _marks(parsed, items, compat=compat) if items else _opinion(parsed)
    said = parsed.overall_reasoning or parsed.reasoning
    return msgspec.structs.replace(found, details={"reasoning": said} if said else None)


def _objects(text: str, evidence: Sequence[object]) -> list[str]:
    """The reply, if it is one object; else all that stand in it, without those of the evidence."""
    if len(text) > LONGEST:
        raise Unfit(f"it has more than {LONGEST} characters")
    try:
        found = list(islice(_written(text), MOST + 1))
        if len(found) > MOST:
            raise Unfit(f"it holds more than {MOST} JSON objects")
        if len(found) == 1 and found[0][0] == _unfenced(text):
            return [found[0][0]]
        theirs = list(objects_in(evidence)) if found else []
        return [own for own, value in found if not any(same(value, one) for one in theirs)]
    except RecursionError:
        raise Unfit("it holds no JSON object that can be read: nested too deeply") from None


def _written(text: str) -> Iterator[tuple[str, object]]:
    """Raises `Unfit`: inside an object that cannot be read, nobody knows who speaks."""
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
            raise Unfit(f"it holds no JSON object that can be read: {error}") from None
        yield text[start:end], value


def _unfenced(text: str) -> str:
    text = text.strip()
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inside = text[len(_FENCE) : -len(_FENCE)]
    return (inside[4:] if inside[:4].lower() == "json" else inside).strip()


def _opinion(reply: _Reply) -> Finding:
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
            raise Unfit("it has neither `score` nor `assertions`")
        score = share(claims)
    if not 0 <= score <= 1:
        raise Unfit(f"`score` must be from 0 to 1, not {score:g}")
    return Finding(score=score, assertions=claims)


def _marks(reply: _Reply, items: Sequence[Item], *, compat: bool) -> Finding:
    if reply.checks is None:
        raise Unfit("it has no `checks`")
    known = {item.id: item for item in items}
    marks: dict[str, Mark] = {}
    for check in reply.checks:
        item = known.get(str(check.id))
        if item is None:
            continue
        if item.id in marks and not compat:
            raise Unfit(f"`checks` speak of {item.id!r} twice")
        marks[item.id] = Mark(share=_share(item, check), reason=check.reasoning or "")
    if (missing := sorted(known.keys() - marks.keys())) and not compat:
        raise Unfit(f"`checks` do not speak of {missing!r}")
    return come_to(items, marks, compat=compat)


def _share(item: Item, check: _Check) -> float:
    if not item.ranges:
        if check.satisfied is None:
            raise Unfit(f"the check of {item.id!r} has no `satisfied`")
        return float(check.satisfied)
    if check.score is None or not 0 <= check.score <= BEST:
        raise Unfit(f"the check of {item.id!r} needs a `score` from 0 to {BEST:g}")
    return check.score / BEST
