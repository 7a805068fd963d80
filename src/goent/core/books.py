"""What does a model call leave behind? A line in the user's ledger, and an event of its worker's.

The line is begun before the call goes out. So whatever becomes of go-ent, a call that a provider
may bill is in the books: at worst as one of which nobody knows what it took.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from goent.core.allowance import Allowance
from goent.core.payers import Payers, Serving
from goent.domain.budgets import Admission, Hold
from goent.domain.calls import CallBegun, CallMade, Hindrance, Moved, Sizing
from goent.domain.errors import BudgetSpent, EnvironmentTrouble, GoentError
from goent.domain.events import BudgetWarned, FailedOver, Noticed, UsageReported
from goent.domain.ledger import Ledger, LedgerEntry, Prices
from goent.domain.ports import WorkerSpec
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
        feed: Payers,
        ledger: Ledger,
        prices: Prices,
        roster: Serving,
        allowance: Allowance,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._ledger = ledger
        self._prices = prices
        self._roster = roster
        self._allowance = allowance

    async def begun(self, call: CallBegun, size: Sizing) -> Hindrance | None:
        """A model call of a worker's is about to go out, if money and limits allow it."""
        provider = self._roster.provider(call.worker, call.backend, call.model)
        hold = await self._allowance.hold(call.worker, provider, size)
        answer = await self._admitted(call, provider, hold)
        for warning in await self._allowance.judged(call.worker, provider, hold, answer):
            if self._roster.at_work(call.worker):
                await self._feed.append(call.worker, BudgetWarned(message=warning))
        if answer.admitted:
            return None
        held = f"calls under way may use up {answer.passed.limit.name}" if answer.passed else ""
        return Hindrance(reason=answer.reason or held, wait_s=answer.wait_s)

    async def _admitted(self, call: CallBegun, provider: Provider, hold: Hold) -> Admission:
        entry = self._entry(call.worker, provider, _report(provider))
        try:
            return await self._ledger.begin(call.id, entry, hold)
        except EnvironmentTrouble as trouble:
            raise BudgetSpent(f"whether a hard budget has room cannot be told: {trouble}") from None

    async def metered(self, call: CallMade) -> None:
        """A model call came back: into the ledger, and into the events of its worker."""
        provider, event = self._roster.provider(call.worker, call.backend, call.model), None
        if call.owed:
            cost = None
            if call.usage and call.whole:
                cost = await self._prices.cost(provider, call.usage, time.time())
            event = UsageReported(
                provider=provider.name,
                model=call.model,
                usage=call.usage or Usage(),
                cost_usd=cost,
                source="gateway",
                status=call.status,
            )
        # The ledger first: of a go-ent that dies in between, a call is never counted twice.
        entry = self._entry(call.worker, provider, event) if event else None
        await self._ledger.settle(call.id, entry)
        if not self._roster.at_work(call.worker):
            return
        if event:
            await self._feed.append(call.worker, event)
        if call.status >= ERRORS and call.status != HUNG_UP:
            text = f"{call.backend}/{call.model} answered {call.status}: {call.error}"
            await self._feed.append(call.worker, Noticed(text=text.rstrip(": ")))

    async def moved(self, move: Moved) -> None:
        """Another provider goes on with a worker's turn."""
        if self._roster.at_work(move.worker):
            event = FailedOver(
                from_provider=move.from_provider,
                to_provider=move.to_provider,
                reason=move.reason,
            )
            await self._feed.append(move.worker, event)

    async def noticed(self, worker: str, text: str) -> None:
        if self._roster.at_work(worker):
            await self._feed.append(worker, Noticed(text=text))

    async def spent(self, spec: WorkerSpec, event: UsageReported) -> str:
        """What a driver metered by itself, of a provider that goes direct.

        Returns why the worker must not go on; empty if it may.
        """
        await self._ledger.add(self._entry(spec.id, spec.provider, event))
        return await self._allowance.overspent(spec.id)

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

    def _entry(self, worker: str, provider: Provider, event: UsageReported) -> LedgerEntry:
        spawned = self._feed.spawned(worker)
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
            group=spawned.group if spawned else "",
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
