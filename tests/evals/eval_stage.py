"""A daemon and scripted models for targets of the kind `goent`, and somebody who watches an attempt."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from world import World

from goent.cli.daemon_link import open_daemon_link
from goent.domain.replies import WorkerList
from goent.domain.requests import ListRequest
from goent.evals.eval_ports import CaseAttempt, StreamLogFile
from goent.evals.suites import EvalCase, InputMessage, TargetSpec
from goent.evals.targets.goent_target import GoentTarget
from goent.evals.traces import PermissionDecision, TokenUsage, TracedMessage


class AttemptWitness:
    """Remembers all that it is told."""

    def __init__(self) -> None:
        self.messages: dict[int, TracedMessage] = {}
        self.decisions: list[PermissionDecision] = []
        self.warnings: list[str] = []
        self.costs: list[float | None] = []

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        self.messages[number] = message

    def permission_decided(self, decision: PermissionDecision) -> None:
        self.decisions.append(decision)

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self.costs.append(cost_usd)

    def log_started(self, chosen: StreamLogFile) -> None:
        pass

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def case_of(text: str, name: str = "one") -> EvalCase:
    return EvalCase(id=name, suite="demo", form="v4", input=(InputMessage(role="user", text=text),))


def attempt_at(text: str, cwd: Path, *, timeout_s: float = 60.0) -> CaseAttempt:
    return CaseAttempt(case=case_of(text), target="worker", cwd=cwd, timeout_s=timeout_s)


def target(world: World, **settings: object) -> GoentTarget:
    spec = TargetSpec(name="worker", kind="goent", settings=settings)
    return GoentTarget(spec, lambda: open_daemon_link(world.project))


@contextmanager
def environment_of(world: World) -> Generator[None]:
    """Whoever starts a daemon takes its environment from the process."""
    before = dict(os.environ)
    _become(world.env)
    try:
        yield
    finally:
        _become(before)


def _become(environ: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


async def open_workers(world: World) -> list[str]:
    async with open_daemon_link(world.project) as daemon:
        listed = await daemon.ask("worker_list", ListRequest(), WorkerList)
        return [worker.worker_id for worker in listed.workers if worker.open]
