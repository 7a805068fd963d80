"""Defines the settings of each deterministic grader, and reads them from a suite."""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from goent.domain.input_mistakes import KEYS, explain_mistake
from goent.domain.types import Value
from goent.evals.graders.findings import InvalidGrader
from goent.evals.suites import GraderSpec
from goent.evals.traces import CallStatus

S = TypeVar("S", bound="GraderSettings")

ArgsMatch = (
    Literal["exact", "superset", "subset", "ignore", "glob", "regex"] | tuple[str, ...] | None
)


class GraderSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a suite may say, and no more: what is misspelt would be a check that is silently off.

    Whatever is read from a grader's settings is one, and so is all that lies in it.
    """


class ExpectedCall(GraderSettings, frozen=True, kw_only=True):
    """One call that should be there. Without `args`, or with `any`, they are not looked at."""

    tool: str
    args: Mapping[str, object] | Literal["any"] | None = None
    args_match: ArgsMatch = None
    max_duration_ms: float | None = None
    status: CallStatus | None = None


class TrajectorySettings(GraderSettings, frozen=True, kw_only=True):
    """Of `tool-trajectory`. From `status` on, the settings are go-ent's own; it is that of all calls which are looked for.

    With `subagents`, what these called is in the sequence too; `forbidden`, `max` and `followed_by` look at it always.
    """

    mode: Literal["any_order", "in_order", "exact", "superset", "subset"]
    expected: tuple[ExpectedCall, ...] = ()
    minimums: Mapping[str, int] | None = None
    args_match: ArgsMatch = None
    status: CallStatus | None = None
    forbidden: tuple[str, ...] = ()
    max: Mapping[str, int] = {}
    followed_by: Mapping[str, str] = {}
    subagents: bool = False


class TextSettings(GraderSettings, frozen=True, kw_only=True):
    """What the answer is compared with."""

    value: str


class TextListSettings(GraderSettings, frozen=True, kw_only=True):
    """What the answer should contain, all or any."""

    value: tuple[str, ...]


class RegexSettings(GraderSettings, frozen=True, kw_only=True):
    """A regular expression as JavaScript writes it."""

    value: str
    flags: str = ""


class NoSettings(GraderSettings, frozen=True, kw_only=True):
    """There is nothing to set."""


class LatencyLimit(GraderSettings, frozen=True, kw_only=True):
    """In milliseconds."""

    threshold: float


class CostLimit(GraderSettings, frozen=True, kw_only=True):
    """In US dollars."""

    budget: float


class TokenLimits(GraderSettings, frozen=True, kw_only=True):
    """All that are set must hold."""

    max_total: int | None = None
    max_input: int | None = None
    max_output: int | None = None


class MetricLimits(GraderSettings, frozen=True, kw_only=True):
    """Each that is set is one check."""

    max_tool_calls: int | None = None
    max_llm_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_duration_ms: float | None = None
    target_exploration_ratio: float | None = None
    exploration_tolerance: float = 0.2


class ExpectedField(GraderSettings, frozen=True, kw_only=True):
    """One value, at a path such as `a.b[0].c`."""

    path: str
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    required: bool = True
    weight: float = 1.0
    tolerance: float = 0.0
    relative: bool = False
    formats: tuple[str, ...] = ()


class FieldSettings(GraderSettings, frozen=True, kw_only=True):
    """Of `field-accuracy`."""

    fields: tuple[ExpectedField, ...]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"


class SkillSettings(GraderSettings, frozen=True, kw_only=True):
    """Of `skill-trigger`."""

    skill: str
    should_trigger: bool = True


class AggregatorSettings(GraderSettings, frozen=True, kw_only=True):
    """How members become one: their mean, whether enough of them pass, what a script or a judge says."""

    type: Literal["weighted_average", "threshold", "code-grader", "llm-grader"] = "weighted_average"
    weights: Mapping[str, float] = {}
    threshold: float = 0.5
    command: tuple[str, ...] = ()
    cwd: str = "."
    timeout_seconds: float = 60.0
    prompt: str = ""
    target: str | None = None
    model: str | None = None


class CompositeSettings(GraderSettings, frozen=True, kw_only=True):
    """Of `composite`; its members are in the grader itself."""

    aggregator: AggregatorSettings = AggregatorSettings()


def read_grader_settings(spec: GraderSpec, form: type[S]) -> S:
    """Raises `InvalidGrader`, which names the grader and the setting."""
    try:
        return msgspec.convert(spec.settings, form)
    except msgspec.ValidationError as error:
        mistake = explain_mistake(error, spec.settings, form, KEYS)
        raise InvalidGrader(f"Grader {spec.name!r} ({spec.type}): {mistake}") from None
