"""What a process that a worker started may ask of the daemon: to look at that worker, and no more.

The kernel tells that a worker started it (`goent.peer`). Which worker, it says by a pass in its
environment, `<worker>.<mac>`, which only this daemon can have issued.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from goent.daemon_environment import WORKER_PASS, WORKER_SOCKET
from goent.domain.errors import StartedByWorker

LOOKS: Final = frozenset(
    {"worker_status", "worker_output", "worker_result", "worker_wait", "watch"}
)


class IssuedPasses:
    """The port `WorkerPasses`, and its other side. Passes are good as long as this object."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self.socket: Path | None = None  # where the daemon listens, if it does

    def environment(self, worker: str) -> Mapping[str, str]:
        where = {WORKER_SOCKET: str(self.socket)} if self.socket else {}
        return {WORKER_PASS: f"{worker}.{self._mac(worker)}", **where}

    def worker_of(self, shown: str) -> str | None:
        """Whose pass it is; None if it is none of ours."""
        worker, _, mac = shown.rpartition(".")
        genuine = hmac.compare_digest(mac.encode(), self._mac(worker).encode())
        return worker if worker and genuine else None

    def _mac(self, worker: str) -> str:
        return hmac.digest(self._secret, worker.encode(), "sha256").hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAccess:
    """The bounds of one connection. `why` it counts as a worker's; `worker` is None without a pass."""

    why: str
    worker: str | None

    def check(self, method: str, params: object) -> None:
        """Raise `StartedByWorker` unless it is a look at the worker itself."""
        if not (self.worker and method in LOOKS and _named(params) == {self.worker}):
            raise StartedByWorker(self.refusal)

    @property
    def refusal(self) -> str:
        if self.worker:
            return (
                f"this process was started by worker {self.worker}; from there only that worker can be "
                "looked at (status, output, wait, result, by its whole id)"
            )
        return (
            f"this process counts as started by a worker: {self.why}. From there go-ent takes no orders; "
            "use a terminal of your own, or `go-ent mcp --embedded` in a container or sandbox"
        )


class _About(msgspec.Struct):
    """The workers that a request names, in whichever field."""

    worker_id: str = ""
    worker_ids: tuple[str, ...] = ()


def _named(params: object) -> set[str]:
    try:
        about = msgspec.convert(params, _About)
    except msgspec.ValidationError:
        return set()
    return {*about.worker_ids, *filter(None, (about.worker_id,))}
