"""What do twenty workers cost at once in one directory, beside twenty `opencode run`?

They are counted twice: as workers of one lead, and as twenty `go-ent run` that find no daemon.
Every side begins with nothing running and ends with nothing running. The model holds every
worker's last step back until all have come to it, so that all twenty are there at once.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import anyio
from bench.cost import whole_run
from bench.counted import counted
from bench.place import GO_ENT, ONE_STEP, TWO_STEPS, Place, stop_daemon
from bench.table import Row
from bench.tree import Bill, Order

WORKERS = 20
LEAD = Path(__file__).with_name("lead.py")
SECONDS = 240.0
GATHER_S = 50.0  # less than the scripted model waits at a gate
PEER = f"{WORKERS} `opencode run`"


async def run(place: Place) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    await anyio.to_thread.run_sync(make_database, place)
    of_lead, of_shell, of_peer = TWO_STEPS
    ours = await _bill(place, of_lead, led_order(place, of_lead, [place.project] * WORKERS))
    cold = await _bill(place, of_shell, _shell_order(place, of_shell))
    peer = await _bill(place, of_peer, _peers_order(place, of_peer))
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
        Row(
            measure=f"{WORKERS} cold `go-ent run` at once, CPU",
            unit="s",
            ours=cold.cpu,
            peer=peer.cpu,
            peer_name=PEER,
        ),
    ]


def make_database(place: Place) -> None:
    """Many first starts at once would quarrel about it, and some of them fail."""
    whole_run(place.peer_run(ONE_STEP), cwd=place.project, env=place.peer_env)


def led_order(place: Place, prompt: str, directories: list[Path]) -> Order:
    """A lead with a worker in each directory, and then the end of the daemon."""
    where = os.pathsep.join(map(str, directories))
    return Order(
        commands=((sys.executable, str(LEAD), prompt, where, *GO_ENT),),
        at_once=1,
        afterwards=(*GO_ENT, "daemon", "stop"),
        cwd=str(place.project),
        env=place.env,
        seconds=2 * SECONDS,
    )


def _shell_order(place: Place, prompt: str) -> Order:
    return Order(
        commands=(place.go_ent_run(prompt),) * WORKERS,
        at_once=WORKERS,
        afterwards=(*GO_ENT, "daemon", "stop"),
        cwd=str(place.project),
        env=place.env,
        seconds=SECONDS,
    )


def _peers_order(place: Place, prompt: str) -> Order:
    return Order(
        commands=(place.peer_run(prompt),) * WORKERS,
        at_once=WORKERS,
        cwd=str(place.project),
        env=place.peer_env,
        seconds=SECONDS,
    )


async def _bill(place: Place, gate: str, order: Order) -> Bill:
    bills: list[Bill] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_open_when_all_are_there, place, gate)
        bills.append(await counted(order))
        tasks.cancel_scope.cancel()
    return bills[0]


async def _open_when_all_are_there(place: Place, gate: str) -> None:
    with suppress(TimeoutError):
        await place.models.at_gate(gate, timeout=SECONDS)
        await place.models.at_gate(gate, WORKERS, timeout=GATHER_S)
    place.models.open_gate(gate)
