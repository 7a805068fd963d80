"""Grades by a judge: asks, and asks once more if the reply has the wrong form."""

import os
import secrets
from codecs import getincrementaldecoder
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.evals.eval_results import Assertion, JudgeUsage
from goent.evals.graders.composite_grader import aggregator_settings
from goent.evals.graders.findings import GraderFinding, GraderInput, InvalidGrader, broken_finding
from goent.evals.graders.grader_kind import (
    GraderKind,
    GraderSettings,
    GraderTools,
    read_grader_settings,
)
from goent.evals.graders.judge_prompt import (
    AGENT_ROLE,
    JudgeInstructions,
    RubricEntries,
    judge_question,
    judge_system_prompt,
    retry_question,
    rubric_items,
)
from goent.evals.graders.judge_reply import UnusableReply, read_reply
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
