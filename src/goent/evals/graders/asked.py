"""Which graders have to ask somebody, and whom?"""

from collections.abc import Mapping
from pathlib import Path

from goent.evals.graders.findings import Asked
from goent.evals.graders.judges import llm_aggregator, llm_grader
from goent.evals.graders.judging import Judge
from goent.evals.graders.scripts import code_aggregator, code_grader


def askers(
    environ: Mapping[str, str], judge: Judge, scratch: Path | None = None
) -> Mapping[str, Asked]:
    """By type. Scripts get this environment and no more: it should hold no key of a provider."""
    return {
        "code-grader": code_grader(environ, scratch),
        "code-aggregator": code_aggregator(environ),
        "llm-grader": llm_grader(judge),
        "rubrics": llm_grader(judge),
        "llm-aggregator": llm_aggregator(judge),
    }
