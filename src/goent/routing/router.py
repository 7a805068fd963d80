"""Routes a task: gathers its classification, prices, history and health, and lets the rules decide."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec.structs import replace

from goent.domain.local_servers import ModelServers, NoModelServers
from goent.domain.money import BudgetStatus, Prices
from goent.domain.provider_condition import ProviderCondition
from goent.domain.settings import Settings
from goent.domain.task_profile import (
    Classification,
    Classifier,
    Forecast,
    TaskHistory,
    TaskSample,
    TaskText,
)
from goent.domain.types import Method, Pin, Price, Provider, Value
from goent.routing.backtest import RoutingKnowledge
from goent.routing.experience import Experience
from goent.routing.forecast import PastTasks, forecast_task
from goent.routing.route_decision import RouteDecision, decide_route
from goent.routing.route_facts import RouteFacts
from goent.routing.task_advice import needs_no_tools, only_reads

NO_FORECAST = Forecast(p50_usd=None, p90_usd=None, source="estimate")


class TaskClassifier:
    """Classifies in a thread; the model is loaded with the first task."""

    async def classify(self, task: TaskText, cwd: Path) -> Classification:
        return await to_thread.run_sync(partial(_classify, task, cwd))


def _classify(task: TaskText, cwd: Path) -> Classification:
    # Loading takes a while, and a daemon without tasks needs none of it.
    from goent.routing import classification, task_features  # noqa: PLC0415 (see above)

    context = classification.count_context(task, cwd)
    return classification.classify(task, weights=task_features.load_weights(), context=context)


class RouteRequest(Value, frozen=True, kw_only=True):
    """A task before routing. `may_ask`: its permissions may have to ask somebody.

    With `chosen_permissions` the caller chose them; otherwise a task that only reads needs not ask.
    """

    text: str
    cwd: Path
    files: tuple[str, ...] = ()
    pin: Pin = Pin()
    context_tokens: int | None = None
    budget_usd: Decimal | None = None
    allow_fallback: bool | None = None
    may_ask: bool = False
    chosen_permissions: bool = False
    avoid: tuple[str, ...] = ()

    def must_ask(self, task: Classification) -> bool:
        return self.may_ask and (self.chosen_permissions or not only_reads(self.text, task.type))


class RoutedTask(Value, frozen=True, kw_only=True):
    """A task's classification, route, and forecast at every provider.

    `forecast` is for the chosen route, by its method; without a cost if there is none.
    """

    task: Classification
    decision: RouteDecision
    forecast: Forecast
    forecasts: Mapping[str, Forecast]

    @property
    def likely_usd(self) -> dict[str, Decimal]:
        """The likely cost at each provider with a known price."""
        return {name: f.p50_usd for name, f in self._known.items() if f.p50_usd is not None}

    @property
    def certain_usd(self) -> dict[str, Decimal]:
        """The part of the likely cost that is certain."""
        return {name: f.sure_usd for name, f in self._known.items() if f.sure_usd is not None}

    @property
    def _known(self) -> dict[str, Forecast]:
        known = dict(self.forecasts)
        if route := self.decision.chosen_route:
            known[route.provider.name] = self.forecast
        return known


def condition_now(
    provider: Provider, known: Callable[[Provider], ProviderCondition], servers: ModelServers
) -> ProviderCondition:
    """The provider's condition, from its calls; down if the user's own server does not answer."""
    trouble = servers.trouble(provider.backend)
    return ProviderCondition(state="down", reason=trouble) if trouble else known(provider)


class Router:
    """Routes tasks by the current settings.

    `condition` returns a provider's health, `standings` the budgets of the day and the project,
    `notices` mistakes in the rules, `servers` the models of the user's own servers.
    """

    def __init__(  # noqa: PLR0913 (the ports, each by name)
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        methods: Sequence[Method],
        classifier: Classifier,
        history: TaskHistory,
        prices: Prices,
        condition: Callable[[Provider], ProviderCondition],
        standings: Callable[[], Awaitable[Sequence[BudgetStatus]]],
        notices: Callable[[], tuple[str, ...]] = tuple,
        servers: ModelServers = NoModelServers(),  # noqa: B008 (holds nothing)
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._methods = tuple(methods)
        self._classifier = classifier
        self._history = history
        self._prices = prices
        self._condition = condition
        self._standings = standings
        self.notices = notices
        self._servers = servers
        self._samples: Sequence[TaskSample] = ()
        self._past = PastTasks()
        self._experience = Experience()

    async def route(self, asked: RouteRequest) -> RoutedTask:
        """Never raises for a task without a route: its decision has the refusal."""
        await self._servers.refresh()
        settings, now = self._settings(), time.time()
        task = await self._classifier.classify(
            TaskText(text=asked.text, files=asked.files), asked.cwd
        )
        if asked.context_tokens is not None:
            task = replace(task, context_tokens=asked.context_tokens)
        talks = needs_no_tools(asked.text, task.type, attached=bool(asked.files))
        prices = await self._all_prices(settings, now)
        past = await self._refreshed_past()
        outlooks = self._experience.outlooks(task.type, task.complexity)
        usual = asked.pin.method or ("api" if talks else "acp")
        forecasts = {
            p.name: forecast_task(task, p, usual, price=prices.get(p.name), past=past)
            for p in settings.providers
        }
        facts = RouteFacts(
            text=asked.text,
            now=now,
            conditions={
                p.name: condition_now(p, self._condition, self._servers) for p in settings.providers
            },
            missing_keys=self._keyless(settings),
            prices=prices,
            forecasts=forecasts,
            outlooks={
                p.name: found
                for p in settings.providers
                if settings.learning and (found := outlooks.get((p.backend, p.model)))
            },
            budget_usd=await self._budget(asked, settings),
            may_ask=asked.must_ask(task),
            needs_no_tools=talks,
            allow_fallback=asked.allow_fallback,
            avoid=asked.avoid,
        )
        decision = decide_route(task, asked.pin, settings, self._methods, facts)
        chosen = NO_FORECAST
        if route := decision.chosen_route:
            chosen = await self.forecast(task, route.provider, route.method)
        return RoutedTask(task=task, decision=decision, forecast=chosen, forecasts=forecasts)

    async def forecast(self, task: Classification, provider: Provider, method: Method) -> Forecast:
        price = await self._prices.price(provider, time.time())
        return forecast_task(task, provider, method, price=price, past=await self._refreshed_past())

    async def knowledge(self) -> RoutingKnowledge:
        """What the router has learned, for a backtest."""
        settings, now = self._settings(), time.time()
        past = await self._refreshed_past()
        return RoutingKnowledge(
            settings=settings,
            samples=self._samples,
            past=past,
            prices=await self._all_prices(settings, now),
            now=now,
        )

    async def _all_prices(self, settings: Settings, now: float) -> dict[str, Price]:
        found = {p.name: await self._prices.price(p, now) for p in settings.providers}
        return {name: price for name, price in found.items() if price is not None}

    async def _refreshed_past(self) -> PastTasks:
        samples = await self._history.recent()
        if samples is not self._samples:
            self._samples, self._past = samples, PastTasks(samples)
            self._experience = Experience(samples, time.time())
        return self._past

    async def _budget(self, asked: RouteRequest, settings: Settings) -> Decimal | None:
        """The smallest budget that applies."""
        hard = [each.left_usd for each in await self._standings() if each.limit.hard]
        own = [asked.budget_usd, settings.budget.per_task]
        return min((amount for amount in (*own, *hard) if amount is not None), default=None)

    def _keyless(self, settings: Settings) -> dict[str, str]:
        environ = self._environ()
        wanting = {
            name: backend.key_env
            for name, backend in settings.backends.items()
            if backend.key_env and backend.lacks_key(environ)
        }
        return {p.name: wanting[p.backend] for p in settings.providers if p.backend in wanting}
