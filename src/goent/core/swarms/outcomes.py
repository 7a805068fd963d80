"""What came of a worker that was given a task?"""

from decimal import Decimal
from typing import Literal

from goent.core.swarms.view import Attempt
from goent.core.views import WorkerView, evidence
from goent.domain.types import ENDED, Evidence, Failure, FileChange, Value

# `died` goes on in its session, after its go-ent ended; `lost` has none, or never began.
Standing = Literal["under_way", "died", "lost", "completed", "failed", "cancelled"]

UNPROVED = "it says that it is done, but it has changed nothing and used no tool"
GONE = "its folder was removed while it worked, and what it had done there with it"


class Outcome(Value, frozen=True, kw_only=True):
    """How an attempt stands; what it took, to compare it with others."""

    worker: str
    standing: Standing
    provider: str = ""
    evidence: Evidence | None = None
    failure: Failure | None = None
    lines: int = 0
    cost_usd: Decimal | None = None
    seconds: float = 0.0

    @property
    def over(self) -> bool:
        return self.standing in ("completed", "failed", "cancelled")

    @property
    def at_work(self) -> bool:
        return self.standing in ("under_way", "died")


def outcome(attempt: Attempt, view: WorkerView | None, *, beginning: bool) -> Outcome:
    """`beginning`: its worker is just being made."""
    name = attempt.worker
    if attempt.refused:
        return Outcome(worker=name, standing="failed", failure=attempt.refused)
    if view is None:
        return Outcome(worker=name, standing="under_way" if beginning else "lost")
    standing, failure = _standing(view)
    return Outcome(
        worker=name,
        standing=standing,
        provider=view.provider,
        evidence=evidence(view),
        failure=failure,
        lines=lines(view.work.files) if view.work else 0,
        cost_usd=view.cost_usd,
        seconds=view.updated_at - view.started_at,
    )


def lines(files: tuple[FileChange, ...]) -> int:
    """How much was changed; a file whose lines cannot be counted counts as one."""
    return sum((file.added or 0) + (file.removed or 0) or 1 for file in files)


def _standing(view: WorkerView) -> tuple[Standing, Failure | None]:
    if view.state not in ENDED:
        return "under_way", None
    if view.state == "cancelled":
        return "cancelled", None
    if view.failure and view.failure.kind == "daemon_died":
        return ("died" if view.open and view.token else "lost"), view.failure
    if view.state == "failed":
        return "failed", view.failure
    if evidence(view) == "refuted":
        return "failed", Failure(kind="refuted", message=UNPROVED, retryable=True)
    if view.spawned.workspace and view.work is None:
        return "failed", Failure(kind="workspace_lost", message=GONE, retryable=True)
    return "completed", None
