"""Who else has worked in a worker's directory?"""

from collections.abc import Iterable
from pathlib import Path

from goent.core.views import WorkerView
from goent.domain.types import ENDED


def shares_its_place(views: Iterable[WorkerView], worker: str, since: float) -> bool:
    """Whether somebody else who may change files has worked there since then."""
    known = {view.id: view for view in views}
    own = known.get(worker)
    if own is None:
        return False
    return any(
        _meet(Path(own.spawned.cwd), Path(view.spawned.cwd))
        for view in known.values()
        if view.id != worker and may_write(view) and _at_work(view, since)
    )


def may_write(view: WorkerView) -> bool:
    """Whether it may change files where it works."""
    return view.spawned.method != "api" and view.spawned.permissions != "readonly"


def _at_work(view: WorkerView, since: float) -> bool:
    return (view.state not in ENDED and view.open) or (view.ended_at or 0.0) >= since


def _meet(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
