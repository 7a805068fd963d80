"""What does the sandbox cost a `go-ent run`, beside the same run without one?

A task that reads, edits and runs a command, from nothing to nothing: daemon and OpenCode are started for
it and ended after it, and everything they start counts.
"""

import anyio
from bench.counted import counted, median
from bench.place import GO_ENT, PEER_TOOLS, Place, stop_daemon
from bench.table import Row
from bench.tree import Bill, Order

PAIRS = 15
SECONDS = 120.0
TARGET = 1.05
SETTINGS = {"sandboxed": "", "free": "sandbox: off\n"}


async def run(place: Place) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    bills: dict[str, list[Bill]] = {name: [] for name in SETTINGS}
    for pair in range(PAIRS + 1):  # the first warms the disk's cache
        order = tuple(SETTINGS) if pair % 2 else tuple(reversed(SETTINGS))
        for name in order:
            bill = await _cost(place, SETTINGS[name])
            if pair:
                bills[name].append(bill)
    (place.home / ".config" / "go-ent" / "config.yaml").unlink()
    sandboxed, free = (median(bills[name]) for name in SETTINGS)
    return [
        Row(
            measure="`go-ent run` in the sandbox, CPU of all its processes",
            unit="s",
            ours=sandboxed.cpu,
            peer=free.cpu,
            peer_name="the same with `sandbox: off`",
            at_most=TARGET,
        )
    ]


async def _cost(place: Place, settings: str) -> Bill:
    config = place.home / ".config" / "go-ent" / "config.yaml"
    config.parent.mkdir(0o700, parents=True, exist_ok=True)
    config.write_text(settings)
    (place.project / "colours.txt").write_text("green\n")
    return await counted(
        Order(
            commands=(place.go_ent_run(PEER_TOOLS),),
            at_once=1,
            afterwards=(*GO_ENT, "daemon", "stop"),
            cwd=str(place.project),
            env=place.env,
            seconds=SECONDS,
        )
    )
