"""Under which bounds does a worker live, and what does it share with the others?"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from goent.core.feed import Feed
from goent.core.places import Places
from goent.core.rescue import Rescuer
from goent.core.shared_folders import SharedFolders
from goent.domain.events import UsageReported
from goent.domain.ports import Meter, Verifier, WorkerSpec
from goent.domain.settings import Limits
from goent.domain.types import Value
from goent.domain.workspaces import Workspace


class Terms(Value, frozen=True, kw_only=True):
    """Under which bounds a worker lives."""

    verify: tuple[str, ...] = ()
    timeout_s: float | None = None
    permission_timeout_s: float = 300.0
    limits: Limits = Limits()
    workspace: Workspace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all workers of a project have in common.

    `spent` is told what a driver metered, and says why the turn has to end, if it has to; `over`
    is told when a worker's task has been worked on, and `ended` that its turn is in the journal.
    """

    feed: Feed
    meter: Meter
    verifier: Verifier
    slots: anyio.CapacityLimiter
    spent: Callable[[WorkerSpec, UsageReported], Awaitable[str]]
    over: Callable[[str], Awaitable[None]]
    rescuer: Rescuer
    places: Places
    folders: SharedFolders
    ended: Callable[[str], None]
