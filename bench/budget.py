"""Does a hard budget hold, with twenty workers of two projects spending at once?

Two processes share a ledger. When the limit is passed nobody may begin any more, so what is spent
above it can at most be what the calls took that were under way at that moment.
"""

import random
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from bench.cost import Failed
from bench.place import Place
from bench.spenders import SCRIPT, Round, Spent
from bench.table import Row
from msgspec import Struct

from goent.testing.scripted_server import ScriptedModels

ROUNDS = 100
WORKERS = 20
PROJECTS = 2
ROUND_S = 120.0
LONGEST_LINE = 2**22
CHECKOUT = Path(__file__).parents[1]


class Passing(Struct, frozen=True, kw_only=True):
    """By how much a limit was passed, and what the calls took that were under way then."""

    over: Decimal
    in_flight: Decimal

    @property
    def share(self) -> float:
        return float(self.over / self.in_flight) if self.in_flight else 0.0


def passing(limit: Decimal, calls: Sequence[Spent]) -> Passing:
    """Nothing in flight if the limit was kept."""
    spent = sum((call.usd for call in calls), Decimal(0))
    so_far = Decimal(0)
    for last in sorted(calls, key=lambda call: call.ended):
        so_far += last.usd
        if so_far > limit:
            under_way = (c.usd for c in calls if c.began < last.ended <= c.ended)
            return Passing(over=spent - limit, in_flight=sum(under_way, Decimal(0)))
    return Passing(over=min(spent - limit, Decimal(0)), in_flight=Decimal(0))


class Spender:
    """A project's process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin and process.stdout
        self.process = process
        self._told = process.stdin
        self._heard = BufferedByteReceiveStream(process.stdout)

    @classmethod
    @asynccontextmanager
    async def running(cls) -> "AsyncGenerator[Spender]":
        command = [sys.executable, "-m", "bench.spenders"]
        async with await anyio.open_process(command, stderr=None, cwd=CHECKOUT) as process:
            spender = cls(process)
            try:
                yield spender
            finally:
                await spender._told.aclose()  # it ends with its stdin
                with anyio.move_on_after(10, shield=True):
                    await process.wait()

    async def tell(self, asked: Round) -> None:
        await self._told.send(msgspec.json.encode(asked) + b"\n")

    async def heard(self) -> Sequence[Spent]:
        with anyio.fail_after(ROUND_S):
            line = await self._heard.receive_until(b"\n", LONGEST_LINE)
        return msgspec.json.decode(line, type=list[Spent])


async def run(place: Place) -> list[Row]:
    del place
    worst, most_over, calls = 0.0, 0.0, 0
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(ScriptedModels(SCRIPT))
        spenders = [await stack.enter_async_context(Spender.running()) for _ in range(PROJECTS)]
        for number in range(ROUNDS):
            limit = Decimal(random.Random(number).randrange(50, 500)) / 1000
            spent = await a_round(spenders, models, limit, number)
            found = passing(limit, spent)
            if found.over > 0 and not found.in_flight:
                raise Failed(
                    f"round {number}: ${found.over} above ${limit}, with nothing under way"
                )
            if not spent:
                raise Failed(f"round {number}: nothing was spent of ${limit}")
            calls += len(spent)
            worst = max(worst, found.share)
            most_over = max(most_over, float(found.over))
    who = f"{ROUNDS} rounds of {WORKERS} workers in {PROJECTS} projects, {calls:,} calls"
    return [
        Row(
            measure=f"budget: most above a hard limit, by the calls in flight ({who})",
            unit="",
            ours=worst,
            at_most=1,
        ),
        Row(measure="budget: most above a hard limit", unit="$", ours=most_over),
    ]


async def a_round(
    spenders: Sequence[Spender], models: ScriptedModels, limit: Decimal, seed: int
) -> list[Spent]:
    with tempfile.TemporaryDirectory(prefix="goent-bench-") as folder:
        for number, spender in enumerate(spenders):
            await spender.tell(
                Round(
                    source=models.base_url("scripted"),
                    folder=folder,
                    project=str(Path(folder, f"project-{number}")),
                    workers=WORKERS // len(spenders),
                    limit_usd=limit,
                    seed=seed,
                )
            )
        return [call for spender in spenders for call in await spender.heard()]
