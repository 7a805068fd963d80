"""Which graders have to ask somebody, and whom?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from goent.evals.graders.findings import Asked, Finding, Look
from goent.evals.graders.judging import Judge
from goent.evals.graders.llm import llm_aggregator, llm_grader
from goent.evals.graders.scripts import code_aggregator, code_grader

SCRIPTS_AT_ONCE: Final = 16  # in a run, however many cases are graded and by how many


def askers(
    environ: Mapping[str, str],
    judge: Judge,
    scratch: Path | None = None,
    *,
    turn: anyio.CapacityLimiter | None = None,
) -> Mapping[str, Asked]:
    """By type. Scripts get this environment and no more: it should hold no key of a provider.

    They take `turn`s, the same for all cases of a run; a script's time begins with its turn.
    """
    turn = turn or anyio.CapacityLimiter(SCRIPTS_AT_ONCE)
    return {
        "code-grader": _in_turn(code_grader(environ, scratch), turn),
        "code-aggregator": _in_turn(code_aggregator(environ), turn),
        "llm-grader": llm_grader(judge),
        "rubrics": llm_grader(judge),
        "llm-aggregator": llm_aggregator(judge),
    }


def _in_turn(script: Asked, turn: anyio.CapacityLimiter) -> Asked:
    async def ask(look: Look) -> Finding:
        async with turn:
            return await script(look)

    return ask
