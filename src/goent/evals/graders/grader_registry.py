"""Finds types of graders by name, and the graders of a case that run scripts or ask judges.

Each type is declared once, in the module that grades by it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from goent.evals.graders.answer_graders import ANSWER_GRADERS
from goent.evals.graders.composite_grader import COMPOSITE_GRADERS
from goent.evals.graders.grader_kind import GraderKind
from goent.evals.graders.json_values import is_object
from goent.evals.graders.llm_grader import JUDGE_GRADERS
from goent.evals.graders.script_grader import SCRIPT_GRADERS
from goent.evals.graders.target_judge import named_judge
from goent.evals.graders.trace_graders import TRACE_GRADERS
from goent.evals.suites import EvalCase, GraderSpec

GRADERS: Final[Mapping[str, GraderKind]] = {
    kind.name: kind
    for kind in (
        *ANSWER_GRADERS,
        *TRACE_GRADERS,
        *COMPOSITE_GRADERS,
        *SCRIPT_GRADERS,
        *JUDGE_GRADERS,
    )
}
_ALIASES: Final = {alias: kind.name for kind in GRADERS.values() for alias in kind.aliases}

GraderPath = tuple[int, ...]
"""Where a grader stands in its case: its index, then that of the member."""


def grader_type(written: str) -> str:
    """The type a suite means, known or not: in kebab-case, aliases resolved."""
    kebab = written.replace("_", "-")
    return _ALIASES.get(kebab, kebab)


def all_graders(
    specs: Iterable[GraderSpec], above: GraderPath = ()
) -> Iterator[tuple[GraderPath, GraderSpec]]:
    """The graders with all members of composites."""
    for index, spec in enumerate(specs):
        yield (*above, index), spec
        yield from all_graders(spec.members, (*above, index))


def judge_names(cases: Iterable[EvalCase]) -> frozenset[str]:
    """All judges that graders name: targets, and models as `provider/model`."""
    names = (named_judge(spec) for case in cases for _, spec in all_graders(case.all_graders))
    return frozenset(name for name in names if name)


def needs_judge(case: EvalCase) -> bool:
    """Whether one of its graders asks a judge without naming one."""
    return any(
        _is_judged(spec) and not named_judge(spec) for _, spec in all_graders(case.all_graders)
    )


def _is_judged(spec: GraderSpec) -> bool:
    how = spec.settings.get("aggregator")
    kind = GRADERS.get(str(how.get("type")) if is_object(how) else spec.type)
    return kind is not None and kind.is_judged
