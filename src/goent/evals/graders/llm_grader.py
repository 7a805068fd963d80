"""Grades by a judge: asks, retries once if the reply has the wrong form, and reads the reply."""

import json
import os
import re
import secrets
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct

from goent.domain.errors import GoentError
from goent.evals.eval_results import Assertion, JudgeUsage
from goent.evals.graders.findings import (
    AsyncGrader,
    GraderFinding,
    GraderInput,
    InvalidGrader,
    broken_finding,
    failed_assertion,
    passed_share,
)
from goent.evals.graders.grader_settings import (
    CompositeSettings,
    GraderSettings,
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


def agent_outputs(look: GraderInput) -> tuple[object, ...]:
    """All that a judge is shown of it: in a conversation also what it said before this turn."""
    trace = look.trace
    earlier = [said.text for said in look.case.input if said.role == AGENT_ROLE]
    calls = [part for _, call in trace.all_calls for part in (call.input, call.output)]
    members: object = msgspec.to_builtins(look.members)
    return (trace.answer, trace.file_changes, *earlier, *calls, members)


def json_objects_in(value: object) -> Iterator[Mapping[str, object]]:
    """At every depth, in texts too. It may take a while: a judge's reply waits for it, and nobody else."""
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, str):
            if depth < DEEPEST_NESTED_TEXT:
                waiting += [(part, depth + 1) for part in _json_values_in(shorten(one))]
        elif is_object(one):
            yield one
            waiting += [(part, depth) for part in one.values()]
        elif is_array(one):
            waiting += [(part, depth) for part in one]


def _json_values_in(text: str) -> Iterator[object]:
    """Also those inside of what is no JSON: who quotes may begin anywhere."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


LONGEST_REPLY = 200_000  # characters of a reply
MOST_OBJECTS = 50  # objects in it
_BRACED = re.compile(r"\{++([^{}\":]*+)\}++")  # possessive: it takes as long as the text is
_FENCE = "```"


class UnusableReply(GoentError):
    """The reply is not what was asked for; the message says why, and is told to the judge."""


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
    """Raises `UnusableReply`. An object that is quoted from the evidence is no verdict.

    Neither is any where several disagree: which of them is the judge's own cannot be seen.
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
    """The reply, if it is one object; else all that stand in it, without those of the evidence."""
    if len(text) > LONGEST_REPLY:
        raise UnusableReply(f"it has more than {LONGEST_REPLY} characters")
    try:
        found = list(islice(_json_objects(text), MOST_OBJECTS + 1))
        if len(found) > MOST_OBJECTS:
            raise UnusableReply(f"it holds more than {MOST_OBJECTS} JSON objects")
        if len(found) == 1 and found[0][0] == _strip_fence(text):
            return [found[0][0]]
        theirs = list(json_objects_in(evidence)) if found else []
        return [own for own, value in found if not any(json_equal(value, one) for one in theirs)]
    except RecursionError:
        raise UnusableReply("it holds no JSON object that can be read: nested too deeply") from None


def _json_objects(text: str) -> Iterator[tuple[str, object]]:
    """Raises `UnusableReply`: inside an object that cannot be read, nobody knows who speaks."""
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
            raise UnusableReply(f"`checks` speak of {item.id!r} twice")
        marks[item.id] = RubricMark(share=_mark_share(item, check), reason=check.reasoning or "")
    if (missing := sorted(known.keys() - marks.keys())) and not compat:
        raise UnusableReply(f"`checks` do not speak of {missing!r}")
    return rubric_finding(items, marks, compat=compat)


def _mark_share(item: RubricItem, check: _CheckReply) -> float:
    if not item.ranges:
        if check.satisfied is None:
            raise UnusableReply(f"the check of {item.id!r} has no `satisfied`")
        return float(check.satisfied)
    if check.score is None or not 0 <= check.score <= BEST_MARK:
        raise UnusableReply(f"the check of {item.id!r} needs a `score` from 0 to {BEST_MARK:g}")
    return check.score / BEST_MARK


MOST_TRIES = 2
Utf8Decoder = getincrementaldecoder("utf-8")  # a letter that is cut at the end is left out
LARGEST_PROMPT = 1024 * 1024
_PROMPT_ENDINGS = (".md", ".txt", ".prompt")


class JudgeSettings(GraderSettings, frozen=True, kw_only=True):
    """`criteria` as a text stand for those of the case; as a list they are `rubrics`."""

    prompt: str = ""
    criteria: str | RubricEntries = ""
    rubrics: RubricEntries = ()
    target: str | None = None
    model: str | None = None


def read_judge_settings(
    spec: GraderSpec, *, compat: bool
) -> tuple[JudgeSettings, JudgeInstructions]:
    """Raises `InvalidGrader`. The prompt is as it was written: text, or the name of a file."""
    told = read_grader_settings(spec, JudgeSettings)
    listed = told.criteria if isinstance(told.criteria, tuple) else ()
    items = rubric_items(spec, (*listed, *told.rubrics), compat=compat)
    text = told.criteria if isinstance(told.criteria, str) else ""
    return told, JudgeInstructions(criteria=text, prompt=told.prompt, items=items)


def check_judge(look: GraderInput) -> None:
    """What would be wrong in every attempt. Raises `InvalidGrader`."""
    told, wording = read_judge_settings(look.spec, compat=False)
    path = prompt_file(look.spec, look.case, told.prompt)
    if path is not None and not os.access(path, os.R_OK):
        raise InvalidGrader(f"Grader {look.spec.name!r}: there is no prompt {str(path)!r}.")
    if not (wording.criteria or wording.items or told.prompt or look.case.criteria):
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: nothing says what good looks like; "
            "give `criteria`, `rubrics` or a `prompt`."
        )


def prompt_file(spec: GraderSpec, case: EvalCase, prompt: str) -> Path | None:
    """The file that a prompt names, from where the grader was written.

    A sentence may end with the name of a file: only `file://` stands before one with spaces.
    """
    name = prompt.removeprefix("file://")
    is_text = not prompt.endswith(_PROMPT_ENDINGS) or len(prompt.split()) > 1
    if "\0" in prompt or (name == prompt and is_text):
        return None
    written = spec.place.file or case.place.file
    return Path(written).parent / name


def llm_grader(judge: Judge) -> AsyncGrader:
    async def look_at(look: GraderInput) -> GraderFinding:
        told, wording = read_judge_settings(look.spec, compat=look.compat)
        whole = msgspec.structs.replace(
            wording,
            criteria=wording.criteria or look.case.criteria,
            prompt=await _read_prompt(look, told.prompt),
        )
        return await _ask_judge(judge, look, whole)

    return look_at


def llm_aggregator(judge: Judge) -> AsyncGrader:
    """Makes one opinion of those of a composite's members."""

    async def look_at(look: GraderInput) -> GraderFinding:
        prompt = await _read_prompt(
            look, read_grader_settings(look.spec, CompositeSettings).aggregator.prompt
        )
        wording = JudgeInstructions(criteria=look.case.criteria, prompt=prompt)
        return await _ask_judge(judge, look, wording)

    return look_at


async def _read_prompt(look: GraderInput, prompt: str) -> str:
    path = prompt_file(look.spec, look.case, prompt)
    if path is None:
        return prompt
    try:
        content = await anyio.to_thread.run_sync(read_beginning, path, 4 * LARGEST_PROMPT)
        return Utf8Decoder().decode(content)[:LARGEST_PROMPT]
    except (OSError, UnicodeError) as error:
        raise InvalidGrader(f"Grader {look.spec.name!r}: prompt {str(path)!r}: {error}") from None


async def _ask_judge(judge: Judge, look: GraderInput, wording: JudgeInstructions) -> GraderFinding:
    """Rubbish counts against the attempt; a judge who cannot be asked does not.

    Were it otherwise, an answer that confuses its judge would leave the statistics.
    """
    word = secrets.token_hex(8)
    prompt = judge_question(look, wording, word)
    system, who = judge_system_prompt(wording, word), named_judge(look.spec)
    heard: list[Judgement] = []
    why = ""
    for _ in range(MOST_TRIES):
        question = JudgeQuestion(
            judge=who,
            system=system,
            prompt=retry_question(prompt, why) if why else prompt,
            case_id=look.case.id,
        )
        try:
            heard.append(await judge(question))
        except GoentError as error:
            if isinstance(error, JudgeFailed) and error.spent:
                heard.append(error.spent)
            return _with_usage(heard, _judge_unavailable(str(error), look))
        try:
            return _with_usage(heard, await _read_in_thread(heard[-1].text, look, wording))
        except UnusableReply as unfit:
            why = str(unfit)
    return _with_usage(heard, _unreadable_reply(heard[-1], why, look))


async def _read_in_thread(
    reply: str, look: GraderInput, wording: JudgeInstructions
) -> GraderFinding:
    """Raises `UnusableReply`. Elsewhere: an agent can make much of what a reply is compared with."""
    read = partial(
        read_reply,
        reply,
        evidence=agent_outputs(look),
        items=wording.items,
        compat=look.compat,
    )
    return await to_thread.run_sync(read)


def _judge_unavailable(why: str, look: GraderInput) -> GraderFinding:
    found = broken_finding(why)
    return found if look.compat else msgspec.structs.replace(found, error=why)


def _unreadable_reply(last: Judgement, why: str, look: GraderInput) -> GraderFinding:
    text = f"The judge {last.by!r} was asked {MOST_TRIES} times, and his reply could not be used: {why}"
    note = failed_assertion(text, last.text[-500:])
    verdict = "skip" if look.compat else "fail"
    return GraderFinding(score=0.0, verdict=verdict, assertions=(note,), broken=True)


def _with_usage(heard: Sequence[Judgement], found: GraderFinding) -> GraderFinding:
    if not heard:
        return found
    took = total_judgement(heard)
    judging = JudgeUsage(by=took.by, times=len(heard), usage=took.usage, cost_usd=took.cost_usd)
    return msgspec.structs.replace(found, judging=judging)
