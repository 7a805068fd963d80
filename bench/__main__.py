"""Is go-ent as light as it claims? `python -m bench [measure …] [--rounds N] [--json]`.

Each measure stands beside its peer's, taken in the same run on the same machine: the ratio is what
counts. The table goes to stdout, progress to stderr; the exit code is 1 if a target is missed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from bench import (
    agent,
    budget,
    classify,
    codec,
    conflicts,
    crashes,
    deltas,
    eval_cli,
    eval_mock,
    eval_opencode,
    flood,
    gateway,
    handshake,
    idle,
    recovery,
    routing,
    run,
    sandbox,
    shared_folder,
    spaces,
    swarm,
    workers,
    worktrees,
)
from bench.cost import Failed
from bench.place import Place, a_place
from bench.table import Row, markdown, report

MEASURES: Mapping[str, Callable[[Place], Awaitable[list[Row]]]] = {
    "mcp": handshake.run,
    "run": run.run,
    "sandbox": sandbox.run,
    "workers": workers.run,
    "worktrees": worktrees.run,
    "swarm": swarm.run,
    "recovery": recovery.run,
    "crashes": crashes.run,
    "idle": idle.run,
    "gateway": gateway.run,
    "flood": flood.run,
    "budget": budget.run,
    "conflicts": conflicts.run,
    "rpc": codec.messages,
    "journal": codec.events,
    "classify": classify.run,
    "routing": routing.run,
    "spaces": spaces.run,
    "shared": shared_folder.run,
    "acp": agent.starts,
    "agent": agent.idle,
    "turn": agent.turns,
    "deltas": deltas.run,
    "eval-cli": eval_cli.run,
    "eval-mock": eval_mock.run,
    "eval-opencode": eval_opencode.run,
}


class _Arguments(argparse.Namespace):
    measures: list[str]
    rounds: int
    json: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ", ".join(MEASURES)
    parser.add_argument("measures", nargs="*", help=f"which of {names} (default: all)")
    parser.add_argument(
        "--rounds", type=int, default=crashes.ROUNDS, help="how often each is killed in crashes"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    arguments = parser.parse_args(namespace=_Arguments())
    if unknown := set(arguments.measures) - set(MEASURES):
        parser.error(f"there is no measure {', '.join(map(repr, unknown))}; there are: {names}")
    if sys.platform != "linux":
        parser.exit(3, "bench: it reads /proc, so it runs on Linux only\n")
    rows: list[Row] = []
    try:
        rows = anyio.run(_measured, arguments)
    except* Failed as failures:
        sys.stderr.write(f"\nbench: {_first(failures)}\n")
    if not rows:
        return 3
    print(_json(rows) if arguments.json else markdown(rows))
    return int(any(row.verdict == "missed" for row in rows))


def _first(failure: BaseException) -> BaseException:
    """What the task groups wrapped."""
    if isinstance(failure, BaseExceptionGroup):
        return _first(failure.exceptions[0])  # pyright: ignore[reportUnknownArgumentType,reportUnknownMemberType] (isinstance cannot tell of what)
    return failure


async def _measured(arguments: _Arguments) -> list[Row]:
    rows: list[Row] = []
    measures = {**MEASURES, "crashes": partial(crashes.run, rounds=arguments.rounds)}
    with tempfile.TemporaryDirectory(prefix="goent-bench-") as folder:
        async with a_place(Path(folder)) as place:
            for name in arguments.measures or measures:
                began = time.monotonic()
                sys.stderr.write(f"{name} … ")
                sys.stderr.flush()
                rows += await measures[name](place)
                sys.stderr.write(f"{time.monotonic() - began:.0f} s\n")
    return rows


def _json(rows: Sequence[Row]) -> str:
    return msgspec.json.format(msgspec.json.encode([report(row) for row in rows])).decode()


if __name__ == "__main__":
    sys.exit(main())
