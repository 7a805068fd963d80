"""What does one grader find in a trace, and what does it need to know to look?"""

from collections.abc import Awaitable, Callable, Sequence

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.grades import Assertion, Grade, Judging, Verdict
from goent.evals.suites import Case, GraderSpec
from goent.evals.traces import Trace


class Misfit(GoentError):
    """The grader cannot look: its settings, or the case, do not fit it."""

    exit_code = 2


class Look(Value, frozen=True, kw_only=True):
    """One grader's view. `compat`: say what AgentV 4 says, its oddities included.

    `members` are what those of a composite said, for who makes one of them.
    """

    spec: GraderSpec
    case: Case
    trace: Trace
    compat: bool
    members: tuple[Grade, ...] = ()


class Finding(Value, frozen=True, kw_only=True):
    """A score in [0, 1]. `verdict` only where the score alone does not decide it.

    `broken`: the grader could not look, which is no opinion that could be turned round.
    `error`: it could not, because whom it needed could not be asked.
    """

    score: float
    assertions: tuple[Assertion, ...] = ()
    verdict: Verdict | None = None
    details: object = None
    broken: bool = False
    error: str = ""
    judging: Judging | None = None


Check = Callable[[Look], Finding | None]
"""None: the grader has nothing to look for, and is left out."""

Asked = Callable[[Look], Awaitable[Finding]]
"""A grader that has to ask somebody: a script, a model. A `GoentError` fails that grader alone."""


def passed(text: str, evidence: str = "") -> Assertion:
    return Assertion(text=text, passed=True, evidence=evidence)


def failed(text: str, evidence: str = "") -> Assertion:
    return Assertion(text=text, passed=False, evidence=evidence)


def broken(text: str) -> Finding:
    return Finding(score=0.0, verdict="fail", assertions=(failed(text),), broken=True)


def unseen(look: Look) -> str:
    """What to say after a count of calls where subagents may have made more. AgentV looks at none of theirs."""
    hidden = look.trace.hides_subagents and not look.compat
    return "; what the subagent of `task` called is not known" if hidden else ""


def share(assertions: Sequence[Assertion]) -> float:
    """Of those that passed; 1 if there are none."""
    hits = sum(assertion.passed for assertion in assertions)
    return hits / len(assertions) if assertions else 1.0


def all_of(assertions: Sequence[Assertion]) -> Finding:
    """1 if all passed, else 0."""
    return Finding(
        score=float(all(assertion.passed for assertion in assertions)), assertions=tuple(assertions)
    )
