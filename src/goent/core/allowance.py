"""May a worker begin, and may its next call go out, as far as money is concerned?

What a worker is likely to cost is held back before it starts; each call is held to the same limits
before it goes out. The ledger decides, for it knows what this user's other projects do meanwhile;
here it is said which limits there are, what the work is likely to take, and who would do it for less.
"""

import time
from collections.abc import Callable, Mapping
from decimal import Decimal

from goent.core.feed import Feed
from goent.domain.budgets import Admission, Hold, Limit, Spender, Standing
from goent.domain.errors import BudgetExceeded, BudgetSpent
from goent.domain.events import WorkerSpawned
from goent.domain.forecasts import Forecast
from goent.domain.ports import Ledger, Prices, Sizing
from goent.domain.settings import Settings
from goent.domain.types import Method, Provider, Route, Usage
from goent.llm.estimate import estimate_tokens
from goent.policy.budgets import (
    Alternative,
    advice,
    level,
    likely_usage,
    limits_of_all,
    limits_of_worker,
    refusal,
    warning,
)

MOST_ESTIMATED = 200_000  # characters of a task that are read to guess its tokens


class Allowance:
    """What the workers of a project may spend."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        feed: Feed,
        ledger: Ledger,
        prices: Prices,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._feed = feed
        self._ledger = ledger
        self._prices = prices
        self._reserved: set[str] = set()
        self._warned: set[tuple[str, str, str, str]] = set()

    # A worker

    async def allow(
        self, worker: str, route: Route, spawned: WorkerSpawned, forecast: Forecast | None = None
    ) -> tuple[str, ...]:
        """Hold back what the worker is likely to cost; what its owner is to be warned of.

        Raises `BudgetExceeded` if a hard limit has no room for it.
        """
        limits = self._limits(worker, spawned)
        if not limits:
            return ()
        usage = likely_usage(route.method, estimate_tokens(spawned.task[:MOST_ESTIMATED]))
        usd = await self._likely(route, usage, forecast)
        self._check_watched(route, limits, known=usd is not None)
        if usd is None:
            if used_up := await self._used_up(limits):
                raise BudgetExceeded(used_up)
            return (_unwatched(route.provider, limits[0]),)
        answer = await self._ledger.hold_back(self._spender(worker, spawned), usd, limits)
        what = f"this task on {route.provider.name!r}"
        if answer.passed:
            told = refusal(answer.passed, usd, what)
            hint = await self._advice(route.provider, usage, usd, answer.passed)
            raise BudgetExceeded(f"{told}; {hint}")
        self._reserved.add(worker)
        return await self._warnings(route.provider, usage, usd, answer, what)

    async def release(self, worker: str) -> None:
        """What the worker's task did not take is free again."""
        if worker in self._reserved:
            self._reserved.discard(worker)
            await self._ledger.release(self._spender(worker, None))

    async def _likely(
        self, route: Route, usage: Usage, forecast: Forecast | None
    ) -> Decimal | None:
        if forecast and forecast.p50_usd is not None:
            return forecast.p50_usd
        return await self._prices.cost(route.provider, usage, time.time())

    def _check_watched(self, route: Route, limits: tuple[Limit, ...], *, known: bool) -> None:
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
            raise BudgetExceeded(f"{_unwatched(route.provider, hard)}, or choose another provider")

    def _is_direct(self, provider: Provider, method: Method) -> bool:
        settings = self._settings()
        if method == "serve" and settings.opencode.serve_url:
            return True
        backend = settings.backends.get(provider.backend)
        return backend is None or not backend.resolve_key(self._environ())

    # A call

    async def hold(self, worker: str, provider: Provider, sizing: Sizing) -> Hold:
        """What a call is to be held to. Without a limit nobody has to know how large it is."""
        limits, pace = self._limits(worker), provider.limits
        if not limits and pace.tpm is None:
            return Hold(pace=pace)
        size = await sizing()
        usage = Usage(input=size.input, output=size.output)
        usd = await self._prices.cost(provider, usage, time.time())
        hard = next((limit for limit in limits if limit.hard), None)
        if usd is None and hard:
            raise BudgetSpent(_unwatched(provider, hard))
        return Hold(usd=usd, usage=usage, limits=limits, pace=pace)

    async def judged(
        self, worker: str, provider: Provider, hold: Hold, answer: Admission
    ) -> tuple[str, ...]:
        """What the worker's owner is to be warned of. Raises `BudgetSpent` if it may not go out."""
        usd = hold.usd or Decimal(0)
        if answer.passed and not answer.wait_s:
            told = refusal(answer.passed, usd, f"the next call to {provider.name!r}")
            hint = await self._advice(provider, hold.usage, usd, answer.passed)
            raise BudgetSpent(f"{told}; {hint}")
        fresh = tuple(s for s in answer.standings if self._is_news(worker, s, usd))
        if not fresh:
            return ()
        return await self._warnings(
            provider,
            hold.usage,
            usd,
            Admission(standings=fresh),
            f"the next call to {provider.name!r}",
        )

    def _is_news(self, worker: str, standing: Standing, usd: Decimal) -> bool:
        found = level(standing, usd)
        key = (worker, standing.limit.setting, standing.limit.key, found or "")
        if found is None or key in self._warned:
            return False
        self._warned.add(key)
        return True

    async def overspent(self, worker: str) -> str:
        """Which hard limit is used up, so that the worker must not go on; empty if it may."""
        return await self._used_up(self._limits(worker))

    async def _used_up(self, limits: tuple[Limit, ...]) -> str:
        hard = tuple(limit for limit in limits if limit.hard)
        for standing in await self._ledger.standings(hard, self._project) if hard else ():
            if standing.spent_usd >= standing.limit.usd:
                told = f"{standing.limit.name} ({standing.limit.setting}), is used up"
                return f"{told}: {standing.figures}; {_remedy(standing.limit)}"
        return ""

    # What both need

    async def standings(self) -> list[Standing]:
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

    def _limits(self, worker: str, spawned: WorkerSpawned | None = None) -> tuple[Limit, ...]:
        settings, view = self._settings(), self._feed.views.get(worker)
        spawned = spawned or (view.spawned if view else None)
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

    async def _warnings(
        self, provider: Provider, usage: Usage, usd: Decimal, answer: Admission, what: str
    ) -> tuple[str, ...]:
        told: list[str] = []
        for standing in answer.standings:
            if found := level(standing, usd):
                hint = await self._advice(provider, usage, usd, standing)
                told.append(f"{warning(standing, usd, found, what)}; {hint}")
        return tuple(told)

    async def _advice(
        self, provider: Provider, usage: Usage, usd: Decimal, standing: Standing
    ) -> str:
        """Others are compared by their prices for the same tokens."""
        own = await self._prices.cost(provider, usage, time.time())
        others: list[Alternative] = []
        for other in self._settings().providers:
            if other.name == provider.name or self._is_direct(other, other.method):
                continue
            cost = await self._prices.cost(other, usage, time.time())
            if cost is not None and own:
                others.append(Alternative(provider=other.name, usd=usd * cost / own))
        return advice(others, usd, standing.left_usd, standing.limit.setting)


def _remedy(limit: Limit) -> str:
    own = limit.setting == "budget_usd"
    return "spawn another worker with more" if own else f"raise {limit.setting}"


def _unwatched(provider: Provider, limit: Limit) -> str:
    return (
        f"no price is known for provider {provider.name!r} ({provider.backend}/{provider.model}), so "
        f"nobody can keep {limit.name} ({limit.setting}): set its `price` in .goent/providers.yaml"
    )
