"""A provider's limits, as the calls of two projects keep them together."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec
import pytest

from goent.billing.call_accounts import Allowance, CallBookkeeper
from goent.billing.price_list import PriceList
from goent.domain.money import CallDelay, CallSizer, FinishedCall, StartedCall
from goent.domain.settings import Backend, Settings
from goent.domain.types import Provider, RateLimits, Secret
from goent.providers.call_plan import CallPlan, InboundCall, plan_call
from goent.providers.call_translation import StreamPiece
from goent.providers.connections import Connections
from goent.providers.upstream import Upstream
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.testing.script import Script, case, openai, say
from goent.testing.scripted_server import ScriptedModels
from goent.workers.feed import Feed
from goent.workers.worker import Roster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.spec("P38")]

SCRIPT = Script(providers={"scripted": openai(case(None, say("done").having(delay=0.03)))})
PAIR = Provider(name="pair", backend="scripted", model="glm-4", limits=RateLimits(concurrency=2))
ORDER = InboundCall(
    worker="w1",
    backend="scripted",
    model="glm-4",
    dialect="openai",
    headers=((b"content-type", b"application/json"),),
    body=msgspec.json.encode(
        {"model": "glm-4", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    ),
)


class Counting(CallBookkeeper):
    """Books that know how many calls are out, over all of them."""

    out = 0
    most = 0
    held_up = 0

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        hindrance = await super().call_started(call, size)
        if hindrance:
            assert "limits.concurrency" in hindrance.reason
            Counting.held_up += 1
        else:
            Counting.out += 1
            Counting.most = max(Counting.most, Counting.out)
        return hindrance

    async def call_finished(self, call: FinishedCall) -> None:
        Counting.out -= 1
        await super().call_finished(call)


async def ignore(pieces: Sequence[StreamPiece]) -> None: ...


async def test_calls_at_once_stay_within_the_limit_over_two_projects(tmp_path: Path):
    async with ScriptedModels(SCRIPT) as models, AsyncExitStack() as stack:
        enter = stack.enter_async_context
        connections = await enter(Connections.open())
        backend = Backend(id="scripted", base_url=models.base_url("scripted"), key=Secret("k"))
        ways: list[tuple[Upstream, CallPlan]] = []
        for name in ("one", "two"):
            settings = Settings(
                project=tmp_path / name, providers=(PAIR,), backends={"scripted": backend}
            )
            feed = Feed(await enter(SqliteJournal.open(tmp_path / f"{name}.db")))
            ledger = await enter(SqliteLedger.open(tmp_path / "ledger.db", owner=name))
            prices = PriceList(lambda: {"scripted": backend})

            def told(settings: Settings = settings) -> Settings:
                return settings

            allowance = Allowance(
                settings=told, environ=dict[str, str], feed=feed, ledger=ledger, prices=prices
            )
            books = Counting(
                settings=told,
                feed=feed,
                ledger=ledger,
                prices=prices,
                roster=Roster(told),
                allowance=allowance,
            )
            course = plan_call(PAIR, (), settings.backends, {})
            ways += [(Upstream(connections, books), course)] * 4
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for upstream, course in ways:
                    tasks.start_soon(upstream.stream, ORDER, course, ignore)
        assert len(models.calls) == len(ways)
    assert Counting.most == 2 and Counting.held_up, "never more, and never needlessly fewer"
