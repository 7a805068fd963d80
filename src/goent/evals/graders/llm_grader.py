"""Grades with a judge: the question, what the reply says, and the verdict."""

import json
import os
import re
import secrets
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.evals.eval_results import Assertion, JudgeUsage
from goent.evals.graders.composite_grader import aggregator_settings
from goent.evals.graders.findings import (
    GraderFinding,
    GraderInput,
    InvalidGrader,
    broken_finding,
    passed_share,
)
from goent.evals.graders.grader_kind import (
    GraderKind,
    GraderSettings,
    GraderTools,
    read_grader_settings,
)
from goent.evals.graders.json_values import is_array, is_object, json_equal
from goent.evals.graders.judge_prompt import (
    AGENT_ROLE,
    BEST_MARK,
    JudgeInstructions,
    RubricEntries,
    RubricItem,
    RubricMark,
    judge_question,
    judge_system_prompt,
    retry_question,
    rubric_finding,
    rubric_items,
    shorten,
)
from goent.evals.graders.target_judge import (
    Judge,
    JudgeFailed,
    Judgement,
    JudgeQuestion,
    named_judge,
    total_judgement,
)
from goent.evals.suites import EvalCase, GraderSpec
from goent.system.plain_files import read_beginning

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


MOST_TRIES = 2
Utf8Decoder = getincrementaldecoder("utf-8")  # drops a character that is cut at the end
LARGEST_PROMPT = 1024 * 1024
_PROMPT_ENDINGS = (".md", ".txt", ".prompt")


class RubricsSettings(GraderSettings, frozen=True, kw_only=True):
    """Settings of `rubrics`."""

    criteria: RubricEntries
    target: str | None = None
    model: str | None = None
    prompt: str = ""


class JudgeSettings(GraderSettings, frozen=True, kw_only=True):
    """`criteria` as a text replaces the case's own; as a list it is `rubrics`."""

    prompt: str = ""
    criteria: str | RubricEntries = ""
    rubrics: RubricEntries = ()
    target: str | None = None
    model: str | None = None


def check_judge(look: GraderInput) -> None:
    """Raises `InvalidGrader` for what would be wrong in every attempt."""
    settings, wording = _read_instructions(look.spec, compat=False)
    path = prompt_file(look.spec, look.case, settings.prompt)
    if path is not None and not os.access(path, os.R_OK):
        raise InvalidGrader(f"Grader {look.spec.name!r}: there is no prompt {str(path)!r}.")
    if not (wording.criteria or wording.items or settings.prompt or look.case.criteria):
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: nothing says what good looks like; "
            "give `criteria`, `rubrics` or a `prompt`."
        )


async def llm_grader(look: GraderInput, tools: GraderTools) -> GraderFinding:
    settings, wording = _read_instructions(look.spec, compat=look.compat)
    wording = replace(
        wording,
        criteria=wording.criteria or look.case.criteria,
        prompt=await _read_prompt(look, settings.prompt),
    )
    return await _ask_judge(tools.judge, look, wording)


async def llm_aggregator(look: GraderInput, tools: GraderTools) -> GraderFinding:
    """Combines the grades of a composite's members into one opinion."""
    prompt = await _read_prompt(look, aggregator_settings(look.spec).prompt)
    wording = JudgeInstructions(criteria=look.case.criteria, prompt=prompt)
    return await _ask_judge(tools.judge, look, wording)


def _read_instructions(
    spec: GraderSpec, *, compat: bool
) -> tuple[JudgeSettings, JudgeInstructions]:
    """Raises `InvalidGrader`. The prompt is still text, or the name of a file."""
    settings = read_grader_settings(spec, JudgeSettings)
    criteria = settings.criteria
    text, listed = (criteria, ()) if isinstance(criteria, str) else ("", criteria)
    items = rubric_items(spec, (*listed, *settings.rubrics), compat=compat)
    return settings, JudgeInstructions(criteria=text, prompt=settings.prompt, items=items)


def prompt_file(spec: GraderSpec, case: EvalCase, prompt: str) -> Path | None:
    """The file that a prompt names, relative to the grader's own file.

    A prompt with spaces is a sentence, even if it ends in a file name, unless it begins with `file://`.
    """
    name = prompt.removeprefix("file://")
    is_text = not prompt.endswith(_PROMPT_ENDINGS) or len(prompt.split()) > 1
    if "\0" in prompt or (name == prompt and is_text):
        return None
    written = spec.place.file or case.place.file
    return Path(written).parent / name


async def _read_prompt(look: GraderInput, prompt: str) -> str:
    path = prompt_file(look.spec, look.case, prompt)
    if path is None:
        return prompt
    try:
        content = await to_thread.run_sync(read_beginning, path, 4 * LARGEST_PROMPT)
        return Utf8Decoder().decode(content)[:LARGEST_PROMPT]
    except (OSError, UnicodeError) as error:
        raise InvalidGrader(f"Grader {look.spec.name!r}: prompt {str(path)!r}: {error}") from None


async def _ask_judge(judge: Judge, look: GraderInput, wording: JudgeInstructions) -> GraderFinding:
    """An unusable reply counts against the attempt; a judge that is unavailable does not.

    Otherwise an answer that confuses its judge would disappear from the statistics.
    """
    word = secrets.token_hex(8)
    prompt = judge_question(look, wording, word)
    system, name = judge_system_prompt(wording, word), named_judge(look.spec)
    replies: list[Judgement] = []
    why = ""
    for _ in range(MOST_TRIES):
        question = JudgeQuestion(
            judge=name,
            system=system,
            prompt=retry_question(prompt, why) if why else prompt,
            case_id=look.case.id,
        )
        try:
            replies.append(await judge(question))
        except GoentError as error:
            if isinstance(error, JudgeFailed) and error.spent:
                replies.append(error.spent)
            failed = broken_finding(str(error), error="" if look.compat else str(error))
            return _with_usage(replies, failed)
        try:
            return _with_usage(replies, await _read_in_thread(replies[-1].text, look, wording))
        except UnusableReply as error:
            why = str(error)
    return _with_usage(replies, _unusable_finding(replies[-1], why, look))


async def _read_in_thread(
    reply: str, look: GraderInput, wording: JudgeInstructions
) -> GraderFinding:
    """Raises `UnusableReply`. In a thread: an agent controls how much the reply is compared with."""
    read = partial(
        read_reply, reply, evidence=_agent_outputs(look), items=wording.items, compat=look.compat
    )
    return await to_thread.run_sync(read)


def _agent_outputs(look: GraderInput) -> tuple[object, ...]:
    """What the judge is shown of the agent's own words, earlier turns included."""
    trace = look.trace
    earlier = [said.text for said in look.case.input if said.role == AGENT_ROLE]
    calls = [part for _, call in trace.all_calls for part in (call.input, call.output)]
    members: object = msgspec.to_builtins(look.members)
    return (trace.answer, trace.file_changes, *earlier, *calls, members)


def _unusable_finding(last: Judgement, why: str, look: GraderInput) -> GraderFinding:
    text = f"The judge {last.by!r} was asked {MOST_TRIES} times, and its reply could not be used: {why}"
    note = Assertion(text=text, passed=False, evidence=last.text[-500:])
    verdict = "skip" if look.compat else "fail"
    return GraderFinding(score=0.0, verdict=verdict, assertions=(note,), broken=True)


def _with_usage(replies: Sequence[Judgement], found: GraderFinding) -> GraderFinding:
    if not replies:
        return found
    total = total_judgement(replies)
    judging = JudgeUsage(
        by=total.by, times=len(replies), usage=total.usage, cost_usd=total.cost_usd
    )
    return replace(found, judging=judging)


JUDGE_GRADERS = (
    GraderKind(
        name="llm-grader",
        settings=JudgeSettings,
        aliases=("llm-judge", "llm", "llm-rubric"),
        ask=llm_grader,
        combine=llm_aggregator,
        validate=check_judge,
        is_judged=True,
        score="what a judge says",
    ),
    GraderKind(
        name="rubrics",
        settings=RubricsSettings,
        ask=llm_grader,
        validate=check_judge,
        is_judged=True,
        score="what a judge says",
    ),
)
