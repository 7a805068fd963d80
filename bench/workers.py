"""What do twenty workers cost at once in one directory, beside twenty `opencode run`?

Either side begins with nothing running and ends with nothing running. The model holds every
worker's last step back until all have come to it, so that all twenty are there at once.
"""

import sys
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from bench.cost import Failed, whole_run
from bench.place import GO_ENT, ONE_STEP, PEERS_TWO_STEPS, TWO_STEPS, Place, stop_daemon
from bench.table import Row
from bench.tree import Bill, Order

WORKERS = 20
LEAD = Path(__file__).with_name("lead.py")
SECONDS = 240.0
GATHER_S = 50.0  # less than the scripted model waits at a gate
PEER = f"{WORKERS} `opencode run`"


async def run(place: Place) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    await anyio.to_thread.run_sync(_make_database, place)
    ours = await _bill(place, TWO_STEPS, _our_order(place))
    peer = await _bill(place, PEERS_TWO_STEPS, _peers_order(place))
    return [
        Row(
            measure=f"{WORKERS} workers at once, memory",
            unit="MiB",
            ours=ours.memory / 2**20,
            peer=peer.memory / 2**20,
            peer_name=PEER,
            at_most=0.12,
        ),
        Row(
            measure=f"{WORKERS} workers at once, CPU",
            unit="s",
            ours=ours.cpu,
            peer=peer.cpu,
            peer_name=PEER,
            at_most=0.25,
        ),
    ]


def _make_database(place: Place) -> None:
    """Twenty first starts at once would quarrel about it, and some of them fail."""
    whole_run(place.peer_run(ONE_STEP), cwd=place.project, env=place.peer_env)


def _our_order(place: Place) -> Order:
    return Order(
        commands=((sys.executable, str(LEAD), TWO_STEPS, str(WORKERS), *GO_ENT),),
        afterwards=(*GO_ENT, "daemon", "stop"),
        cwd=str(place.project),
        env=place.env,
        seconds=SECONDS,
    )


def _peers_order(place: Place) -> Order:
    return Order(
        commands=(place.peer_run(PEERS_TWO_STEPS),) * WORKERS,
        cwd=str(place.project),
        env=place.peer_env,
        seconds=SECONDS,
    )


async def _bill(place: Place, gate: str, order: Order) -> Bill:
    told = b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_open_when_all_are_there, place, gate)
        counter = [sys.executable, "-m", "bench.tree"]
        done = await anyio.run_process(counter, input=msgspec.json.encode(order), stderr=None)
        told = done.stdout
        tasks.cancel_scope.cancel()
    bill = msgspec.json.decode(told, type=Bill)
    if bill.failed:
        raise Failed(f"{len(bill.failed)} commands failed: {bill.failed[0]}")
    return bill


async def _open_when_all_are_there(place: Place, gate: str) -> None:
    with suppress(TimeoutError):
        await place.models.at_gate(gate, timeout=SECONDS)
        await place.models.at_gate(gate, WORKERS, timeout=GATHER_S)
    place.models.open_gate(gate)
