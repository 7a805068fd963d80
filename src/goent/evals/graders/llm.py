"""What does a judge find? He is asked, once more if he did not keep to the form, and his reply is read."""

import os
import secrets
from codecs import getincrementaldecoder
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread

from goent.domain.errors import GoentError
from goent.evals.graders.evidence import made_by_the_agent
from goent.evals.graders.findings import Asked, Finding, Look, Misfit, broken, failed
from goent.evals.graders.judging import (
    Judge,
    JudgeFailed,
    Judgement,
    Question,
    in_all,
    named_judge,
)
from goent.evals.graders.questions import Wording, asked_again, prompt_of, system_of
from goent.evals.graders.replies import Unfit, read_reply
from goent.evals.graders.rubrics import Entries, items_of
from goent.evals.graders.settings import Composition, Settable, read
from goent.evals.grades import Judging
from goent.evals.suites import Case, GraderSpec
from goent.plain_files import read_beginning

TIMES = 2
Utf8 = getincrementaldecoder("utf-8")  # a letter that is cut at the end is left out
LARGEST_PROMPT = 1024 * 1024
_FILES = (".md", ".txt", ".prompt")


class Judged(Settable, frozen=True, kw_only=True):
    """`criteria` as a text stand for those of the case; as a list they are `rubrics`."""

    prompt: str = ""
    criteria: str | Entries = ""
    rubrics: Entries = ()
    target: str | None = None
    model: str | None = None


def judge_settings(spec: GraderSpec, *, compat: bool) -> tuple[Judged, Wording]:
    """Raises `Misfit`. The prompt is as it was written: text, or the name of a file."""
    told = read(spec, Judged)
    listed = told.criteria if isinstance(told.criteria, tuple) else ()
    items = items_of(spec, (*listed, *told.rubrics), compat=compat)
    text = told.criteria if isinstance(told.criteria, str) else ""
    return told, Wording(criteria=text, prompt=told.prompt, items=items)


def check_judge(look: Look) -> None:
    """What would be wrong in every attempt. Raises `Misfit`."""
    told, wording = judge_settings(look.spec, compat=False)
    path = prompt_file(look.spec, look.case, told.prompt)
    if path is not None and not os.access(path, os.R_OK):
        raise Misfit(f"Grader {look.spec.name!r}: there is no prompt {str(path)!r}.")
    if not (wording.criteria or wording.items or told.prompt or look.case.criteria):
        raise Misfit(
            f"Grader {look.spec.name!r}: nothing says what good looks like; "
            "give `criteria`, `rubrics` or a `prompt`."
        )


def prompt_file(spec: GraderSpec, case: Case, prompt: str) -> Path | None:
    """The file that a prompt names, from where the grader was written.

    A sentence may end with the name of a file: only `file://` stands before one with spaces.
    """
    name = prompt.removeprefix("file://")
    is_text = not prompt.endswith(_FILES) or len(prompt.split()) > 1
    if "\0" in prompt or (name == prompt and is_text):
        return None
    written = spec.place.file or case.place.file
    return Path(written).parent / name


def llm_grader(judge: Judge) -> Asked:
    async def look_at(look: Look) -> Finding:
        told, wording = judge_settings(look.spec, compat=look.compat)
        whole = msgspec.structs.replace(
            wording,
            criteria=wording.criteria or look.case.criteria,
            prompt=await _prompt(look, told.prompt),
        )
        return await _ask(judge, look, whole)

    return look_at


def llm_aggregator(judge: Judge) -> Asked:
    """Makes one opinion of those of a composite's members."""

    async def look_at(look: Look) -> Finding:
        prompt = await _prompt(look, read(look.spec, Composition).aggregator.prompt)
        wording = Wording(criteria=look.case.criteria, prompt=prompt)
        return await _ask(judge, look, wording)

    return look_at


async def _prompt(look: Look, prompt: str) -> str:
    path = prompt_file(look.spec, look.case, prompt)
    if path is None:
        return prompt
    try:
        content = await anyio.to_thread.run_sync(read_beginning, path, 4 * LARGEST_PROMPT)
        return Utf8().decode(content)[:LARGEST_PROMPT]
    except (OSError, UnicodeError) as error:
        raise Misfit(f"Grader {look.spec.name!r}: prompt {str(path)!r}: {error}") from None


async def _ask(judge: Judge, look: Look, wording: Wording) -> Finding:
    """Rubbish counts against the attempt; a judge who cannot be asked does not.

    Were it otherwise, an answer that confuses its judge would leave the statistics.
    """
    word = secrets.token_hex(8)
    prompt = prompt_of(look, wording, word)
    system, who = system_of(wording, word), named_judge(look.spec)
    heard: list[Judgement] = []
    why = ""
    for _ in range(TIMES):
        question = Question(
            who=who,
            system=system,
            prompt=asked_again(prompt, why) if why else prompt,
            case_id=look.case.id,
        )
        try:
            heard.append(await judge(question))
        except GoentError as error:
            if isinstance(error, JudgeFailed) and error.spent:
                heard.append(error.spent)
            return _taking(heard, _unasked(str(error), look))
        try:
            return _taking(heard, await _read(heard[-1].text, look, wording))
        except Unfit as unfit:
            why = str(unfit)
    return _taking(heard, _unreadable(heard[-1], why, look))


async def _read(reply: str, look: Look, wording: Wording) -> Finding:
    """Raises `Unfit`. Elsewhere: an agent can make much of what a reply is compared with."""
    read = partial(
        read_reply,
        reply,
        evidence=made_by_the_agent(look),
        items=wording.items,
        compat=look.compat,
    )
    return await to_thread.run_sync(read)


def _unasked(why: str, look: Look) -> Finding:
    found = broken(why)
    return found if look.compat else msgspec.structs.replace(found, error=why)


def _unreadable(last: Judgement, why: str, look: Look) -> Finding:
    text = f"The judge {last.by!r} was asked {TIMES} times, and his reply could not be used: {why}"
    note = failed(text, last.text[-500:])
    verdict = "skip" if look.compat else "fail"
    return Finding(score=0.0, verdict=verdict, assertions=(note,), broken=True)


def _taking(heard: Sequence[Judgement], found: Finding) -> Finding:
    if not heard:
        return found
    took = in_all(heard)
    judging = Judging(by=took.by, times=len(heard), usage=took.usage, cost_usd=took.cost_usd)
    return msgspec.structs.replace(found, judging=judging)
