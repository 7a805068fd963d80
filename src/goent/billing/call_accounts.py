"""Holds workers and their model calls to budgets, and records what each call cost.

A worker's likely cost is reserved before it starts, and each call is checked against the same limits
before it goes out. The ledger decides, because it knows what the user's other projects spend
meanwhile; this module says which limits hold, what the work is likely to cost, and what costs less.

A call's ledger entry begins before the call goes out. So even if go-ent is killed, every call that
a provider may bill is in the ledger, at worst with an unknown cost.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final, Protocol

from goent.billing.budget_rules import (
    RouteCost,
    budget_advice,
    budget_level,
    budget_refusal,
    budget_warning,
    limits_of_all,
    limits_of_worker,
    tight_budget_warning,
)
from goent.domain.errors import BudgetExceeded, BudgetSpent, EnvironmentTrouble, GoentError
from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    FailedOver,
    Noticed,
    UsageReported,
    WorkerSpawned,
)
from goent.domain.money import (
    Admission,
    BudgetLimit,
    BudgetStatus,
    CallDelay,
    CallHold,
    CallSizer,
    FinishedCall,
    Ledger,
    LedgerEntry,
    Prices,
    ProviderMove,
    Spender,
    StartedCall,
)
from goent.domain.ports import WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import Method, Provider, Route, Usage


class CostListener(Protocol):
    """The workers' events, where costs are reported."""

    def spawned(self, worker: str) -> WorkerSpawned | None:
        """The worker's first event; None if the worker is unknown."""
        ...

    async def append(self, worker: str, event: AnyEvent) -> object: ...


class CallerDirectory(Protocol):
    """The workers that make calls now, and their providers."""

    def at_work(self, worker: str) -> bool: ...

    def provider(self, worker: str, backend: str, model: str) -> Provider: ...


NO_COST: Final = Decimal(0)
FIRST_ERROR_STATUS = 400
HUNG_UP_STATUS = 499  # of a call that go-ent gave up

log = logging.getLogger(__name__)


class Allowance:
    """Holds the workers of a project, and their calls, to budgets."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        feed: CostListener,
        ledger: Ledger,
        prices: Prices,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._listener = feed
        self._ledger = ledger
        self._prices = prices
        self._reserved: set[str] = set()
        self._warned: set[tuple[str, str, str, str]] = set()

    # A worker

    async def allow(
        self,
        worker: str,
        route: Route,
        spawned: WorkerSpawned,
        likely: Mapping[str, Decimal],
        sure: Mapping[str, Decimal],
    ) -> tuple[str, ...]:
        """Reserve the worker's likely cost; returns warnings for its owner.

        `likely` is the task's cost at each provider with a known price, and `sure` the part of it
        that is certain. Raises `BudgetExceeded` if a hard limit has no room for the certain part;
        beyond that, the calls themselves are held to the limit.
        """
        limits = self._limits(worker, spawned)
        if not limits:
            return ()
        usd = likely.get(route.provider.name)
        self._check_enforceable(route, limits, known=usd is not None)
        if usd is None:
            if used_up := await self._used_up(limits):
                raise BudgetExceeded(used_up)
            return (_no_price(route.provider, limits[0]),)
        what = f"this task on {route.provider.name!r}"
        spender = self._spender(worker, spawned)
        answer = await self._ledger.hold_back(spender, usd, limits)
        if (doubtful := answer.exceeded) and not await self._used_up(limits):
            answer = await self._ledger.hold_back(
                spender, sure.get(route.provider.name, NO_COST), limits
            )
        if answer.exceeded:
            refusal = budget_refusal(answer.exceeded, usd, what)
            advice = self._advice(likely, route.provider, answer.exceeded)
            raise BudgetExceeded(f"{refusal}; {advice}")
        self._reserved.add(worker)
        if doubtful:
            warning = tight_budget_warning(doubtful, usd, what)
            return (f"{warning}; {self._advice(likely, route.provider, doubtful)}",)
        return self._warnings(likely, route.provider, answer, what)

    async def release(self, worker: str) -> None:
        """Free what is left of the worker's reservation."""
        if worker in self._reserved:
            self._reserved.discard(worker)
            await self._ledger.release(self._spender(worker, None))

    def _check_enforceable(
        self, route: Route, limits: tuple[BudgetLimit, ...], *, known: bool
    ) -> None:
        """A hard limit needs calls that pass through go-ent, at a known price."""
        hard = next((limit for limit in limits if limit.hard), None)
        if hard is None:
            return
        name = f"provider {route.provider.name!r}"
        if self._is_direct(route.provider, route.method):
            if self._settings().budget.direct == "refuse":
                raise BudgetExceeded(
                    f"{hard.name} ({hard.setting}), is a hard limit, but calls to {name} do not pass "
                    "through go-ent, which has no key for it: give go-ent the key, choose another "
                    "provider, or set `budget: {direct: stop}` to stop the worker at its next step"
                )
        elif not known:
            raise BudgetExceeded(f"{_no_price(route.provider, hard)}, or choose another provider")

    def _is_direct(self, provider: Provider, method: Method) -> bool:
        settings = self._settings()
        if method == "serve" and settings.opencode.serve_url:
            return True
        backend = settings.backends.get(provider.backend)
        return backend is None or not backend.is_held(self._environ())

    # A call

    async def hold(self, worker: str, provider: Provider, sizing: CallSizer) -> CallHold:
        """What a call may cost and its limits; without limits its size is not estimated."""
        limits, pace = self._limits(worker), provider.limits
        if not limits and pace.tpm is None:
            return CallHold(pace=pace)
        size = await sizing()
        usage = Usage(input=size.input, output=size.output)
        usd = await self._prices.cost(provider, usage, time.time())
        hard = next((limit for limit in limits if limit.hard), None)
        if usd is None and hard:
            raise BudgetSpent(_no_price(provider, hard))
        return CallHold(usd=usd, usage=usage, limits=limits, pace=pace)

    async def check_call(
        self, worker: str, provider: Provider, hold: CallHold, answer: Admission
    ) -> tuple[str, ...]:
        """Warnings for the worker's owner. Raises `BudgetSpent` if the call may not go out."""
        usd = hold.usd or NO_COST
        what = f"the next call to {provider.name!r}"
        if answer.exceeded and not answer.wait_s:
            likely = await self._costs(provider, hold)
            advice = self._advice(likely, provider, answer.exceeded)
            raise BudgetSpent(f"{budget_refusal(answer.exceeded, usd, what)}; {advice}")
        fresh = tuple(s for s in answer.standings if self._is_news(worker, s, usd))
        if not fresh:
            return ()
        likely = await self._costs(provider, hold)
        return self._warnings(likely, provider, Admission(standings=fresh), what)

    async def _costs(self, provider: Provider, hold: CallHold) -> dict[str, Decimal]:
        """The call's cost at each provider with a known price."""
        found = {provider.name: hold.usd or NO_COST}
        for other in self._settings().providers:
            cost = await self._prices.cost(other, hold.usage, time.time())
            if cost is not None:
                found.setdefault(other.name, cost)
        return found

    def _is_news(self, worker: str, standing: BudgetStatus, usd: Decimal) -> bool:
        found = budget_level(standing, usd)
        key = (worker, standing.limit.setting, standing.limit.key, found or "")
        if found is None or key in self._warned:
            return False
        self._warned.add(key)
        return True

    async def used_up_limit(self, worker: str) -> str:
        """The hard limit that is used up, so that the worker must stop; empty if there is none."""
        return await self._used_up(self._limits(worker))

    async def _used_up(self, limits: tuple[BudgetLimit, ...]) -> str:
        hard = tuple(limit for limit in limits if limit.hard)
        for standing in await self._ledger.standings(hard, self._project) if hard else ():
            if standing.spent_usd >= standing.limit.usd:
                limit = standing.limit
                return (
                    f"{limit.name} ({limit.setting}), is used up: {standing.figures}; "
                    f"{_remedy(limit)}"
                )
        return ""

    # Both

    async def standings(self) -> list[BudgetStatus]:
        """The status of the limits that no single worker has."""
        budget = self._settings().budget
        limits = limits_of_all(budget, project=self._project, at=time.time())
        return await self._ledger.standings(limits, self._project) if limits else []

    @property
    def _project(self) -> str:
        return str(self._settings().project)

    def _spender(self, worker: str, spawned: WorkerSpawned | None) -> Spender:
        group = spawned.group if spawned else ""
        return Spender(project=self._project, worker=worker, group=group)

    def _limits(self, worker: str, spawned: WorkerSpawned | None = None) -> tuple[BudgetLimit, ...]:
        settings = self._settings()
        spawned = spawned or self._listener.spawned(worker)
        budget = settings.budget
        shared = limits_of_all(budget, project=str(settings.project), at=time.time())
        if not spawned:
            return shared
        asked, group_usd = spawned.budget_usd, spawned.group_budget_usd
        return (*limits_of_worker(budget, worker, asked, spawned.group, group_usd), *shared)

    def _warnings(
        self, likely: Mapping[str, Decimal], provider: Provider, answer: Admission, what: str
    ) -> tuple[str, ...]:
        usd = likely[provider.name]
        return tuple(
            f"{budget_warning(standing, usd, found, what)}; {self._advice(likely, provider, standing)}"
            for standing in answer.standings
            if (found := budget_level(standing, usd))
        )

    def _advice(
        self, likely: Mapping[str, Decimal], provider: Provider, standing: BudgetStatus
    ) -> str:
        others = [
            RouteCost(provider=other.name, usd=likely[other.name])
            for other in self._settings().providers
            if other.name in likely
            and other.name != provider.name
            and not self._is_direct(other, other.method)
        ]
        usd = likely[provider.name]
        return budget_advice(others, usd, standing.left_usd, standing.limit.setting)


def _remedy(limit: BudgetLimit) -> str:
    own = limit.setting == "budget_usd"
    return "spawn another worker with more" if own else f"raise {limit.setting}"


def _no_price(provider: Provider, limit: BudgetLimit) -> str:
    return (
        f"no price is known for provider {provider.name!r} ({provider.backend}/{provider.model}), so "
        f"{limit.name} ({limit.setting}), cannot be enforced: set its `price` in .goent/providers.yaml"
    )


class CallBookkeeper:
    """Enters the model calls of a project in the ledger and in the workers' events."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        feed: CostListener,
        ledger: Ledger,
        prices: Prices,
        roster: CallerDirectory,
        allowance: Allowance,
    ) -> None:
        self._settings = settings
        self._listener = feed
        self._ledger = ledger
        self._prices = prices
        self._callers = roster
        self._allowance = allowance

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        """Admit a worker's model call, if budgets and rate limits allow it."""
        provider = self._callers.provider(call.worker, call.backend, call.model)
        hold = await self._allowance.hold(call.worker, provider, size)
        answer = await self._admitted(call, provider, hold)
        for warning in await self._allowance.check_call(call.worker, provider, hold, answer):
            if self._callers.at_work(call.worker):
                await self._listener.append(call.worker, BudgetWarned(message=warning))
        if answer.admitted:
            return None
        limit = answer.exceeded.limit.name if answer.exceeded else ""
        full = f"calls in progress may use up {limit}" if limit else ""
        return CallDelay(reason=answer.reason or full, wait_s=answer.wait_s)

    async def _admitted(self, call: StartedCall, provider: Provider, hold: CallHold) -> Admission:
        entry = self._entry(call.worker, provider, _unknown_report(provider))
        try:
            return await self._ledger.begin_call(call.id, entry, hold)
        except EnvironmentTrouble as trouble:
            raise BudgetSpent(f"a hard budget cannot be checked: {trouble}") from None

    async def call_finished(self, call: FinishedCall) -> None:
        """Enter a call that ended in the ledger, and in its worker's events."""
        provider, event = self._callers.provider(call.worker, call.backend, call.model), None
        if call.billable:
            cost = None
            if call.usage and call.is_final:
                cost = await self._prices.cost(provider, call.usage, time.time())
            event = UsageReported(
                provider=provider.name,
                model=call.model,
                usage=call.usage or Usage(),
                cost_usd=cost,
                source="gateway",
                status=call.status,
            )
        # The ledger first: if go-ent dies in between, no call is counted twice.
        entry = self._entry(call.worker, provider, event) if event else None
        await self._ledger.settle_call(call.id, entry)
        if not self._callers.at_work(call.worker):
            return
        if event:
            await self._listener.append(call.worker, event)
        if call.status >= FIRST_ERROR_STATUS and call.status != HUNG_UP_STATUS:
            text = f"{call.backend}/{call.model} answered {call.status}: {call.error}"
            await self._listener.append(call.worker, Noticed(text=text.rstrip(": ")))

    async def provider_changed(self, move: ProviderMove) -> None:
        """Another provider takes over a worker's turn."""
        if self._callers.at_work(move.worker):
            event = FailedOver(
                from_provider=move.from_provider,
                to_provider=move.to_provider,
                reason=move.reason,
            )
            await self._listener.append(move.worker, event)

    async def notice(self, worker: str, text: str) -> None:
        if self._callers.at_work(worker):
            await self._listener.append(worker, Noticed(text=text))

    async def record_usage(self, spec: WorkerSpec, event: UsageReported) -> str:
        """Enter usage that a driver reported, of a provider whose calls bypass go-ent.

        Returns why the worker must stop; empty if it may continue.
        """
        await self._ledger.add(self._entry(spec.id, spec.provider, event))
        return await self._allowance.used_up_limit(spec.id)

    async def close_lost_calls(self) -> Mapping[str, Sequence[UsageReported]]:
        """The calls, by worker, that were in progress when this project's last go-ent was killed."""
        found: dict[str, list[UsageReported]] = defaultdict(list)
        try:
            for entry in await self._ledger.settle_lost(str(self._settings().project)):
                provider = Provider(name=entry.provider, backend=entry.backend, model=entry.model)
                found[entry.worker].append(_unknown_report(provider))
        except GoentError as error:  # they stay in the ledger for the next start
            log.warning("calls that a killed go-ent left open cannot be closed: %s", error)
        return found

    def _entry(self, worker: str, provider: Provider, event: UsageReported) -> LedgerEntry:
        spawned = self._listener.spawned(worker)
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


def _unknown_report(provider: Provider) -> UsageReported:
    """A call of which only its existence is known."""
    return UsageReported(
        provider=provider.name,
        model=provider.model,
        usage=Usage(),
        cost_usd=None,
        source="gateway",
        status=0,
    )
