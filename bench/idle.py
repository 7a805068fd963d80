"""What does a daemon cost that has worked and has nothing to do?"""

import time

import anyio
from bench.client import a_client
from bench.cost import Failed, cpu_of, resident
from bench.place import ONE_STEP, Place, stop_daemon
from bench.table import Row

WATCHED_S = 40.0
SETTLE_S = 5.0
PATIENCE_S = 30.0


async def run(place: Place) -> list[Row]:
    """After a worker in a process of its own, which ends with it; no client is connected."""
    await anyio.to_thread.run_sync(stop_daemon, place)
    async with a_client(place) as client:
        worker = await client.spawn(ONE_STEP, isolation="dedicated")
        await client.ended([worker])
        await client.close([worker])
        with anyio.move_on_after(PATIENCE_S):
            while client.processes():  # noqa: ASYNC110 (a process announces nothing)
                await anyio.sleep(0.1)
        if client.processes():
            raise Failed("a closed worker's own process is still there")
    await anyio.sleep(SETTLE_S)
    began, spent = time.monotonic(), cpu_of(client.pid)
    await anyio.sleep(WATCHED_S)
    share = (cpu_of(client.pid) - spent) / (time.monotonic() - began)
    return [
        Row(
            measure="an idle daemon after work, memory (RSS)",
            unit="MB",
            ours=resident(client.pid) / 1e6,
            at_most=90,
        ),
        Row(
            measure="an idle daemon after work, CPU",
            unit="% of a core",
            ours=share * 100,
            at_most=0.2,
        ),
    ]
