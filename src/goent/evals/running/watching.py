"""Who is told how a run goes, while it goes?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from goent.domain.types import Value
from goent.evals.ports import Attempt, LogChosen
from goent.evals.rows import Row
from goent.evals.traces import TargetFailure


class Planned(Value, frozen=True, kw_only=True):
    """What a run is about to do. `total` counts the trials; `kept` of them are there from before.

    `to_make`: how many of the others are each target's.
    """

    total: int
    kept: int
    targets: tuple[str, ...]
    out: Path
    to_make: Mapping[str, int] = {}


class Watcher(Protocol):
    """All of it is told in order and at once: whoever needs time takes it elsewhere."""

    def planned(self, plan: Planned) -> None: ...

    def began(self, attempt: Attempt) -> None: ...

    def log(self, chosen: LogChosen) -> None: ...

    def failed(
        self, attempt: Attempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        """The attempt failed, and another one follows, by the same target or the next fallback."""
        ...

    def ended(self, row: Row) -> None: ...

    def warned(self, text: str) -> None: ...
