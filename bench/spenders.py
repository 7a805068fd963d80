"""One project's workers, who spend until they are told to stop: `python -m bench.spenders`.

Every line of stdin is a `Round`, and is answered by a line with the calls that were made. All of it
is real but the workers: upstream, books, and the ledger that a second process shares.
"""

import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from goent.billing.call_accounts import Allowance, CallBookkeeper
from goent.billing.price_list import PriceList
from goent.domain.errors import BudgetSpent
from goent.domain.money import CallDelay, CallSizer, FinishedCall, StartedCall
from goent.domain.settings import Backend, BudgetSettings, Settings
from goent.domain.types import Price, Provider, Secret, Usage
from goent.proc.process_table import is_owner_alive, new_owner
from goent.providers.call_plan import InboundCall, plan_call
from goent.providers.call_translation import StreamPiece
from goent.providers.connections import Connections
from goent.providers.upstream import Upstream
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.testing.script import Script, case, openai, say
from goent.workers.feed import Feed
from goent.workers.worker import Roster

MODEL = Provider(
    name="scripted",
    backend="scripted",
    model="glm-4",
    price=Price(input=Decimal(1), output=Decimal(2)),
)
# What calls are held for is between the two: one takes far less, the other far more.
USAGES = {
    "little": Usage(input=500, output=200),
    "much": Usage(input=20_000, output=9_000),
}
SCRIPT = Script(
    providers={
        "scripted": openai(
            *(
                case(word, say("done", usage=usage).having(delay=0.02))
                for word, usage in USAGES.items()
            )
        )
    }
)


class Round(Struct, frozen=True, kw_only=True):
    """Spend up to the limit, which all projects of the folder share."""

    source: str
    folder: str
    project: str
    workers: int
    limit_usd: Decimal
    seed: int


class Spent(Struct, frozen=True, kw_only=True):
    """A call, from when it asked to go out until it was settled."""

    began: float
    ended: float
    usd: Decimal


class Watched(CallBookkeeper):
    """Books that remember when calls were admitted and settled."""

    def watch(self) -> None:
        self.calls: list[Spent] = []
        self._began: dict[str, float] = {}

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        self._began[call.id] = time.time()
        return await super().call_started(call, size)

    async def call_finished(self, call: FinishedCall) -> None:
        await super().call_finished(call)
        assert MODEL.price and call.usage
        self.calls.append(
            Spent(began=self._began[call.id], ended=time.time(), usd=MODEL.price.cost(call.usage))
        )


async def play(asked: Round) -> Sequence[Spent]:
    """Every worker calls, one call after the other, until it is refused for want of money."""
    backend = Backend(id=MODEL.backend, base_url=asked.source, key=Secret("sk-bench"))
    settings = Settings(
        project=Path(asked.project),
        providers=(MODEL,),
        backends={backend.id: backend},
        budget=BudgetSettings(per_day=asked.limit_usd, hard=True),
    )
    folder = Path(asked.folder)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        journal = await enter(SqliteJournal.open(folder / f"{settings.project.name}.db"))
        ledger = await enter(
            SqliteLedger.open(
                folder / "ledger.db", owner=new_owner(asked.project), alive=is_owner_alive
            )
        )
        connections = await enter(Connections.open())
        feed, prices = Feed(journal), PriceList(lambda: settings.backends)
        allowance = Allowance(
            settings=lambda: settings,
            environ=dict[str, str],
            feed=feed,
            ledger=ledger,
            prices=prices,
        )
        books = Watched(
            settings=lambda: settings,
            feed=feed,
            ledger=ledger,
            prices=prices,
            roster=Roster(lambda: settings),
            allowance=allowance,
        )
        books.watch()
        upstream = Upstream(connections, books)
        course = plan_call(MODEL, (), settings.backends, {})

        async def work(number: int) -> None:
            chance = random.Random(f"{asked.seed}/{asked.project}/{number}")
            while True:
                order = _order(f"w-{number}", chance.choices(tuple(USAGES), (4, 1))[0], chance)
                try:
                    await upstream.stream(order, course, _ignore)
                except BudgetSpent:
                    return

        async with anyio.create_task_group() as tasks:
            for number in range(asked.workers):
                tasks.start_soon(work, number)
        return books.calls


def _order(worker: str, word: str, chance: random.Random) -> InboundCall:
    text = f"spend {word} " + "and more " * chance.randrange(200)
    body = {
        "model": MODEL.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": text}],
    }
    return InboundCall(
        worker=worker,
        backend=MODEL.backend,
        model=MODEL.model,
        dialect="openai",
        headers=((b"content-type", b"application/json"),),
        body=msgspec.json.encode(body),
    )


async def _ignore(pieces: Sequence[StreamPiece]) -> None: ...


async def main() -> None:
    while line := await anyio.to_thread.run_sync(sys.stdin.buffer.readline):
        calls = await play(msgspec.json.decode(line, type=Round))
        sys.stdout.buffer.write(msgspec.json.encode(calls) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    anyio.run(main)
