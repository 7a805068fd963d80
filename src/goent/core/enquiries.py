"""What can be found out about workers, providers and costs, without changing anything."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal

import anyio

from goent.core.allowance import Allowance
from goent.core.feed import Feed
from goent.core.result import changed_files, models_used, result
from goent.core.transcript import transcript
from goent.core.views import WorkerView, line, status, timestamp, usd
from goent.domain.budgets import Standing
from goent.domain.errors import RequestError
from goent.domain.events import Envelope, ToolCall, UsageReported
from goent.domain.health import Condition
from goent.domain.ports import Healths, Ledger, Prices
from goent.domain.replies import (
    BudgetLine,
    CostLine,
    Costs,
    Forgotten,
    Health,
    ModelUse,
    Output,
    PriceView,
    ProviderList,
    ProviderView,
    Result,
    Status,
    Waited,
    WorkerList,
)
from goent.domain.requests import (
    CostsRequest,
    ForgetRequest,
    ListRequest,
    OutputRequest,
    ProvidersRequest,
    Request,
    WaitRequest,
    WorkerRequest,
)
from goent.domain.settings import Settings
from goent.domain.swarms import SwarmRequest
from goent.domain.types import ENDED, FileChange, Price, Provider, State, Usage, Value

USABLE: frozenset[Health] = frozenset({"ready", "direct", "failing"})
HEARTBEAT = 5.0  # seconds between two signs of life to a caller who waits
TYPICAL = Usage(input=20_000, output=2_000)  # what `cost_estimate` prices until there is history

OnProgress = Callable[[Status], Awaitable[None]]


class Head(Value, frozen=True, kw_only=True):
    """A worker's state, and its last event."""

    state: State
    seq: int


class Account(Value, frozen=True, kw_only=True):
    """The models that a worker used, and the files that its edits changed."""

    models: tuple[ModelUse, ...] = ()
    files: tuple[FileChange, ...] = ()


class Enquiries:
    """Answers from the journal, the settings and the ledger."""

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
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._feed = feed
        self._ledger = ledger
        self._prices = prices
        self._allowance = allowance
        self._healths = healths

    async def recall(self, request: Request) -> None:
        """Have the workers at hand that the request is about, also those of long ago."""
        if isinstance(request, WorkerRequest):
            await self._feed.recall(request.worker_id)
        elif isinstance(request, WaitRequest):
            for worker in request.worker_ids:
                await self._feed.recall(worker)
        elif isinstance(request, SwarmRequest):
            await self._feed.recall_swarm(request.swarm_id)

    def status(self, worker: str) -> Status:
        return status(self._feed.view(worker))

    async def result(self, worker: str) -> Result:
        view = self._feed.view(worker)
        return result(view, await self._all_events(worker))

    async def account(self, worker: str) -> Account:
        """Who worked for it, with what each took, and what its edits changed."""
        if worker not in self._feed.views:
            return Account()
        events = [envelope.event for envelope in await self._all_events(worker)]
        return Account(
            models=models_used(event for event in events if isinstance(event, UsageReported)),
            files=changed_files(event for event in events if isinstance(event, ToolCall)),
        )

    async def _all_events(self, worker: str) -> list[Envelope]:
        events: list[Envelope] = []
        while page := await self._feed.events(
            worker=worker, after=events[-1].seq if events else 0, limit=5000
        ):
            events += page
        return events

    async def output(self, request: OutputRequest, after: int) -> Output:
        """What came after the cursor, as text, as much as the limit allows."""
        view = self._feed.view(request.worker_id)
        events = await self._feed.events(worker=view.id, after=max(0, after - 1), limit=1000)
        before = events.pop(0).event if events and events[0].seq == after else None
        text, taken = transcript(events, request.filter, request.limit, before)
        cursor = events[taken - 1].seq if taken else after
        return Output(text=text, cursor=cursor, more=cursor < view.seq, state=view.state)

    async def whole_output(self, worker: str) -> str:
        self._feed.view(worker)
        events = await self._all_events(worker)
        text, _ = transcript(events, "all", sum(len(str(e.event)) for e in events) + 1)
        return text

    def heads(self) -> dict[str, Head]:
        """How each worker stands, in short: what is equal has not changed."""
        return {view.id: Head(state=view.state, seq=view.seq) for view in self._feed.views.values()}

    async def stirred(self) -> None:
        """Return when something has happened that had not when this was called."""
        await self._feed.news(self._feed.seq)

    async def turn_begun(self, worker: str, turn: int) -> None:
        """Return when the worker has come to that turn, or is closed."""
        while (view := self._feed.view(worker)).open and view.turn < turn:
            await self._feed.news(self._feed.seq)

    async def settled(self, worker: str, permission: str) -> None:
        """Return when the question is no longer open: answered, or gone with its turn."""
        while any(asked.id == permission for asked in self._feed.view(worker).questions):
            await self._feed.news(self._feed.seq)

    async def wait(self, request: WaitRequest, on_progress: OnProgress) -> Waited:
        """Until all (or any) have ended their turn, or one asks something: that needs the caller."""
        seq = self._feed.seq
        views = [self._feed.view(worker) for worker in request.worker_ids]
        with anyio.move_on_after(request.timeout_s):
            while not _enough(views, any_=request.any):
                with anyio.move_on_after(HEARTBEAT) as silence:
                    await self._feed.news(seq)
                seq, before = self._feed.seq, views
                views = [self._feed.view(worker) for worker in request.worker_ids]
                for view in views if silence.cancelled_caught else moved(before, views):
                    await on_progress(status(view))
        return Waited(
            workers=tuple(status(self._feed.view(worker)) for worker in request.worker_ids),
            timed_out=not _enough(views, any_=request.any),
        )

    def list(self, request: ListRequest) -> WorkerList:
        views = sorted(self._feed.views.values(), key=lambda view: view.started_at, reverse=True)
        fitting = [
            view
            for view in views
            if request.state in (None, view.state)
            and request.provider in (None, view.spawned.provider, view.spawned.backend)
        ]
        return WorkerList(
            workers=tuple(line(view) for view in fitting[: request.limit]), total=len(fitting)
        )

    async def providers(self, request: ProvidersRequest) -> ProviderList:
        settings = self._settings()
        busy = Counter(
            view.provider
            for view in self._feed.views.values()
            if view.open and view.state not in ENDED
        )
        views = [await self._provider(p, settings, busy[p.name]) for p in settings.providers]
        if request.healthy_only:
            views = [view for view in views if view.health in USABLE]
        return ProviderList(providers=tuple(views))

    async def _provider(self, provider: Provider, settings: Settings, in_use: int) -> ProviderView:
        now = time.time()
        limits = provider.limits
        condition = self._healths.condition(provider)
        given = {"concurrency": limits.concurrency, "rpm": limits.rpm, "tpm": limits.tpm}
        return ProviderView(
            name=provider.name,
            backend=provider.backend,
            model=provider.model,
            method=provider.method,
            capabilities=provider.best_for,
            context_limit=provider.context_limit,
            price=_price(await self._prices.price(provider, now)),
            cost_estimate=usd(await self._prices.cost(provider, TYPICAL, now)),
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
        key = backend.resolve_key(self._environ()) if backend else None
        if backend and not key and backend.key_env:
            return "no_key"
        if condition.state == "failing" or condition.is_out(now):
            return "unknown" if condition.state == "healthy" else condition.state
        return "ready" if key else "direct"

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
                cost_usd=usd(row.cost_usd),
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
            total_usd=None if unknown else usd(known),
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


def _enough(views: list[WorkerView], *, any_: bool) -> bool:
    if any(view.state == "waiting" for view in views):
        return True
    ended = [view.state in ENDED for view in views]
    return any(ended) if any_ else all(ended)


def moved(before: list[WorkerView], after: list[WorkerView]) -> list[WorkerView]:
    """Those of whom there is something new to tell."""
    return [
        new
        for old, new in zip(before, after, strict=True)
        if (old.step, old.state, old.plan) != (new.step, new.state, new.plan)
    ]


def _until(condition: Condition, now: float) -> str | None:
    until = condition.until if condition.is_out(now) else None
    return None if until is None else timestamp(until)


def _price(price: Price | None) -> PriceView | None:
    if price is None:
        return None
    return PriceView(
        input=float(price.input),
        output=float(price.output),
        cache_read=usd(price.cache_read),
        cache_write=usd(price.cache_write),
    )
