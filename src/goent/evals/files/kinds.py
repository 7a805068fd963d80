"""Which graders are there, what are they also called, and which settings does each take?"""

from collections.abc import Mapping
from typing import Final

from goent.domain.types import Value


class Kind(Value, frozen=True, kw_only=True):
    """The settings that a grader must have, and those that it may have."""

    needed: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


_TEXT: Final = Kind(needed=("value",))
_SCRIPT: Final = Kind(needed=("command",), known=("cwd", "timeout_seconds", "config"))
_JUDGE: Final = Kind(known=("prompt", "rubrics", "criteria", "target", "model"))

KINDS: Final[Mapping[str, Kind]] = {
    "contains": _TEXT,
    "contains-any": _TEXT,
    "contains-all": _TEXT,
    "icontains": _TEXT,
    "icontains-any": _TEXT,
    "icontains-all": _TEXT,
    "starts-with": _TEXT,
    "ends-with": _TEXT,
    "equals": _TEXT,
    "regex": Kind(needed=("value",), known=("flags",)),
    "is-json": Kind(),
    "tool-trajectory": Kind(
        needed=("mode",),
        known=(
            *("expected", "minimums", "args_match", "status"),
            *("forbidden", "max", "followed_by", "subagents"),
        ),
    ),
    "field-accuracy": Kind(needed=("fields",), known=("aggregation",)),
    "latency": Kind(needed=("threshold",)),
    "cost": Kind(needed=("budget",)),
    "token-usage": Kind(known=("max_total", "max_input", "max_output")),
    "execution-metrics": Kind(
        known=(
            "max_tool_calls",
            "max_llm_calls",
            "max_tokens",
            "max_cost_usd",
            "max_duration_ms",
            "target_exploration_ratio",
            "exploration_tolerance",
        )
    ),
    "skill-trigger": Kind(needed=("skill",), known=("should_trigger",)),
    "composite": Kind(known=("aggregator",)),
    "code-grader": _SCRIPT,
    "llm-grader": _JUDGE,
    "rubrics": Kind(needed=("criteria",), known=("target", "model", "prompt")),
}

ALSO: Final[Mapping[str, str]] = {
    "code": "code-grader",
    "code-judge": "code-grader",
    "script": "code-grader",
    "llm-judge": "llm-grader",
    "llm": "llm-grader",
    "llm-rubric": "llm-grader",
}

MODES: Final = ("any_order", "in_order", "exact", "superset", "subset")
AGGREGATORS: Final = ("weighted_average", "threshold", "code-grader", "llm-grader")
FLAGS: Final = ("should_trigger", "subagents")
TEXTS: Final = tuple(kind for kind, known in KINDS.items() if "value" in known.needed)
