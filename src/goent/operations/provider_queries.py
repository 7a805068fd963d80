"""Answers questions about providers: their state and costs, and which one would get a task."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from anyio import to_thread

from goent.billing.call_accounts import Allowance
from goent.domain.errors import RequestError
from goent.domain.local_servers import ModelServers, NoModelServers
from goent.domain.money import BudgetStatus, Ledger, Prices
from goent.domain.provider_condition import ProviderCondition, ProviderHealth
from goent.domain.replies import (
    BudgetLine,
    CandidateView,
    CostLine,
    Costs,
    Estimate,
    ExplainReply,
    ForgetReply,
    HealthLabel,
    LearnedReply,
    Option,
    PriceView,
    ProviderList,
    ProviderView,
    RecommendReply,
    RuleList,
    RuleView,
    StepView,
    TaskView,
)
from goent.domain.requests import CostsRequest, ForgetRequest, ProvidersRequest, RecommendRequest
from goent.domain.settings import Settings
from goent.domain.task_profile import Classification, Forecast
from goent.domain.types import ENDED_STATES, Price, Provider, Route, Usage, rounded_usd
from goent.routing.backtest import run_backtest
from goent.routing.pins import none_configured
from goent.routing.route_decision import rule_conditions, rule_label
from goent.routing.route_facts import usd_text
from goent.routing.router import RoutedTask, Router, RouteRequest, condition_now
from goent.routing.task_advice import advise
from goent.workers.feed import Feed
from goent.workers.task_intake import existing_files
from goent.workers.views import timestamp

FEATURES_LIMIT = 8  # features that are shown
USABLE_HEALTH: frozenset[HealthLabel] = frozenset({"ready", "direct", "failing"})
TYPICAL_USAGE = Usage(
    input=20_000, output=2_000
)  # what `cost_estimate` prices until there is history
NONE_USABLE = (
    "no provider can be used now; provider_list without healthy_only (`go-ent providers`) says why"
)


class Recommender:
    """Answers before a task is handed over."""

    def __init__(self, router: Router, settings: Callable[[], Settings]) -> None:
        self._router = router
        self._settings = settings

    async def recommend(self, request: RecommendRequest, base: Path) -> RecommendReply:
        routed = await self._routed(request, base)
        route, others = routed.decision.route, routed.decision.alternatives
        return RecommendReply(
            provider=route.provider.name,
            model=route.provider.model,
            method=route.method,
            rationale=_rationale(route),
            features=task_view(routed.task),
            estimate=estimate(routed.forecast),
            alternatives=tuple([await self._option(routed, each) for each in others]),
            advice=tuple(advise(routed.task, request.files, route.method, routed.forecast)),
            warnings=(
                *self.notices,
                *routed.decision.warnings,
                *_budget_warnings(routed, request.budget_usd),
            ),
        )

    async def explain(self, request: RecommendRequest, base: Path) -> ExplainReply:
        routed = await self._routed(request, base)
        decision = routed.decision
        route = decision.chosen_route
        return ExplainReply(
            provider=route.provider.name if route else None,
            model=route.provider.model if route else None,
            method=route.method if route else None,
            reason=route.reason if route else decision.refusal,
            fallbacks=tuple(p.name for p in route.fallbacks) if route else (),
            features=task_view(routed.task),
            estimate=estimate(routed.forecast) if route else Estimate(),
            steps=tuple(
                StepView(source=s.source, name=s.name, decided=s.decided, why=s.why)
                for s in decision.steps
            ),
            candidates=tuple(
                CandidateView(
                    provider=c.provider.name,
                    obstacle=c.obstacle,
                    estimate=estimate(routed.forecasts[c.provider.name]),
                )
                for c in decision.candidates
            ),
            warnings=(*self.notices, *decision.warnings),
        )

    async def learned(self) -> LearnedReply:
        return await to_thread.run_sync(run_backtest, await self._router.knowledge())

    @property
    def notices(self) -> tuple[str, ...]:
        """What is wrong with the rules as they are written now."""
        return self._router.notices()

    def rules(self) -> RuleList:
        settings = self._settings()
        return RuleList(
            rules=tuple(
                RuleView(
                    name=rule_label(rule, number),
                    conditions=rule_conditions(rule),
                    provider=rule.provider,
                    model=rule.model,
                    method=rule.method,
                )
                for number, rule in enumerate(settings.rules, 1)
            ),
            defaults=dict(settings.defaults),
            default_provider=settings.default_provider if settings.default_chosen else None,
            warnings=(*self.notices, *settings.warnings),
        )

    async def _routed(self, request: RecommendRequest, base: Path) -> RoutedTask:
        if not request.task.strip():
            raise RequestError("the task is empty: say what the worker would have to do")
        budget = request.budget_usd
        asked = RouteRequest(
            text=request.task,
            cwd=base,
            files=existing_files(request.files, base),
            context_tokens=request.context_tokens,
            budget_usd=None if budget is None else Decimal(str(budget)),
        )
        return await self._router.route(asked)

    async def _option(self, routed: RoutedTask, route: Route) -> Option:
        forecast = await self._router.forecast(routed.task, route.provider, route.method)
        return Option(
            provider=route.provider.name,
            model=route.provider.model,
            method=route.method,
            estimate=estimate(forecast),
        )


def _budget_warnings(routed: RoutedTask, budget: float | None) -> Iterable[str]:
    most = routed.forecast.p90_usd
    if budget is not None and most is not None and most > Decimal(str(budget)):
        name = routed.decision.route.provider.name
        yield f"{name} may cost up to {usd_text(most)}, above the budget_usd of ${budget:g}"


def _rationale(route: Route) -> str:
    if route.method != "cli":
        return route.reason
    return f"{route.reason}. By cli nobody can be asked: pass permissions auto, or it goes by acp"


def estimate(forecast: Forecast) -> Estimate:
    low, high = rounded_usd(forecast.p50_usd), rounded_usd(forecast.p90_usd)
    return Estimate(
        cost_usd=None if low is None or high is None else (low, high),
        seconds=forecast.seconds,
        source=forecast.source,
        samples=forecast.samples,
    )


def task_view(task: Classification) -> TaskView:
    return TaskView(
        type=task.type,
        confidence=task.confidence,
        complexity=task.complexity,
        files=task.files,
        size=task.size,
        context_tokens=task.context_tokens,
        signs=tuple(_feature_lines(task)),
    )


def _feature_lines(task: Classification) -> Iterable[str]:
    for feature in task.features[:FEATURES_LIMIT]:
        yield f"{feature.of}: {feature.name} ({feature.weight:+.2g})"


class ProviderQueries:
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
        healths: ProviderHealth,
        servers: ModelServers = NoModelServers(),  # noqa: B008 (holds nothing)
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
            if view.open and view.state not in ENDED_STATES
        )
        views = [await self._provider(p, settings, busy[p.name]) for p in settings.providers]
        if request.healthy_only:
            views = [view for view in views if view.health in USABLE_HEALTH]
        warnings = (*settings.warnings, *_list_warnings(settings, views))
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
            price=_price_view(await self._prices.price(provider, now)),
            cost_estimate=rounded_usd(await self._prices.cost(provider, TYPICAL_USAGE, now)),
            health=self._health(provider, settings, condition, now),
            health_reason=condition.reason,
            cooldown_until=_cooldown_until(condition, now),
            in_use=in_use,
            calls=self._healths.calls_in_flight(provider),
            limits={name: limit for name, limit in given.items() if limit is not None},
            default=provider.name == settings.default_provider,
        )

    def _health(
        self, provider: Provider, settings: Settings, condition: ProviderCondition, now: float
    ) -> HealthLabel:
        backend = settings.backends.get(provider.backend)
        if backend is None and provider.backend not in settings.agents:
            return "unknown"
        environ = self._environ()
        if backend and backend.lacks_key(environ):
            return "no_key"
        silent = condition.state == "down" and condition.until is None  # a server that is asked
        if silent or condition.state == "failing" or condition.is_unavailable(now):
            return "unknown" if condition.state == "healthy" else condition.state
        return "ready" if backend and backend.is_held(environ) else "direct"

    async def forget(self, request: ForgetRequest) -> ForgetReply:
        """Ask providers again as if nothing had been: whoever mended one need not wait."""
        known = self._settings().providers
        meant = [p for p in known if request.provider in (None, p.name, p.backend)]
        if not meant:
            names = ", ".join(p.name for p in known) or "none"
            raise RequestError(f"unknown provider {request.provider!r}; there are: {names}")
        gone = [p.name for p in meant if await self._healths.forget(p)]
        return ForgetReply(providers=tuple(gone))

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
            budgets=tuple(_budget_line(standing) for standing in await self._allowance.standings()),
        )


def _budget_line(standing: BudgetStatus) -> BudgetLine:
    limit = standing.limit
    return BudgetLine(
        scope=limit.scope,
        key=limit.key,
        limit_usd=_rounded(limit.usd),
        spent_usd=_rounded(standing.spent_usd),
        held_usd=_rounded(standing.held_usd),
        left_usd=_rounded(standing.left_usd),
        hard=limit.hard,
        unknown_calls=standing.unknown_calls,
    )


def _rounded(usd: Decimal) -> float:
    return float(round(usd, 9))


def _cooldown_until(condition: ProviderCondition, now: float) -> str | None:
    until = condition.until if condition.is_unavailable(now) else None
    return None if until is None else timestamp(until)


def _list_warnings(settings: Settings, listed: Sequence[ProviderView]) -> tuple[str, ...]:
    if listed:
        return ()
    return (NONE_USABLE if settings.providers else none_configured(settings),)


def _price_view(price: Price | None) -> PriceView | None:
    if price is None:
        return None
    return PriceView(
        input=float(price.input),
        output=float(price.output),
        cache_read=rounded_usd(price.cache_read),
        cache_write=rounded_usd(price.cache_write),
    )
