"""Defines what declares a type of grader: its names, its settings and the function that grades."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec

from goent.domain.input_mistakes import KEYS, explain_mistake
from goent.domain.types import Value
from goent.evals.graders.findings import GraderFinding, GraderInput, InvalidGrader
from goent.evals.graders.target_judge import Judge
from goent.evals.suite_commands import SuiteCommandRunner
from goent.evals.suites import GraderSpec

S = TypeVar("S", bound="GraderSettings")

PARALLEL_SCRIPTS: Final = 16  # of a run, however many cases are graded in parallel


class GraderSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all grader settings: a misspelt one must not silently switch a check off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderTools:
    """What graders need beside the trace: scripts run by `commands`, models are asked through `judge`.

    `turn` limits how many scripts of a run work in parallel; a script's time begins with its turn.
    """

    commands: SuiteCommandRunner
    judge: Judge
    scratch: Path | None = None
    turn: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(PARALLEL_SCRIPTS)
    )


GraderCheck = Callable[[GraderInput], GraderFinding | None]
"""Grades by the trace alone. None: there is nothing to look at, and the grader is left out."""

AsyncGrader = Callable[[GraderInput, GraderTools], Awaitable[GraderFinding]]
"""Grades by a script or a model. A `GoentError` fails this grader alone."""


class GraderKind(Value, frozen=True, kw_only=True):
    """One type of grader. It has either a `check` or an `ask`; a composite has neither.

    `needed` are settings that must be written although they have a default, and with `any_of` at least
    one must be. `validate` checks what would be wrong in every attempt (else `check` does, on an empty
    trace). `combine` makes one finding of a composite's members. `score` is its column in the docs.
    """

    name: str
    settings: type[GraderSettings]
    score: str
    aliases: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    any_of: bool = False
    check: GraderCheck | None = None
    ask: AsyncGrader | None = None
    combine: AsyncGrader | None = None
    validate: Callable[[GraderInput], object] | None = None
    is_judged: bool = False

    @property
    def setting_names(self) -> tuple[str, ...]:
        """All settings it knows."""
        return self.settings.__struct_fields__

    @property
    def required(self) -> tuple[str, ...]:
        fields = msgspec.structs.fields(self.settings)
        return tuple(one.name for one in fields if one.required or one.name in self.needed)


def read_grader_settings(spec: GraderSpec, form: type[S]) -> S:
    """Raises `InvalidGrader`, which names the grader and the setting."""
    try:
        return msgspec.convert(spec.settings, form)
    except msgspec.ValidationError as error:
        mistake = explain_mistake(error, spec.settings, form, KEYS)
        raise InvalidGrader(f"Grader {spec.name!r} ({spec.type}): {mistake}") from None
