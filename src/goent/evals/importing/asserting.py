"""Which grader says what an assertion of promptfoo says?"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from goent.evals.importing.documents import Table, is_list, is_table, items, table

_SAME: Final = (
    *("contains", "icontains", "starts-with", "regex"),
    *("contains-any", "contains-all", "icontains-any", "icontains-all"),
)
_LISTS: Final = ("contains-any", "contains-all", "icontains-any", "icontains-all")
_KNOWN: Final = frozenset({"type", "value", "threshold", "weight", "metric", "assert"})
DECISIVE: Final = frozenset(  # without them something else is asked, or judged
    {
        *("transform", "postprocess", "contextTransform", "transformVars", "assertScoringFunction"),
        *("prefix", "suffix"),
    }
)
_CLEVER: Final = re.compile(r"\{%|\{\{[^}]*[|(.\[]")


def too_clever(value: object) -> Iterator[str]:
    """Texts in which more than a name has to be filled in, which nobody here does."""
    if isinstance(value, str):
        if _CLEVER.search(value):
            yield value[:60]
    elif is_list(value):
        for part in value:
            yield from too_clever(part)
    elif is_table(value):
        for part in value.values():
            yield from too_clever(part)


class Asserting:
    """The assertions of one test; `required`: each of them has to pass.

    `notes` get what is left behind of an assertion, `lost` what no longer is checked.
    """

    def __init__(
        self, file: str, where: str, *, required: bool, notes: list[str], lost: list[str]
    ) -> None:
        self._where = f"{file}, {where}: not carried over"
        self._required = required
        self._notes = notes
        self._lost = lost

    def graders(self, told: Sequence[object]) -> list[Table]:
        return [grader for one in told if (grader := self._grader(table(one)))]

    def _grader(self, told: Table) -> Table | None:
        kind = str(told.get("type", ""))
        negate = kind.startswith("not-")
        if clever := next(too_clever(told.get("value")), None):
            why = f"{clever!r} is more than {{{{name}}}}"
            self._lost.append(f"{self._where}: an assertion of the type {kind!r}: {why}")
            return None
        found = self._checked(kind.removeprefix("not-"), told)
        if found is None:
            self._lost.append(f"{self._where}: an assertion of the type {kind!r}")
            return None
        for key in (key for key in told if key not in _KNOWN):
            left = self._lost if key in DECISIVE else self._notes
            left.append(f"{self._where}: {key} of an assertion of the type {kind!r}")
        if isinstance(told.get("metric"), str):
            found["name"] = told["metric"]
        weight = told.get("weight")
        if isinstance(weight, int | float) and weight != 1:
            found["weight"] = weight
        if negate:
            found["negate"] = True
        if self._required and weight != 0:
            found["required"] = True
        return found

    def _checked(self, kind: str, told: Mapping[str, object]) -> Table | None:
        value = told.get("value")
        match kind:
            case "equals":
                return {"type": kind, "value": value if _plain(value) else json.dumps(value)}
            case "is-json":
                if value is not None:
                    self._lost.append(f"{self._where}: the schema of is-json")
                return {"type": kind}
            case "cost":
                return _limit({"type": kind}, "budget", told)
            case "latency":
                return _limit({"type": kind}, "threshold", told)
            case "llm-rubric" | "model-graded-closedqa":
                return self._judged(value, told)
            case "assert-set":
                return self._set(told)
            case _:
                return self._same(kind, value) or _trajectory(kind, value)

    def _same(self, kind: str, value: object) -> Table | None:
        if kind not in _SAME or value is None:
            return None
        if isinstance(value, str) and value.startswith("file://"):
            return None
        several = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
        return {"type": kind, "value": items(several) if kind in _LISTS else value}

    def _judged(self, value: object, told: Mapping[str, object]) -> Table | None:
        if not isinstance(value, str) or value.startswith("file://"):
            return None
        found: Table = {"type": "llm-grader", "criteria": value}
        limit = told.get("threshold")
        return found | ({"min_score": limit} if isinstance(limit, int | float) else {})

    def _set(self, told: Mapping[str, object]) -> Table | None:
        members = self.graders(items(told.get("assert")))
        if not members:
            return None
        limit = told.get("threshold")
        found: Table = {"type": "composite", "assertions": members}
        if isinstance(limit, int | float):
            for member in members:
                member.pop("required", None)
            found["aggregator"] = {"type": "threshold", "threshold": limit}
        return found


def _limit(found: Table, name: str, told: Mapping[str, object]) -> Table | None:
    limit = told.get("threshold")
    return found | {name: limit} if isinstance(limit, int | float) else None


def _trajectory(kind: str, value: object) -> Table | None:
    """Of tools that were used, and in which order."""
    match kind:
        case "trajectory:tool-used" if isinstance(value, str):
            return {"type": "tool-trajectory", "mode": "any_order", "minimums": {value: 1}}
        case "trajectory:tool-used" if is_table(value) and isinstance(value.get("name"), str):
            least = {str(value["name"]): value.get("min", 1)}
            most = {"max": {str(value["name"]): value["max"]}} if "max" in value else {}
            return {"type": "tool-trajectory", "mode": "any_order", "minimums": least, **most}
        case "trajectory:tool-sequence":
            steps = items(table(value).get("steps")) or (
                items(value) if not is_table(value) else []
            )
            names = [one if isinstance(one, str) else table(one).get("name") for one in steps]
            if names and all(isinstance(name, str) for name in names):
                mode = table(value).get("mode")
                expected = [{"tool": name} for name in names]
                way = "exact" if mode == "exact" else "in_order"
                return {"type": "tool-trajectory", "mode": way, "expected": expected}
            return None
        case "trajectory:step-count" if is_table(value) and "max" in value:
            return {"type": "execution-metrics", "max_tool_calls": value["max"]}
        case _:
            return None


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)
