"""What can be said about a target of go-ent's own workers?"""

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from goent.domain.requests import PromptRequest, SpawnRequest
from goent.domain.types import Method, Preset, Value
from goent.domain.verification import blank_commands
from goent.evals.ports import Attempt
from goent.evals.prompts import question
from goent.evals.suites import Case, Policy
from goent.evals.targets.settings import misfits

Above0 = Annotated[float, Meta(gt=0)]


class Candidate(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who works on it: pins, as in `worker_spawn`. What is left out, the router chooses."""

    subprovider: str | None = None
    model: str | None = None
    method: Method | None = None
    permissions: Preset | None = None
    budget_usd: Above0 | None = None
    allow_fallback: bool | None = None
    allowed_tools: tuple[str, ...] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None


class GoentSettings(Candidate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, and what holds for all candidates of a race. `provider` says `goent`: hence `subprovider`.

    A candidate of a race is a table of such pins, or the name of a provider; what it leaves out is as it is for the target.
    """

    permission_policy: Policy = "reject"
    timeout_seconds: Above0 | None = None
    verify: tuple[str, ...] = ()
    race: tuple[Candidate | str, ...] = ()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those who race, or the only one."""
        usual = msgspec.convert(self, Candidate, from_attributes=True)
        return tuple(_over(usual, racer) for racer in self.race) or (usual,)


def goent_mistakes(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of such a target: paths and words."""
    wrong = list(misfits(settings, GoentSettings))
    yield from wrong
    race = settings.get("race")
    if isinstance(race, list) and len(race) == 1:  # pyright: ignore[reportUnknownArgumentType] (from a file)
        yield "race", "has one candidate; name at least two, or say `subprovider` instead"
    if wrong:
        return
    told = msgspec.convert(dict(settings), GoentSettings, strict=False)
    for index, reason in blank_commands(told.verify):
        yield f"verify[{index}]", reason
    for number, candidate in enumerate(told.candidates):
        if candidate.temperature is not None and candidate.method != "api":
            path, which = (f"race[{number}]", "its temperature ") if race else ("temperature", "")
            yield path, f"{which}is for a model that is called directly; add `method: api`"


def _over(usual: Candidate, racer: Candidate | str) -> Candidate:
    own = Candidate(subprovider=racer) if isinstance(racer, str) else racer
    # A provider of its own has models of its own.
    model = own.model if own.subprovider else own.model or usual.model
    return Candidate(
        subprovider=own.subprovider or usual.subprovider,
        model=model,
        method=own.method or usual.method,
        permissions=own.permissions or usual.permissions,
        budget_usd=usual.budget_usd if own.budget_usd is None else own.budget_usd,
        allow_fallback=usual.allow_fallback if own.allow_fallback is None else own.allow_fallback,
        allowed_tools=usual.allowed_tools if own.allowed_tools is None else own.allowed_tools,
        temperature=usual.temperature if own.temperature is None else own.temperature,
    )


def task(
    attempt: Attempt, candidate: Candidate, told: GoentSettings, *, cwd: str, limit_s: float
) -> SpawnRequest:
    """What the daemon is asked for. The directory is the attempt's own, so edits in it are allowed."""
    return SpawnRequest(
        task=question(attempt.case),
        provider=candidate.subprovider,
        model=candidate.model,
        method=candidate.method,
        cwd=cwd,
        files=_files(attempt.case),
        isolation="shared",
        permissions=candidate.permissions or "edit",
        budget_usd=candidate.budget_usd,
        timeout_s=limit_s,
        verify=told.verify,
        allow_fallback=candidate.allow_fallback,
        allowed_tools=candidate.allowed_tools,
        temperature=candidate.temperature,
        wait_s=0.0,
    )


def prompt(attempt: Attempt, worker: str) -> PromptRequest:
    """The next turn of a worker that has had one."""
    return PromptRequest(
        worker_id=worker, prompt=question(attempt.case), files=_files(attempt.case)
    )


def _files(case: Case) -> tuple[str, ...]:
    files = (*case.guidelines, *(path for said in case.input for path in said.files))
    return tuple(dict.fromkeys(map(str, files)))
