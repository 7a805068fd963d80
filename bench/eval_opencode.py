"""What do eight cases for OpenCode cost, beside eight `opencode run`, two at a time?

The model answers at once, with one tool call and a last word. Ours has one server for all of them, and
makes and grades a directory for each; the peers find theirs made. Either side begins and ends with nothing
running, and every case must pass.
"""

import json
from functools import partial
from pathlib import Path

import anyio
from bench.counted import counted, median
from bench.place import EVAL_STEPS, GO_ENT, MODEL, Place, stop_daemon
from bench.table import Row
from bench.tree import Bill, Order
from bench.workers import make_database
from bench.worktrees import compared, make_worktrees, peers_order

CASES = 8
PEERS_AT_ONCE = 2
TIMES = 2
SECONDS = 240.0
PEER = f"{CASES} `opencode run`, {PEERS_AT_ONCE} at a time"


async def run(place: Place) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    await anyio.to_thread.run_sync(make_database, place)
    folder = place.project / "evals"
    _write_suite(folder)
    mine: list[Bill] = []
    theirs: list[Bill] = []
    for number in range(TIMES):
        trees = partial(make_worktrees, place, f"evals-{number}", CASES)
        folders = await anyio.to_thread.run_sync(trees)
        mine.append(await counted(_order(place, folder, f"out-{number}")))
        theirs.append(await counted(peers_order(place, EVAL_STEPS, folders, at_once=PEERS_AT_ONCE)))
    what = f"{CASES} OpenCode cases at once on one server"
    return compared(what, median(mine), median(theirs), PEER, {"wall": 0.7, "CPU": 0.55})


def _write_suite(folder: Path) -> None:
    (folder / ".goent").mkdir(parents=True)
    target = {"name": "coder", "provider": "opencode", "model": MODEL, "permission": "allow"}
    (folder / ".goent" / "targets.yaml").write_text(json.dumps({"targets": [target]}))
    written = {"type": "tool-trajectory", "mode": "any_order", "minimums": {"write": 1}}
    with (folder / "cases.jsonl").open("w") as file:
        for number in range(CASES):
            test = {"id": f"case-{number}", "input": EVAL_STEPS, "assertions": [written]}
            file.write(f"{json.dumps(test)}\n")


def _order(place: Place, folder: Path, out: str) -> Order:
    """It exits 0 only if every case passes."""
    options = ("--workers", str(CASES), "--out", out)
    return Order(
        commands=((*GO_ENT, "eval", "run", "cases.jsonl", *options),),
        at_once=1,
        cwd=str(folder),
        env=place.env,
        seconds=SECONDS,
    )
