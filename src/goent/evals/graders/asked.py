"""Which graders have to ask somebody, and whom?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from goent.evals.commands import Commands
from goent.evals.graders.findings import Asked, Finding, Look
from goent.evals.graders.judging import Judge
from goent.evals.graders.llm import llm_aggregator, llm_grader
from goent.evals.graders.scripts import code_aggregator, code_grader

SCRIPTS_AT_ONCE: Final = 16  # in a run, however many cases are graded and by how many


def askers(
    commands: Commands,
    judge: Judge,
    scratch: Path | None = None,
    *,
    turn: anyio.CapacityLimiter | None = None,
) -> Mapping[str, Asked]:
    """By type. Scripts are run by `commands`.

    They take `turn`s, the same for all cases of a run; a script's time begins with its turn.
    """
    turn = turn or anyio.CapacityLimiter(SCRIPTS_AT_ONCE)
    return {
        "code-grader": _in_turn(code_grader(commands, scratch), turn),
        "code-aggregator": _in_turn(code_aggregator(commands), turn),
        "llm-grader": llm_grader(judge),
        "rubrics": llm_grader(judge),
        "llm-aggregator": llm_aggregator(judge),
    }


def _in_turn(script: Asked, turn: anyio.CapacityLimiter) -> Asked:
    async def ask(look: Look) -> Finding:
        async with turn:
            return await script(look)

    return ask
