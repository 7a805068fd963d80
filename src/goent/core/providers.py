"""Which providers are there, how are they, and what was spent on them?"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from goent.core.allowance import Allowance
from goent.core.feed import Feed
from goent.core.router import condition_now
from goent.core.views import timestamp
from goent.domain.budgets import Standing
from goent.domain.errors import RequestError
from goent.domain.health import Condition, Healths
from goent.domain.ledger import Ledger, Prices
from goent.domain.local_servers import ModelServers, NoServers
from goent.domain.provider_replies import (
    BudgetLine,
    CostLine,
    Costs,
    Forgotten,
    Health,
    PriceView,
    ProviderList,
    ProviderView,
)
from goent.domain.requests import CostsRequest, ForgetRequest, ProvidersRequest
from goent.domain.settings import Settings
from goent.domain.types import ENDED, Price, Provider, Usage, rounded_usd
from goent.policy.pins import none_configured

USABLE: frozenset[Health] = frozenset({"ready", "direct", "failing"})
TYPICAL = Usage(input=20_000, output=2_000)  # what `cost_estimate` prices until there is history
NOT_NOW = (
    "no provider can be used now; provider_list without healthy_only (`go-ent providers`) says why"
)


class Providers:
    """Answers from the settings, the ledger and what calls have shown."""

    def __init__(  # noqa: PLR0913 (the ports, each by name)
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        feed: Feed,
        ledger: Ledger,
        prices: Prices,
        allowance: Allowance,
        healths: Healths,
        servers: ModelServers = NoServers(),  # noqa: B008 (holds nothing)
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._feed = feed
        self._ledger = ledger
        self._prices = prices
        self._allowance = allowance
        self._healths = healths
        self._servers = servers

    async def list(self, request: ProvidersRequest) -> ProviderList:
        await self._servers.refresh()
        settings = self._settings()
        busy = Counter(
            view.provider
            for view in self._feed.views.values()
            if view.open and view.state not in ENDED
        )
        views = [await self._provider(p, settings, busy[p.name]) for p in settings.providers]
        if request.healthy_only:
            views = [view for view in views if view.health in USABLE]
        warnings = (*settings.warnings, *_remedies(settings, views))
        return ProviderList(providers=tuple(views), warnings=warnings)

    async def _provider(self, provider: Provider, settings: Settings, in_use: int) -> ProviderView:
        now = time.time()
        limits = provider.limits
        condition = condition_now(provider, self._healths.condition, self._servers)
        given = {"concurrency": limits.concurrency, "rpm": limits.rpm, "tpm": limits.tpm}
        return ProviderView(
            name=provider.name,
            backend=provider.backend,
            model=provider.model,
            method=provider.method,
            capabilities=provider.best_for,
            context_limit=provider.context_limit,
            price=_price(await self._prices.price(provider, now)),
            cost_estimate=rounded_usd(await self._prices.cost(provider, TYPICAL, now)),
            health=self._health(provider, settings, condition, now),
            health_reason=condition.reason,
            cooldown_until=_until(condition, now),
            in_use=in_use,
            calls=self._healths.under_way(provider),
            limits={name: limit for name, limit in given.items() if limit is not None},
            default=provider.name == settings.default_provider,
        )

    def _health(
        self, provider: Provider, settings: Settings, condition: Condition, now: float
    ) -> Health:
        backend = settings.backends.get(provider.backend)
        if backend is None and provider.backend not in settings.agents:
            return "unknown"
        environ = self._environ()
        if backend and backend.lacks_key(environ):
            return "no_key"
        silent = condition.state == "down" and condition.until is None  # a server that is asked
        if silent or condition.state == "failing" or condition.is_out(now):
            return "unknown" if condition.state == "healthy" else condition.state
        return "ready" if backend and backend.is_held(environ) else "direct"

    async def forget(self, request: ForgetRequest) -> Forgotten:
        """Ask providers again as if nothing had been: whoever mended one need not wait."""
        known = self._settings().providers
        meant = [p for p in known if request.provider in (None, p.name, p.backend)]
        if not meant:
            names = ", ".join(p.name for p in known) or "none"
            raise RequestError(f"unknown provider {request.provider!r}; there are: {names}")
        gone = [p.name for p in meant if await self._healths.forget(p)]
        return Forgotten(providers=tuple(gone))

    async def costs(self, request: CostsRequest) -> Costs:
        project = str(self._settings().project) if request.project_only else None
        rows = await self._ledger.report(by=request.by, project=project)
        lines = tuple(
            CostLine(
                key=row.key,
                calls=row.calls,
                usage=row.usage,
                cost_usd=rounded_usd(row.cost_usd),
                known_usd=float(round(row.known_usd, 9)),
                unknown_calls=row.unknown_calls,
            )
            for row in rows
        )
        known = sum((row.known_usd for row in rows), Decimal(0))
        unknown = sum(row.unknown_calls for row in rows)
        return Costs(
            by=request.by,
            rows=lines,
            total_usd=None if unknown else rounded_usd(known),
            known_usd=float(round(known, 9)),
            unknown_calls=unknown,
            budgets=tuple(_budget(standing) for standing in await self._allowance.standings()),
        )


def _budget(standing: Standing) -> BudgetLine:
    limit = standing.limit
    return BudgetLine(
        scope=limit.scope,
        key=limit.key,
        limit_usd=_figure(limit.usd),
        spent_usd=_figure(standing.spent_usd),
        held_usd=_figure(standing.held_usd),
        left_usd=_figure(standing.left_usd),
        hard=limit.hard,
        unknown_calls=standing.unknown_calls,
    )


def _figure(usd: Decimal) -> float:
    return float(round(usd, 9))


def _until(condition: Condition, now: float) -> str | None:
    until = condition.until if condition.is_out(now) else None
    return None if until is None else timestamp(until)


def _remedies(settings: Settings, listed: Sequence[ProviderView]) -> tuple[str, ...]:
    if listed:
        return ()
    return (NOT_NOW if settings.providers else none_configured(settings),)


def _price(price: Price | None) -> PriceView | None:
    if price is None:
        return None
    return PriceView(
        input=float(price.input),
        output=float(price.output),
        cache_read=rounded_usd(price.cache_read),
        cache_write=rounded_usd(price.cache_write),
    )
