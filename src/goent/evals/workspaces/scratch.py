"""Where is what an attempt, a grader or a judge needs for a moment?

In a folder that the run holds for as long as it lives. What a killed one left there, prompts and answers
among it, is removed by the next.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from goent.evals.workspaces.folders import RunFolder
from goent.project import state_dir


def scratch_root(environ: Mapping[str, str]) -> Path:
    """The usual place, for the user alone. Not made yet."""
    return state_dir(environ) / "evals" / "scratch"


@asynccontextmanager
async def open_scratch(root: Path) -> AsyncGenerator[Path]:
    """A folder of this run's own, gone in the end. Raises `EnvironmentTrouble`."""
    run = RunFolder(root)
    try:
        yield await run.new("scratch")
    finally:
        with anyio.CancelScope(shield=True):
            await run.close()
