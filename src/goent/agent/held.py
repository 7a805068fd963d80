"""How does the agent ask models that go-ent holds the keys for?"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from goent.agent.models import Chosen, Hear, ModelChoice, Take
from goent.agent.refusing import AuthRequired
from goent.domain.errors import ProviderRefused
from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    FailedOver,
    Noticed,
    UsageReported,
    WorkerSpawned,
)
from goent.domain.ledger import Prices
from goent.domain.settings import Settings
from goent.domain.tasks import Classifier, TaskText
from goent.domain.types import Price, Provider
from goent.llm.codec import codec
from goent.llm.model_options import with_options
from goent.llm.talk import ModelRequest
from goent.policy.pins import fallbacks_of
from goent.policy.tiers import provider_of, tier, tier_reason, without_agents
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, Order, plan_course, target
from goent.upstream.said import Streamed

HEARD = (UsageReported, FailedOver, BudgetWarned, Noticed)


class Payer:
    """Whose calls are made, and who is told of them: what the books ask of the agent's sessions."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._hearing: dict[str, Hear] = {}

    def spawned(self, worker: str) -> WorkerSpawned:
        """A session has the limits of a task."""
        cwd = str(self._settings().project)
        return WorkerSpawned(
            task="",
            cwd=cwd,
            provider="",
            backend="",
            model="",
            method="agent",
            reason="",
            permissions="ask",
            isolation="shared",
        )

    async def append(self, worker: str, event: AnyEvent) -> None:
        hear = self._hearing.get(worker)
        if hear and isinstance(event, HEARD):
            await hear(event)

    def at_work(self, worker: str) -> bool:
        return worker in self._hearing

    def provider(self, worker: str, backend: str, model: str) -> Provider:
        del worker
        known = (p for p in self._settings().providers if (p.backend, p.model) == (backend, model))
        bare = Provider(name=f"{backend}/{model}", backend=backend, model=model)
        return next(known, bare)

    def listen(self, session: str, hear: Hear) -> None:
        self._hearing[session] = hear

    def forget(self, session: str) -> None:
        self._hearing.pop(session, None)


class HeldModels:
    """The port `Models`, over the upstream, for one project."""

    def __init__(
        self,
        upstream: Upstream,
        payer: Payer,
        classifier: Classifier,
        *,
        prices: Prices,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
    ) -> None:
        self._upstream = upstream
        self._payer = payer
        self._classifier = classifier
        self._prices = prices
        self._settings = settings
        self._environ = environ

    def choices(self) -> tuple[ModelChoice, ...]:
        return tuple(
            ModelChoice(
                id=provider.name,
                name=provider.name,
                description=provider.opencode_model,
                group=provider.backend,
            )
            for provider in self._with_a_key().providers
        )

    def find(self, name: str) -> Chosen:
        """A model that somebody asked for fails over only where the settings let pins move."""
        settings = self._settings()
        provider, _ = provider_of(name, settings)
        return self._usable(provider, "asked for", moves=settings.failover_pinned)

    async def choose(self, task: str, cwd: Path) -> Chosen:
        """Of those that can be asked; if there is none, the one that would be says what is missing."""
        found = await self._classifier.classify(TaskText(text=task), cwd)
        settings = self._with_a_key()
        if not settings.providers:
            settings = self._settings()
        provider, reason = provider_of(
            tier(found), settings, await self._prices_for(tier(found), settings)
        )
        return self._usable(provider, f"{tier_reason(found)} ({reason})", moves=True)

    def _with_a_key(self) -> Settings:
        own = without_agents(self._settings())
        usable = tuple(p for p in own.providers if not self._refusal(p))
        return replace(own, providers=usable)

    async def _prices_for(self, word: str, settings: Settings) -> Mapping[str, Price]:
        """Only where nobody has such a model does the cheapest matter; the list takes time to load."""
        if any(word == p.name or word in p.model.lower() for p in settings.providers):
            return {}
        now = time.time()
        found = {p.name: await self._prices.price(p, now) for p in settings.providers}
        return {name: price for name, price in found.items() if price is not None}

    async def stream(
        self, session: str, chosen: Chosen, request: ModelRequest, take: Take, hear: Hear
    ) -> None:
        backends = self._settings().backends
        course = plan_course(chosen.provider, chosen.fallbacks, backends, self._environ())
        self._payer.listen(session, hear)
        try:
            await self._upstream.stream(
                order_for(session, course, request), course, passed_to(take)
            )
        finally:
            self._payer.forget(session)

    def _usable(self, provider: Provider, reason: str, *, moves: bool) -> Chosen:
        if refusal := self._refusal(provider):
            raise AuthRequired(f"{provider.name!r} cannot be used: {refusal}")
        fallbacks = fallbacks_of(provider, self._settings()) if moves else ()
        return Chosen(provider=provider, fallbacks=fallbacks, reason=reason)

    def _refusal(self, provider: Provider) -> str:
        try:
            target(provider, self._settings().backends, self._environ())
        except ProviderRefused as error:
            return str(error)
        return ""


def order_for(session: str, course: Course, request: ModelRequest) -> Order:
    wanted = course.targets[0]
    theirs = codec(wanted.dialect)
    return Order(
        worker=session,
        session=session,
        backend=wanted.provider.backend,
        model=wanted.provider.model,
        dialect=wanted.dialect,
        headers=theirs.headers,
        body=theirs.encode(with_options(request, wanted.dialect, wanted.provider.options)),
    )


def passed_to(take: Take) -> Callable[[Sequence[Streamed]], Awaitable[None]]:
    async def passed(pieces: Sequence[Streamed]) -> None:
        await take([chunk for piece in pieces for chunk in piece.chunks])

    return passed
