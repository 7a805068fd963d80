"""Gives the agent access to models: directly with go-ent's keys, or through a daemon's gateway.

Through the gateway it has only an address, a token that is valid nowhere else, and the name of its
model. Keys, failover, budgets and the ledger are on the other side.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from goent.agent.agent_ports import (
    AuthRequired,
    ChosenModel,
    ModelChoice,
    OnChunks,
    OnModelCallEvent,
)
from goent.domain.errors import ConfigError, ProviderRefused, RequestError, WorkerError
from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    FailedOver,
    Noticed,
    UsageReported,
    WorkerSpawned,
)
from goent.domain.money import CallDelay, CallSizer, FinishedCall, Prices, ProviderMove, StartedCall
from goent.domain.ports import GATE_VARIABLE, GateAddress
from goent.domain.provider_condition import ProviderCondition
from goent.domain.settings import Settings
from goent.domain.task_profile import Classifier, TaskText
from goent.domain.types import Price, Provider, Secret
from goent.providers.call_plan import (
    CallPlan,
    CallTarget,
    InboundCall,
    RetrySettings,
    plan_call,
    target_for,
)
from goent.providers.call_translation import StreamPiece
from goent.providers.connections import Connections
from goent.providers.dialects import codec_for, with_model_options
from goent.providers.gateway_errors import gateway_failure
from goent.providers.model_messages import ModelRequest
from goent.providers.upstream import Upstream
from goent.routing.pins import (
    fallbacks_of,
    provider_for_tier,
    tier_for,
    tier_reason,
    without_agents,
)

REPORTED_EVENTS = (UsageReported, FailedOver, BudgetWarned, Noticed)


class ModelCallListeners:
    """The sessions that make calls, as the ledger sees workers, and who listens to their events."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._listeners: dict[str, OnModelCallEvent] = {}

    def spawned(self, worker: str) -> WorkerSpawned:
        """A session has the limits of a task."""
        return WorkerSpawned(
            task="",
            cwd=str(self._settings().project),
            provider="",
            backend="",
            model="",
            method="agent",
            reason="",
            permissions="ask",
            isolation="shared",
        )

    async def append(self, worker: str, event: AnyEvent) -> None:
        hear = self._listeners.get(worker)
        if hear and isinstance(event, REPORTED_EVENTS):
            await hear(event)

    def at_work(self, worker: str) -> bool:
        return worker in self._listeners

    def provider(self, worker: str, backend: str, model: str) -> Provider:
        del worker
        known = (p for p in self._settings().providers if (p.backend, p.model) == (backend, model))
        bare = Provider(name=f"{backend}/{model}", backend=backend, model=model)
        return next(known, bare)

    def listen(self, session: str, hear: OnModelCallEvent) -> None:
        self._listeners[session] = hear

    def forget(self, session: str) -> None:
        self._listeners.pop(session, None)


class DirectModelAccess:
    """The port `ModelAccess`, over the upstream, for one project."""

    def __init__(
        self,
        upstream: Upstream,
        listeners: ModelCallListeners,
        classifier: Classifier,
        *,
        prices: Prices,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
    ) -> None:
        self._upstream = upstream
        self._listeners = listeners
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
            for provider in self._usable_settings().providers
        )

    def find(self, name: str) -> ChosenModel:
        """A model chosen by name fails over only where the settings allow it for pins."""
        settings = self._settings()
        provider, _ = provider_for_tier(name, settings)
        return self._usable(provider, "asked for", moves=settings.failover_pinned)

    async def choose(self, task: str, cwd: Path) -> ChosenModel:
        """Of the usable models. Without any, the error of the best one says what is missing."""
        found = await self._classifier.classify(TaskText(text=task), cwd)
        settings = self._usable_settings()
        if not settings.providers:
            settings = self._settings()
        provider, reason = provider_for_tier(
            tier_for(found), settings, await self._prices_for(tier_for(found), settings)
        )
        return self._usable(provider, f"{tier_reason(found)} ({reason})", moves=True)

    def _usable_settings(self) -> Settings:
        own = without_agents(self._settings())
        usable = tuple(p for p in own.providers if not self._why_unusable(p))
        return replace(own, providers=usable)

    async def _prices_for(self, word: str, settings: Settings) -> Mapping[str, Price]:
        """Prices matter only if no provider names such a model; loading them takes time."""
        if any(word == p.name or word in p.model.lower() for p in settings.providers):
            return {}
        now = time.time()
        found = {p.name: await self._prices.price(p, now) for p in settings.providers}
        return {name: price for name, price in found.items() if price is not None}

    async def stream(
        self,
        session: str,
        chosen: ChosenModel,
        request: ModelRequest,
        take: OnChunks,
        hear: OnModelCallEvent,
    ) -> None:
        backends = self._settings().backends
        plan = plan_call(chosen.provider, chosen.fallbacks, backends, self._environ())
        self._listeners.listen(session, hear)
        try:
            await self._upstream.stream(
                inbound_call(session, plan, request), plan, chunk_forwarder(take)
            )
        finally:
            self._listeners.forget(session)

    def _usable(self, provider: Provider, reason: str, *, moves: bool) -> ChosenModel:
        if refusal := self._why_unusable(provider):
            raise AuthRequired(f"{provider.name!r} cannot be used: {refusal}")
        fallbacks = fallbacks_of(provider, self._settings()) if moves else ()
        return ChosenModel(provider=provider, fallbacks=fallbacks, reason=reason)

    def _why_unusable(self, provider: Provider) -> str:
        try:
            target_for(provider, self._settings().backends, self._environ())
        except ProviderRefused as error:
            return str(error)
        return ""


def inbound_call(session: str, plan: CallPlan, request: ModelRequest) -> InboundCall:
    target = plan.targets[0]
    codec = codec_for(target.dialect)
    return InboundCall(
        worker=session,
        session=session,
        backend=target.provider.backend,
        model=target.provider.model,
        dialect=target.dialect,
        headers=codec.headers,
        body=codec.encode(with_model_options(request, target.dialect, target.provider.options)),
    )


def chunk_forwarder(take: OnChunks) -> Callable[[Sequence[StreamPiece]], Awaitable[None]]:
    async def forward(pieces: Sequence[StreamPiece]) -> None:
        await take([chunk for piece in pieces for chunk in piece.chunks])

    return forward


def read_gate(value: str) -> GateAddress:
    """The address of a daemon's gateway, from the environment."""
    try:
        return msgspec.json.decode(value, type=GateAddress)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"environment: {GATE_VARIABLE} is not a gateway address from a daemon: {error}"
        ) from None


class GatewayModelAccess:
    """The port `ModelAccess` for one model, behind a gateway."""

    def __init__(self, gate: GateAddress, connections: Connections) -> None:
        given = gate.provider
        self._provider = Provider(
            name=given.name,
            backend=given.backend,
            model=given.model,
            context_limit=given.context_limit,
            options=given.options,
        )
        target = CallTarget(
            provider=self._provider,
            dialect=given.dialect,
            base_url=gate.url.rstrip("/"),
            key=Secret(gate.token),
        )
        self._plan = CallPlan(targets=(target,))
        self._observer = _UsageObserver()
        self._upstream = Upstream(
            connections, self._observer, healths=_AlwaysHealthy(), patience=RetrySettings(retries=0)
        )

    def choices(self) -> tuple[ModelChoice, ...]:
        only = self._provider
        return (ModelChoice(id=only.name, name=only.name, group=only.backend),)

    def find(self, name: str) -> ChosenModel:
        only = self._provider
        if name not in {only.name, only.model, only.opencode_model}:
            raise RequestError(f"this worker has the model {only.name!r}, not {name!r}")
        return ChosenModel(provider=only)

    async def choose(self, task: str, cwd: Path) -> ChosenModel:
        del task, cwd
        return ChosenModel(provider=self._provider, reason="given by the lead")

    async def stream(
        self,
        session: str,
        chosen: ChosenModel,
        request: ModelRequest,
        take: OnChunks,
        hear: OnModelCallEvent,
    ) -> None:
        call = inbound_call(session, self._plan, request)
        self._observer.listeners[session] = hear
        try:
            await self._upstream.stream(call, self._plan, chunk_forwarder(take))
        except WorkerError as error:
            raise gateway_failure(str(error)) or error from error
        finally:
            self._observer.listeners.pop(session, None)


class _UsageObserver:
    """The port `CallObserver`. The gateway keeps the ledger; usage here only shows a full context."""

    def __init__(self) -> None:
        self.listeners: dict[str, OnModelCallEvent] = {}

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        del call, size
        return None

    async def call_finished(self, call: FinishedCall) -> None:
        hear = self.listeners.get(call.worker)
        if hear and call.usage:
            await hear(
                UsageReported(
                    provider=call.backend,
                    model=call.model,
                    usage=call.usage,
                    cost_usd=None,
                    source="gateway",
                )
            )

    async def provider_changed(self, move: ProviderMove) -> None:
        pass

    async def notice(self, worker: str, text: str) -> None:
        pass


class _AlwaysHealthy:
    """The port `ProviderHealth`: the gateway tracks health."""

    def condition(self, provider: Provider) -> ProviderCondition:
        return ProviderCondition()

    def calls_in_flight(self, provider: Provider) -> int:
        return 0

    async def try_admit(self, provider: Provider, *, force: bool = False) -> bool:
        return True

    async def record_success(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        pass

    async def record_failure(self, provider: Provider, error: WorkerError, *, began: float) -> None:
        pass

    async def release(self, provider: Provider) -> None:
        pass

    async def forget(self, provider: Provider) -> bool:
        return False
