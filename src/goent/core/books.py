"""What does a model call leave behind? A line in the user's ledger, and an event of its worker's.

The line is begun before the call goes out. So whatever becomes of go-ent, a call that a provider
may bill is in the books: at worst as one of which nobody knows what it took.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from goent.core.feed import Feed
from goent.core.life import Life
from goent.domain.errors import GoentError
from goent.domain.events import Noticed, UsageReported
from goent.domain.ports import CallBegun, CallMade, Ledger, LedgerEntry, WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import Provider, Usage

ERRORS, HUNG_UP = 400, 499  # HTTP's line between answer and error; a call that we gave up

log = logging.getLogger(__name__)


class Books:
    """The accounts of a project."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        feed: Feed,
        ledger: Ledger,
        lives: Mapping[str, Life],
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._ledger = ledger
        self._lives = lives

    async def begun(self, call: CallBegun) -> None:
        """A model call of a worker's is about to go out."""
        provider = self._provider(call)
        await self._ledger.begin(call.id, self._entry(call.worker, provider, _report(provider)))

    async def metered(self, call: CallMade) -> None:
        """A model call came back: into the ledger, and into the events of its worker."""
        provider, event = self._provider(call), None
        if call.owed:
            cost = provider.price.cost(call.usage) if provider.price and call.usage else None
            event = UsageReported(
                provider=provider.name,
                model=call.model,
                usage=call.usage or Usage(),
                cost_usd=cost if call.whole else None,
                source="gateway",
                status=call.status,
            )
        # The ledger first: of a go-ent that dies in between, a call is never counted twice.
        entry = self._entry(call.worker, provider, event) if event else None
        await self._ledger.settle(call.id, entry)
        life = self._lives.get(call.worker)
        if not (life and life.turn):
            return
        if event:
            await self._feed.append(call.worker, event)
        if call.status >= ERRORS and call.status != HUNG_UP:
            text = f"{call.backend}/{call.model} answered {call.status}: {call.error}"
            await self._feed.append(call.worker, Noticed(text=text.rstrip(": ")))

    async def spent(self, spec: WorkerSpec, event: UsageReported) -> None:
        """What a driver metered by itself, of a provider that goes direct."""
        await self._ledger.add(self._entry(spec.id, spec.provider, event))

    async def lost(self) -> Mapping[str, Sequence[UsageReported]]:
        """The calls, by worker, that were under way when this project's last go-ent was killed."""
        found: dict[str, list[UsageReported]] = defaultdict(list)
        try:
            for entry in await self._ledger.lost(str(self._settings().project)):
                provider = Provider(name=entry.provider, backend=entry.backend, model=entry.model)
                found[entry.worker].append(_report(provider))
        except GoentError as error:  # they stay where they are, for the next start
            log.warning("calls that a dead go-ent left open were not looked for: %s", error)
        return found

    def _provider(self, call: CallBegun | CallMade) -> Provider:
        """The one whose price applies: the worker's own, or whoever offers that model."""
        life = self._lives.get(call.worker)
        own = [life.spec.provider] if life else []
        for provider in (*own, *self._settings().providers):
            if (provider.backend, provider.model) == (call.backend, call.model):
                return provider
        return Provider(name=f"{call.backend}/{call.model}", backend=call.backend, model=call.model)

    def _entry(self, worker: str, provider: Provider, event: UsageReported) -> LedgerEntry:
        return LedgerEntry(
            at=time.time(),
            project=str(self._settings().project),
            worker=worker,
            provider=provider.name,
            backend=provider.backend,
            model=event.model,
            usage=event.usage,
            cost_usd=event.cost_usd,
            source=event.source,
            status=event.status,
        )


def _report(provider: Provider) -> UsageReported:
    """A call of which nothing is known but that it was made."""
    return UsageReported(
        provider=provider.name,
        model=provider.model,
        usage=Usage(),
        cost_usd=None,
        source="gateway",
        status=0,
    )
