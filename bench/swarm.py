"""What does a swarm of sixteen cost, each in a fresh worktree, beside sixteen `opencode run` at once?

A model of three seconds per answer, one tool call and a last word. Ours makes the worktrees, keeps
the work and looks for conflicts; the peers find their worktrees made. Every worker must finish.
"""

import json
from functools import partial

import anyio
from bench.counted import counted
from bench.place import GO_ENT, SWARM_STEPS, Place, stop_daemon
from bench.table import Row
from bench.tree import Order
from bench.workers import make_database
from bench.worktrees import compared, make_worktrees, peers_order

WORKERS = 16
SECONDS = 600.0
PEER = f"{WORKERS} `opencode run`"


async def run(place: Place) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    await anyio.to_thread.run_sync(make_database, place)
    folders = await anyio.to_thread.run_sync(partial(make_worktrees, place, "swarm", WORKERS))
    ours = await counted(_swarm_order(place))
    peer = await counted(peers_order(place, SWARM_STEPS, folders, at_once=WORKERS))
    what = f"a swarm of {WORKERS} in fresh worktrees"
    return compared(what, ours, peer, PEER, {"wall": 0.6, "CPU": 0.5, "memory": 0.35})


def _swarm_order(place: Place) -> Order:
    """It exits 0 only if every task completed; then the end of the daemon."""
    tasks = [{"id": f"t{n}", "prompt": SWARM_STEPS} for n in range(WORKERS)]
    file = place.project.parent / "tasks.yaml"
    file.write_text(json.dumps({"swarm": "bench", "concurrency": WORKERS, "tasks": tasks}))
    return Order(
        commands=((*GO_ENT, "swarm", str(file), "--json"),),
        at_once=1,
        afterwards=(*GO_ENT, "daemon", "stop"),
        cwd=str(place.project),
        env=place.env,
        seconds=SECONDS,
    )
