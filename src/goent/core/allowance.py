"""May a worker begin, and may its next call go out, as far as money is concerned?

What a worker is likely to cost is held back before it starts; each call is held to the same limits
before it goes out. The ledger decides, for it knows what this user's other projects do meanwhile;
here it is said which limits there are, what the work is likely to take, and who would do it for less.
"""

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from goent.core.payers import Payers
from goent.domain.budgets import Admission, Hold, Limit, Spender, Standing
from goent.domain.calls import Sizing
from goent.domain.errors import BudgetExceeded, BudgetSpent
from goent.domain.events import WorkerSpawned
from goent.domain.ledger import Ledger, Prices
from goent.domain.settings import Settings
from goent.domain.types import Method, Provider, Route, Usage
from goent.policy.budgets import (
    Alternative,
    advice,
    doubt,
    level,
    limits_of_all,
    limits_of_worker,
    refusal,
    warning,
)

NONE: Final = Decimal(0)


class Allowance:
    """What the workers of a project may spend."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        feed: Payers,
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
        self._check_watched(route, limits, known=usd is not None)
        if usd is None:
            if used_up := await self._used_up(limits):
                raise BudgetExceeded(used_up)
            return (_unwatched(route.provider, limits[0]),)
        what = f"this task on {route.provider.name!r}"
        spender = self._spender(worker, spawned)
        answer = await self._ledger.hold_back(spender, usd, limits)
        if (doubtful := answer.passed) and not await self._used_up(limits):
            answer = await self._ledger.hold_back(
                spender, sure.get(route.provider.name, NONE), limits
            )
        if answer.passed:
            told = refusal(answer.passed, usd, what)
            raise BudgetExceeded(f"{told}; {self._advice(likely, route.provider, answer.passed)}")
        self._reserved.add(worker)
        if doubtful:
            told = doubt(doubtful, usd, what)
            return (f"{told}; {self._advice(likely, route.provider, doubtful)}",)
        return self._warnings(likely, route.provider, answer, what)

    async def release(self, worker: str) -> None:
        """What the worker's task did not take is free again."""
        if worker in self._reserved:
            self._reserved.discard(worker)
            await self._ledger.release(self._spender(worker, None))

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
        return backend is None or not backend.is_held(self._environ())

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
            likely = await self._costs(provider, hold)
            raise BudgetSpent(f"{told}; {self._advice(likely, provider, answer.passed)}")
        fresh = tuple(s for s in answer.standings if self._is_news(worker, s, usd))
        if not fresh:
            return ()
        likely = await self._costs(provider, hold)
        what = f"the next call to {provider.name!r}"
        return self._warnings(likely, provider, Admission(standings=fresh), what)

    async def _costs(self, provider: Provider, hold: Hold) -> dict[str, Decimal]:
        """Of the call, at each provider whose price is known."""
        found = {provider.name: hold.usd or Decimal(0)}
        for other in self._settings().providers:
            cost = await self._prices.cost(other, hold.usage, time.time())
            if cost is not None:
                found.setdefault(other.name, cost)
        return found

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
        settings = self._settings()
        spawned = spawned or self._feed.spawned(worker)
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
            f"{warning(standing, usd, found, what)}; {self._advice(likely, provider, standing)}"
            for standing in answer.standings
            if (found := level(standing, usd))
        )

    def _advice(self, likely: Mapping[str, Decimal], provider: Provider, standing: Standing) -> str:
        """Who would do it for less."""
        others = [
            Alternative(provider=other.name, usd=likely[other.name])
            for other in self._settings().providers
            if other.name in likely
            and other.name != provider.name
            and not self._is_direct(other, other.method)
        ]
        usd = likely[provider.name]
        return advice(others, usd, standing.left_usd, standing.limit.setting)


def _remedy(limit: Limit) -> str:
    own = limit.setting == "budget_usd"
    return "spawn another worker with more" if own else f"raise {limit.setting}"


def _unwatched(provider: Provider, limit: Limit) -> str:
    return (
        f"no price is known for provider {provider.name!r} ({provider.backend}/{provider.model}), so "
        f"nobody can keep {limit.name} ({limit.setting}): set its `price` in .goent/providers.yaml"
    )
