"""Where would a task go, and what would it take there? Gathers the facts; `policy` decides."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace

from goent.core.lookback import Known
from goent.domain.budgets import Standing
from goent.domain.forecasts import Forecast, History, Sample
from goent.domain.health import Condition
from goent.domain.ledger import Prices
from goent.domain.local_servers import ModelServers, NoServers
from goent.domain.settings import Settings
from goent.domain.tasks import Classification, Classifier, TaskText
from goent.domain.types import Method, Pin, Price, Provider, Value
from goent.policy.decisions import Decision
from goent.policy.facts import Facts
from goent.policy.forecast import Past, forecast
from goent.policy.learning import Experience
from goent.policy.needs import only_reads, talk_only
from goent.policy.routing import decide

NOTHING = Forecast(p50_usd=None, p90_usd=None, source="estimate")


class Asked(Value, frozen=True, kw_only=True):
    """A task before it has a way. `asks`: its permissions may have to ask somebody.

    `chosen_permissions`: somebody said which. Else one that only reads needs to ask nobody.
    """

    text: str
    cwd: Path
    files: tuple[str, ...] = ()
    pin: Pin = Pin()
    context_tokens: int | None = None
    budget_usd: Decimal | None = None
    allow_fallback: bool | None = None
    asks: bool = False
    chosen_permissions: bool = False
    avoid: tuple[str, ...] = ()

    def must_ask(self, task: Classification) -> bool:
        return self.asks and (self.chosen_permissions or not only_reads(self.text, task.type))


class Routed(Value, frozen=True, kw_only=True):
    """What the task is, who would get it, and what every provider would take for it.

    `forecast` is for the route that was chosen, by its method; of no cost where there is none.
    """

    task: Classification
    decision: Decision
    forecast: Forecast
    forecasts: Mapping[str, Forecast]

    @property
    def likely(self) -> dict[str, Decimal]:
        """What it will probably cost at each provider, as far as prices are known."""
        return {name: f.p50_usd for name, f in self._known.items() if f.p50_usd is not None}

    @property
    def sure(self) -> dict[str, Decimal]:
        """As much of that as is no guess."""
        return {name: f.sure_usd for name, f in self._known.items() if f.sure_usd is not None}

    @property
    def _known(self) -> dict[str, Forecast]:
        known = dict(self.forecasts)
        if route := self.decision.chosen:
            known[route.provider.name] = self.forecast
        return known


def condition_now(
    provider: Provider, known: Callable[[Provider], Condition], servers: ModelServers
) -> Condition:
    """A server of the user's own that does not answer is down; of all others their calls tell."""
    trouble = servers.trouble(provider.backend)
    return Condition(state="down", reason=trouble) if trouble else known(provider)


class Router:
    """The way of each task.

    `condition` tells how a provider is, `standings` how the budgets of the day and the project are,
    `notices` what is wrong with the rules as written, `servers` which models the user's own have.
    """

    def __init__(  # noqa: PLR0913 (the ports, each by name)
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        methods: Sequence[Method],
        classifier: Classifier,
        history: History,
        prices: Prices,
        condition: Callable[[Provider], Condition],
        standings: Callable[[], Awaitable[Sequence[Standing]]],
        notices: Callable[[], tuple[str, ...]] = tuple,
        servers: ModelServers = NoServers(),  # noqa: B008 (holds nothing)
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
        self._samples: Sequence[Sample] = ()
        self._past = Past()
        self._experience = Experience()

    async def route(self, asked: Asked) -> Routed:
        """Never refuses: a decision without a route says why there is none."""
        await self._servers.refresh()
        settings, now = self._settings(), time.time()
        task = await self._classifier.classify(
            TaskText(text=asked.text, files=asked.files), asked.cwd
        )
        if asked.context_tokens is not None:
            task = replace(task, context_tokens=asked.context_tokens)
        talks = talk_only(asked.text, task.type, attached=bool(asked.files))
        prices = await self._all_prices(settings, now)
        past = await self._known_past()
        outlooks = self._experience.outlooks(task.type, task.complexity)
        usual = asked.pin.method or ("api" if talks else "acp")
        forecasts = {
            p.name: forecast(task, p, usual, price=prices.get(p.name), past=past)
            for p in settings.providers
        }
        facts = Facts(
            text=asked.text,
            now=now,
            conditions={
                p.name: condition_now(p, self._condition, self._servers) for p in settings.providers
            },
            keyless=self._keyless(settings),
            prices=prices,
            forecasts=forecasts,
            outlooks={
                p.name: found
                for p in settings.providers
                if settings.learning and (found := outlooks.get((p.backend, p.model)))
            },
            budget_usd=await self._budget(asked, settings),
            asks=asked.must_ask(task),
            talk_only=talks,
            allow_fallback=asked.allow_fallback,
            avoid=asked.avoid,
        )
        decision = decide(task, asked.pin, settings, self._methods, facts)
        chosen = NOTHING
        if route := decision.chosen:
            chosen = await self.forecast(task, route.provider, route.method)
        return Routed(task=task, decision=decision, forecast=chosen, forecasts=forecasts)

    async def forecast(self, task: Classification, provider: Provider, method: Method) -> Forecast:
        price = await self._prices.price(provider, time.time())
        return forecast(task, provider, method, price=price, past=await self._known_past())

    async def known(self) -> Known:
        """All that it has learned, for whoever looks back."""
        settings, now = self._settings(), time.time()
        past = await self._known_past()
        return Known(
            settings=settings,
            samples=self._samples,
            past=past,
            prices=await self._all_prices(settings, now),
            now=now,
        )

    async def _all_prices(self, settings: Settings, now: float) -> dict[str, Price]:
        found = {p.name: await self._prices.price(p, now) for p in settings.providers}
        return {name: price for name, price in found.items() if price is not None}

    async def _known_past(self) -> Past:
        samples = await self._history.recent()
        if samples is not self._samples:
            self._samples, self._past = samples, Past(samples)
            self._experience = Experience(samples, time.time())
        return self._past

    async def _budget(self, asked: Asked, settings: Settings) -> Decimal | None:
        """The tightest of all."""
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
