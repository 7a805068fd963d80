"""Reaches the agent's models: directly with go-ent's keys, or through a daemon's gateway.

All it has is an address of the daemon's gateway, a token that is good there alone, and the name of
the model that it was given. Keys, failover, budgets and the ledger are on the other side.
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
    """Whose calls are made, and who is told of them: what the books ask of the agent's sessions."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._listeners: dict[str, OnModelCallEvent] = {}

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
        payer: ModelCallListeners,
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
            for provider in self._usable_settings().providers
        )

    def find(self, name: str) -> ChosenModel:
        """A model that somebody asked for fails over only where the settings let pins move."""
        settings = self._settings()
        provider, _ = provider_for_tier(name, settings)
        return self._usable(provider, "asked for", moves=settings.failover_pinned)

    async def choose(self, task: str, cwd: Path) -> ChosenModel:
        """Of those that can be asked; if there is none, the one that would be says what is missing."""
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
        """Only where nobody has such a model does the cheapest matter; the list takes time to load."""
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
        course = plan_call(chosen.provider, chosen.fallbacks, backends, self._environ())
        self._payer.listen(session, hear)
        try:
            await self._upstream.stream(
                order_for(session, course, request), course, chunk_forwarder(take)
            )
        finally:
            self._payer.forget(session)

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


def order_for(session: str, course: CallPlan, request: ModelRequest) -> InboundCall:
    wanted = course.targets[0]
    theirs = codec_for(wanted.dialect)
    return InboundCall(
        worker=session,
        session=session,
        backend=wanted.provider.backend,
        model=wanted.provider.model,
        dialect=wanted.dialect,
        headers=theirs.headers,
        body=theirs.encode(with_model_options(request, wanted.dialect, wanted.provider.options)),
    )


def chunk_forwarder(take: OnChunks) -> Callable[[Sequence[StreamPiece]], Awaitable[None]]:
    async def passed(pieces: Sequence[StreamPiece]) -> None:
        await take([chunk for piece in pieces for chunk in piece.chunks])

    return passed


def read_gate(told: str) -> GateAddress:
    """What a daemon says of its gate."""
    try:
        return msgspec.json.decode(told, type=GateAddress)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"environment: {GATE_VARIABLE} is not what a daemon passes on: {error}"
        ) from None


class GatewayModelAccess:
    """The port `ModelAccess`: one model, behind the gate."""

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
        self._course = CallPlan(targets=(target,))
        self._witness = _UsageWitness()
        self._upstream = Upstream(
            connections, self._witness, healths=_AlwaysHealthy(), patience=RetrySettings(retries=0)
        )

    def choices(self) -> tuple[ModelChoice, ...]:
        one = self._provider
        return (ModelChoice(id=one.name, name=one.name, group=one.backend),)

    def find(self, name: str) -> ChosenModel:
        one = self._provider
        if name not in {one.name, one.model, one.opencode_model}:
            raise RequestError(f"this worker has the model {one.name!r}, not {name!r}")
        return ChosenModel(provider=one)

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
        order = order_for(session, self._course, request)
        self._witness.listeners[session] = hear
        try:
            await self._upstream.stream(order, self._course, chunk_forwarder(take))
        except WorkerError as error:
            raise gateway_failure(str(error)) or error from error
        finally:
            self._witness.listeners.pop(session, None)


class _UsageWitness:
    """The port `CallObserver`. The gateway counts; here it is only known how full the window is."""

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
    """The port `ProviderHealth`: who is well is for the gateway to know."""

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
