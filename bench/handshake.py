"""How soon does `go-ent mcp` answer, beside a bare server on the same SDK?"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.cost import Cost, Failed, alternating, cpu_of, ended_in_time, reap
from bench.place import GO_ENT, Place
from bench.table import Row

TIMES = 11
TARGET = 0.15
HELLO = Path(__file__).with_name("hello_mcp.py")
PEER = "hello world on the SDK"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


async def run(place: Place) -> list[Row]:
    """Spawn to `initialize` reply, with a daemon that runs already."""
    handshake = partial(to_reply, cwd=place.project, env=place.env)
    mine = partial(handshake, [*GO_ENT, "mcp"])
    theirs = partial(handshake, [sys.executable, str(HELLO)])
    await alternating(mine, theirs, times=1)  # starts the daemon; both are byte-compiled then
    ours, peer = await alternating(mine, theirs, times=TIMES)
    return [
        Row(
            measure=f"`go-ent mcp` to its first reply, {what}",
            unit="ms",
            ours=a * 1000,
            peer=b * 1000,
            peer_name=PEER,
            at_most=TARGET,
        )
        for what, a, b in (("wall", ours.wall, peer.wall), ("CPU", ours.cpu, peer.cpu))
    ]


def to_reply(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    asked: Mapping[str, object] = INITIALIZE,
    told: str = "serverInfo",
) -> Cost:
    """From the start of the command to its reply, which must tell something."""
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin and server.stdout
        with ended_in_time(server):
            server.stdin.write(json.dumps(asked).encode() + b"\n")
            server.stdin.flush()
            line = server.stdout.readline()
            wall = time.perf_counter() - started
            cpu = cpu_of(server.pid)
            server.stdin.close()
            reap(server)
    if not line or told not in json.loads(line).get("result", {}):
        raise Failed(f"{' '.join(command)!r} answered {line!r}")
    return Cost(wall=wall, cpu=cpu)
