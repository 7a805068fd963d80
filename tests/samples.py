"""Values that several tests begin with."""

from goent.domain.events import WorkerSpawned

SPAWNED = WorkerSpawned(
    task="t",
    cwd="/p",
    provider="glm",
    backend="moonshot",
    model="glm-4",
    method="acp",
    reason="asked for",
    permissions="ask",
    isolation="shared",
)
