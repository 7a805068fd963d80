"""What do forty workers cost in forty worktrees, beside forty `opencode run`, four at a time?

A model of three seconds per answer, two tool calls and a last word. Either side begins with nothing
running and ends with nothing running, and every worker must finish.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from bench.counted import counted
from bench.place import THREE_STEPS, Place, stop_daemon
from bench.table import Row
from bench.tree import Bill, Order
from bench.workers import led_order, make_database

WORKERS = 40
PEERS_AT_ONCE = 4
SECONDS = 1200.0
PEER = f"{WORKERS} `opencode run`, {PEERS_AT_ONCE} at a time"


async def run(place: Place, *, workers: int = WORKERS) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    await anyio.to_thread.run_sync(make_database, place)
    ours_in = await anyio.to_thread.run_sync(make_worktrees, place, "ours", workers)
    peers_in = await anyio.to_thread.run_sync(make_worktrees, place, "peers", workers)
    ours = await counted(led_order(place, THREE_STEPS, ours_in))
    peer = await counted(peers_order(place, THREE_STEPS, peers_in, at_once=PEERS_AT_ONCE))
    what = f"{workers} workers in {workers} worktrees"
    return compared(what, ours, peer, PEER, {"memory": 0.5, "wall": 0.6})


def compared(
    what: str, ours: Bill, peer: Bill, peer_name: str, targets: Mapping[str, float]
) -> list[Row]:
    """A row for each figure that has a target."""
    figures: Mapping[str, tuple[str, float, float]] = {
        "wall": ("s", ours.wall, peer.wall),
        "CPU": ("s", ours.cpu, peer.cpu),
        "memory": ("MiB", ours.memory / 2**20, peer.memory / 2**20),
    }
    return [
        Row(
            measure=f"{what}, {name}",
            unit=figures[name][0],
            ours=figures[name][1],
            peer=figures[name][2],
            peer_name=peer_name,
            at_most=target,
        )
        for name, target in targets.items()
    ]


def peers_order(place: Place, prompt: str, folders: Sequence[Path], *, at_once: int) -> Order:
    """An `opencode run` in each of the folders."""
    return Order(
        commands=tuple(place.peer_run(prompt, cwd=folder) for folder in folders),
        at_once=at_once,
        cwd=str(place.project),
        env=place.peer_env,
        seconds=SECONDS,
    )


def make_worktrees(place: Place, side: str, count: int) -> list[Path]:
    folders = [place.project.parent / "trees" / f"{side}-{n}" for n in range(count)]
    for folder in folders:
        command = ["git", "worktree", "add", "-q", "--detach", str(folder)]
        subprocess.run(command, cwd=place.project, env=place.env, check=True)
    return folders
