"""Holds workers and their model calls to the budgets, and records what each call cost.

What a worker is likely to cost is held back before it starts; each call is held to the same limits
before it goes out. The ledger decides, for it knows what this user's other projects do meanwhile;
here it is said which limits there are, what the work is likely to take, and who would do it for less.

The line is begun before the call goes out. So whatever becomes of go-ent, a call that a provider
may bill is in the books: at worst as one of which nobody knows what it took.
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
    """Who is told what calls cost."""

    def spawned(self, worker: str) -> WorkerSpawned | None:
        """What was agreed when it began; None if it is not known."""
        ...

    async def append(self, worker: str, event: AnyEvent) -> object: ...


class CallerDirectory(Protocol):
    """Who makes calls now, and with whom."""

    def at_work(self, worker: str) -> bool: ...

    def provider(self, worker: str, backend: str, model: str) -> Provider: ...


NO_COST: Final = Decimal(0)


class Allowance:
    """What the workers of a project may spend."""

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
        """Hold back what the worker is likely to cost; what its owner is to be warned of.

        `likely` is what the task would cost at each provider whose price is known, and `sure` as
        much of that as is no guess. Raises `BudgetExceeded` if a hard limit has no room for the sure
        part; for the rest the calls themselves are held to the limit.
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
            told = budget_refusal(answer.exceeded, usd, what)
            raise BudgetExceeded(f"{told}; {self._advice(likely, route.provider, answer.exceeded)}")
        self._reserved.add(worker)
        if doubtful:
            told = tight_budget_warning(doubtful, usd, what)
            return (f"{told}; {self._advice(likely, route.provider, doubtful)}",)
        return self._warnings(likely, route.provider, answer, what)

    async def release(self, worker: str) -> None:
        """What the worker's task did not take is free again."""
        if worker in self._reserved:
            self._reserved.discard(worker)
            await self._ledger.release(self._spender(worker, None))

    def _check_enforceable(
        self, route: Route, limits: tuple[BudgetLimit, ...], *, known: bool
    ) -> None:
        """A hard limit holds only where the calls pass go-ent, at a price that it knows."""
        hard = next((limit for limit in limits if limit.hard), None)
        if hard is None:
            return
        name = f"provider {route.provider.name!r}"
        if self._is_direct(route.provider, route.method):
            if self._settings().budget.direct == "refuse":
                raise BudgetExceeded(
                    f"{hard.name} ({hard.setting}), is a hard limit, and calls to {name} do not pass "
                    "go-ent, which holds no key for it: give go-ent the key, choose another "
                    "provider, or set `budget: {direct: stop}` to have it stopped at its next step"
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
        """What a call is to be held to. Without a limit nobody has to know how large it is."""
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
        """What the worker's owner is to be warned of. Raises `BudgetSpent` if it may not go out."""
        usd = hold.usd or Decimal(0)
        if answer.exceeded and not answer.wait_s:
            told = budget_refusal(answer.exceeded, usd, f"the next call to {provider.name!r}")
            likely = await self._costs(provider, hold)
            raise BudgetSpent(f"{told}; {self._advice(likely, provider, answer.exceeded)}")
        fresh = tuple(s for s in answer.standings if self._is_news(worker, s, usd))
        if not fresh:
            return ()
        likely = await self._costs(provider, hold)
        what = f"the next call to {provider.name!r}"
        return self._warnings(likely, provider, Admission(standings=fresh), what)

    async def _costs(self, provider: Provider, hold: CallHold) -> dict[str, Decimal]:
        """Of the call, at each provider whose price is known."""
        found = {provider.name: hold.usd or Decimal(0)}
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
        """Which hard limit is used up, so that the worker must not go on; empty if it may."""
        return await self._used_up(self._limits(worker))

    async def _used_up(self, limits: tuple[BudgetLimit, ...]) -> str:
        hard = tuple(limit for limit in limits if limit.hard)
        for standing in await self._ledger.standings(hard, self._project) if hard else ():
            if standing.spent_usd >= standing.limit.usd:
                told = f"{standing.limit.name} ({standing.limit.setting}), is used up"
                return f"{told}: {standing.figures}; {_remedy(standing.limit)}"
        return ""

    # What both need

    async def standings(self) -> list[BudgetStatus]:
        """The limits that no single worker has, as they stand."""
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
        own = (
            limits_of_worker(
                budget, worker, spawned.budget_usd, spawned.group, spawned.group_budget_usd
            )
            if spawned
            else ()
        )
        shared = limits_of_all(budget, project=str(settings.project), at=time.time())
        return (*own, *shared)

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
        """Who would do it for less."""
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
        f"nobody can keep {limit.name} ({limit.setting}): set its `price` in .goent/providers.yaml"
    )


FIRST_ERROR_STATUS, HUNG_UP_STATUS = (
    400,
    499,
)  # HTTP's line between answer and error; a call that we gave up

log = logging.getLogger(__name__)


class CallBookkeeper:
    """The accounts of a project."""

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
        """A model call of a worker's is about to go out, if money and limits allow it."""
        provider = self._callers.provider(call.worker, call.backend, call.model)
        hold = await self._allowance.hold(call.worker, provider, size)
        answer = await self._admitted(call, provider, hold)
        for warning in await self._allowance.check_call(call.worker, provider, hold, answer):
            if self._callers.at_work(call.worker):
                await self._listener.append(call.worker, BudgetWarned(message=warning))
        if answer.admitted:
            return None
        held = f"calls under way may use up {answer.exceeded.limit.name}" if answer.exceeded else ""
        return CallDelay(reason=answer.reason or held, wait_s=answer.wait_s)

    async def _admitted(self, call: StartedCall, provider: Provider, hold: CallHold) -> Admission:
        entry = self._entry(call.worker, provider, _unknown_report(provider))
        try:
            return await self._ledger.begin_call(call.id, entry, hold)
        except EnvironmentTrouble as trouble:
            raise BudgetSpent(f"whether a hard budget has room cannot be told: {trouble}") from None

    async def call_finished(self, call: FinishedCall) -> None:
        """A model call came back: into the ledger, and into the events of its worker."""
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
        # The ledger first: of a go-ent that dies in between, a call is never counted twice.
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
        """Another provider goes on with a worker's turn."""
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
        """What a driver metered by itself, of a provider that goes direct.

        Returns why the worker must not go on; empty if it may.
        """
        await self._ledger.add(self._entry(spec.id, spec.provider, event))
        return await self._allowance.used_up_limit(spec.id)

    async def close_lost_calls(self) -> Mapping[str, Sequence[UsageReported]]:
        """The calls, by worker, that were under way when this project's last go-ent was killed."""
        found: dict[str, list[UsageReported]] = defaultdict(list)
        try:
            for entry in await self._ledger.settle_lost(str(self._settings().project)):
                provider = Provider(name=entry.provider, backend=entry.backend, model=entry.model)
                found[entry.worker].append(_unknown_report(provider))
        except GoentError as error:  # they stay where they are, for the next start
            log.warning("calls that a dead go-ent left open were not looked for: %s", error)
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
    """A call of which nothing is known but that it was made."""
    return UsageReported(
        provider=provider.name,
        model=provider.model,
        usage=Usage(),
        cost_usd=None,
        source="gateway",
        status=0,
    )
