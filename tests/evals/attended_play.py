"""Evaluations that a daemon is asked for, in a project of a test's own."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from goent.cli.trust import project_acts
from goent.config.trust_records import grant
from goent.domain.evaluation_messages import EvalRunRequest, EvalStatus, EvalStatusRequest
from goent.evals.attended.attended_runs import EvalRuns
from goent.proc.process_table import marked_processes, new_owner

TARGETS = """\
targets:
  - {name: good, provider: mock, response: yes it is}
  - {name: bad, provider: mock, response: never}
  - {name: slow, provider: cli, workers: 1, command: "test {EVAL_ID} != c2 || test -e go || sleep 600; echo yes > {OUTPUT_FILE}"}
"""
SUITE = """\
execution: {target: good}
tests:
  - {id: c1, input: is it, tags: [first], assertions: [{type: contains, value: "yes"}]}
  - {id: c2, input: is it, assertions: [{type: contains, value: "yes"}]}
  - {id: c3, input: is it, tags: [first, last], assertions: [{type: contains, value: it is}]}
"""


def furnish(project: Path) -> None:
    (project / ".goent").mkdir(exist_ok=True, parents=True)
    targets = TARGETS.replace("-e go", f"-e {project.parent / 'go'}")
    (project / ".goent" / "targets.yaml").write_text(targets)
    (project / "demo.eval.yaml").write_text(SUITE)


@asynccontextmanager
async def runs_of(project: Path) -> AsyncGenerator[EvalRuns]:
    owner = new_owner(f"evals-{project.name}")
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.parent)}
    grant(project, environ, project_acts(project, environ))
    runs = EvalRuns(project, environ=lambda: environ, owner=owner)
    async with runs.running():
        yield runs
    assert list(marked_processes(owner)) == []


async def run(runs: EvalRuns, project: Path, **more: object) -> EvalStatus:
    asked = {"suites": ("demo.eval.yaml",), **more}
    return await runs.run(EvalRunRequest(**asked), project)  # pyright: ignore[reportArgumentType] (as told)


async def status(runs: EvalRuns, name: str, **more: object) -> EvalStatus:
    asked = EvalStatusRequest(run_id=name, **more)  # pyright: ignore[reportArgumentType] (as told)
    return await runs.status(asked, runs.project)
