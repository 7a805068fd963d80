"""Is go-ent as light as it claims? `python -m bench [mcp run workers rpc journal] [--json]`.

Each measure stands beside its peer's, taken in the same run on the same machine: the ratio is what
counts. The table goes to stdout, progress to stderr; the exit code is 1 if a target is missed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import msgspec
from bench import codec, handshake, run, workers
from bench.cost import Failed
from bench.place import Place, a_place
from bench.table import Row, markdown, report

MEASURES: Mapping[str, Callable[[Place], Awaitable[list[Row]]]] = {
    "mcp": handshake.run,
    "run": run.run,
    "workers": workers.run,
    "rpc": codec.messages,
    "journal": codec.events,
}


class _Arguments(argparse.Namespace):
    measures: list[str]
    json: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ", ".join(MEASURES)
    parser.add_argument("measures", nargs="*", help=f"which of {names} (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    arguments = parser.parse_args(namespace=_Arguments())
    if unknown := set(arguments.measures) - set(MEASURES):
        parser.error(f"there is no measure {', '.join(map(repr, unknown))}; there are: {names}")
    if sys.platform != "linux":
        parser.exit(3, "bench: it reads /proc, so it runs on Linux only\n")
    try:
        rows = anyio.run(_measured, arguments.measures or list(MEASURES))
    except Failed as failure:
        sys.stderr.write(f"\nbench: {failure}\n")
        return 3
    print(_json(rows) if arguments.json else markdown(rows))
    return int(any(row.verdict == "missed" for row in rows))


async def _measured(names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="goent-bench-") as folder:
        async with a_place(Path(folder)) as place:
            for name in names:
                began = time.monotonic()
                sys.stderr.write(f"{name} … ")
                sys.stderr.flush()
                rows += await MEASURES[name](place)
                sys.stderr.write(f"{time.monotonic() - began:.0f} s\n")
    return rows


def _json(rows: Sequence[Row]) -> str:
    return msgspec.json.format(msgspec.json.encode([report(row) for row in rows])).decode()


if __name__ == "__main__":
    sys.exit(main())
