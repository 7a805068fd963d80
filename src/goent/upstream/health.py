"""Which providers can be asked, by what their calls have told? The breakers of all of them.

What a call tells is kept by backend, model and account, so that another key starts anew. A decision
reads memory; only what changes something is written.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from goent.domain.errors import WorkerError
from goent.domain.health import Condition, HealthKey, HealthRecord, HealthRecords
from goent.domain.settings import Backend
from goent.domain.types import Provider
from goent.policy import health
from goent.policy.health import Bounds

DIRECT = "direct"
ACCOUNTS_S = 0.5  # for which an account is not looked up again

Step = Callable[[HealthRecord], HealthRecord | None]


class RecordsInMemory:
    """The port `HealthRecords` that forgets with its process."""

    def __init__(self) -> None:
        self._known: dict[HealthKey, HealthRecord] = {}

    def known(self, key: HealthKey) -> HealthRecord:
        return self._known.get(key, HealthRecord())

    async def change(self, key: HealthKey, step: Step) -> HealthRecord | None:
        after = step(self.known(key))
        if after is not None:
            self._known[key] = after
        return after

    async def forget(self, backend: str, model: str) -> bool:
        found = [key for key in self._known if (key.backend, key.model) == (backend, model)]
        for key in found:
            del self._known[key]
        return bool(found)


class Breakers:
    """The port `Healths`. `account` names whose key a backend is asked with, `bounds` the terms."""

    def __init__(
        self,
        records: HealthRecords | None = None,
        *,
        account: Callable[[str], str] = lambda _: "",
        bounds: Callable[[], Bounds] = Bounds,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records = records or RecordsInMemory()
        self._account = account
        self._bounds = bounds
        self._clock = clock
        self._accounts: dict[str, str] = {}
        self._looked_up = 0.0
        self._under_way: Counter[tuple[str, str]] = Counter()

    def condition(self, provider: Provider) -> Condition:
        return health.condition(self._records.known(self._key(provider)), self._clock())

    def under_way(self, provider: Provider) -> int:
        return self._under_way[provider.backend, provider.model]

    async def admits(self, provider: Provider, *, force: bool = False) -> bool:
        key, now = self._key(provider), self._clock()
        decide = health.forced if force else health.admitted
        record = self._records.known(key)
        after = decide(record, now)
        if after is not None and after != record:  # a trial: others may want it too
            after = await self._records.change(key, lambda kept: decide(kept, now))
        if after is None:
            return False
        self._under_way[provider.backend, provider.model] += 1
        return True

    async def served(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        now = self._clock()
        step = partial(health.served, now=now, began=began, used_up_for_s=used_up_for_s)
        await self._end(provider, step)

    async def failed(self, provider: Provider, error: WorkerError, *, began: float) -> None:
        now, bounds = self._clock(), self._bounds()
        step = partial(health.failed, error=error, now=now, began=began, bounds=bounds)
        await self._end(provider, step)

    async def released(self, provider: Provider) -> None:
        await self._end(provider, health.released)

    async def forget(self, provider: Provider) -> bool:
        return await self._records.forget(provider.backend, provider.model)

    async def _end(self, provider: Provider, step: Callable[[HealthRecord], HealthRecord]) -> None:
        name = (provider.backend, provider.model)
        self._under_way[name] = max(0, self._under_way[name] - 1)
        key = self._key(provider)
        known = self._records.known(key)
        if not _differ(known, step(known)):
            return
        await self._records.change(key, step)

    def _key(self, provider: Provider) -> HealthKey:
        now = time.monotonic()
        if now - self._looked_up > ACCOUNTS_S:
            self._looked_up = now
            self._accounts.clear()
        backend = provider.backend
        if backend not in self._accounts:
            self._accounts[backend] = self._account(backend)
        return HealthKey(backend, provider.model, self._accounts[backend])


def account(backend: Backend | None, environ: Mapping[str, str]) -> str:
    """Tells address and key of a backend apart from others without telling the key."""
    if backend is None or not backend.is_held(environ):
        return DIRECT
    told = f"{backend.base_url}\0{backend.resolve_key(environ) or ''}".encode(errors="replace")
    return hashlib.sha256(told).hexdigest()[:12]


def _differ(one: HealthRecord, other: HealthRecord) -> bool:
    """A provider that is well and serves once more is no news."""
    return one != other and not (one.state == other.state == "healthy")
