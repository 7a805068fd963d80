"""Opens a gateway for an evaluation's model calls, paid from the user's ledger and budgets.

The gateway runs inside the evaluating process, so keys stay there, and the user's ledger and budgets
apply. An attempt only calls the model that it names: a fallback's answer would say nothing about it.
"""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from goent.agent.agent_ports import ModelCallEvent
from goent.agent.model_access import ModelCallListeners
from goent.composition.live_project import Project
from goent.composition.model_calls import ModelCalls, model_calls, open_records
from goent.domain.events import UsageReported
from goent.domain.ports import WorkerSpec
from goent.domain.types import Provider, Route
from goent.evals.targets.opencode_target_servers import AttemptBill, EvalServers
from goent.gateway.gateway import Gateway
from goent.proc.process_table import new_owner, sweep_dead_owners
from goent.providers.call_plan import CallPlan, plan_call
from goent.providers.connections import Connections

MARK_KEY = "eval"


@asynccontextmanager
async def open_opencode(project: Path, environ: Mapping[str, str]) -> AsyncGenerator[EvalServers]:
    """The servers for all OpenCode targets of a run; processes of killed runs are ended first.

    Errors raised inside come out as themselves, not in groups.
    """
    around = Project(project, environ)
    around.check()
    owner = new_owner(MARK_KEY)
    await anyio.to_thread.run_sync(sweep_dead_owners, MARK_KEY)
    try:
        async with (
            open_models(around, owner) as models,
            EvalServers.running(
                around.surroundings, models, owner=owner, secrets=around.secrets
            ) as servers,
        ):
            yield servers
    except BaseExceptionGroup as group:
        error = _only(group)
        raise error from error.__cause__


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The single error in nested groups of one."""
    match group.exceptions:
        case (BaseExceptionGroup() as inner,):
            return _only(inner)
        case (error,):
            return error
        case _:
            return group


@asynccontextmanager
async def open_models(around: Project, owner: str) -> "AsyncGenerator[EvalModels]":
    """A gateway for the attempts of one run, with the user's ledger behind it."""
    async with (
        open_records(around.environ(), owner) as records,
        Connections.open() as connections,
    ):
        payer = ModelCallListeners(around.settings)
        calls = model_calls(around, connections, records, feed=payer, roster=payer)
        await calls.servers.refresh()

        def course(worker: str, backend: str, model: str) -> CallPlan:
            named = payer.provider(worker, backend, model)
            return plan_call(named, (), around.settings().backends, around.environ())

        async with Gateway.open(calls.upstream, course) as gateway:
            yield EvalModels(gateway, payer, calls)


class EvalModels:
    """Charges model calls to the user's ledger and budgets, through the gateway."""

    def __init__(self, gate: Gateway, payer: ModelCallListeners, calls: ModelCalls) -> None:
        self.gate = gate
        self._payer = payer
        self._calls = calls

    @contextmanager
    def charge_to(self, payer: str) -> Generator[AttemptBill]:
        bill = AttemptBill()

        async def hear(event: ModelCallEvent) -> None:
            if isinstance(event, UsageReported):
                bill.add(event)

        self._payer.listen(payer, hear)
        try:
            yield bill
        finally:
            self._payer.forget(payer)

    async def wait_settled(self, payer: str) -> None:
        await self.gate.settle(payer)

    async def allow_direct(self, payer: str, provider: Provider) -> None:
        route = Route(provider=provider, method="serve", reason="asked for")
        await self._calls.allowance.allow(payer, route, self._payer.spawned(payer), {}, {})

    async def report_direct(self, payer: str, provider: Provider, report: UsageReported) -> None:
        spec = WorkerSpec(id=payer, cwd=Path(), provider=provider, method="serve", rules=())
        await self._calls.books.record_usage(spec, report)
