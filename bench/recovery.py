"""How soon do the sessions of a killed OpenCode go on, beside a cold start of a new one?

Ours is the time from `kill -9` of the shared process to the moment when the last of its sessions
calls its model again. The peer's is from the start of `opencode acp` to its first session.
"""

import os
import signal
import statistics
import subprocess
import time

import anyio
import msgspec
from bench.client import Client, a_client
from bench.cost import PATIENCE, Failed, cpu_of, ended_in_time, reap
from bench.place import SLOW, Place
from bench.table import Row

TIMES = 5
SESSIONS = 3
TARGET = 2.0
INITIALIZE = {
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {"terminal": False}},
}
QUIET_S, QUIET_CPU_S, CALM_S = 1.0, 0.1, 30.0


async def run(place: Place) -> list[Row]:
    mine: list[float] = []
    theirs: list[float] = []
    async with a_client(place) as client:
        for number in range(TIMES + 1):
            mine.append(await _recovered(place, client, number))
            theirs.append(await anyio.to_thread.run_sync(_cold_start, place))
    return [
        Row(
            measure=f"{SESSIONS} sessions of a killed OpenCode to their next model call",
            unit="s",
            ours=statistics.median(mine[1:]),  # the first ones found cold files
            peer=statistics.median(theirs[1:]),
            peer_name="cold `opencode acp` to its first session",
            at_most=TARGET,
        )
    ]


async def _recovered(place: Place, client: Client, number: int) -> float:
    before = len(place.models.calls)
    workers = [await client.spawn(f"{SLOW} <{number}.{n}>") for n in range(SESSIONS)]
    await place.models.called(before + SESSIONS, timeout=PATIENCE)
    await _calm(client)
    killed = time.time()
    for pid in client.opencodes():
        os.kill(pid, signal.SIGKILL)
    calls = await place.models.called(before + 2 * SESSIONS, timeout=PATIENCE)
    took = max(call.started for call in calls) - killed
    states = {status.state for status in await client.ended(workers)}
    if states != {"completed"}:
        raise Failed(f"after OpenCode was killed its workers ended as {', '.join(states)}")
    await client.close(workers)
    return took


async def _calm(client: Client) -> None:
    """Whatever go-ent prepares for such a moment it has prepared: its processes rest."""
    with anyio.move_on_after(CALM_S):
        spent = float("-inf")
        while (now := sum(map(cpu_of, client.processes()))) - spent > QUIET_CPU_S:
            spent = now
            await anyio.sleep(QUIET_S)


def _cold_start(place: Place) -> float:
    params: dict[str, object] = {"cwd": str(place.project), "mcpServers": []}
    new_session = {"method": "session/new", "params": params}
    started = time.perf_counter()
    with subprocess.Popen(
        [place.opencode, "acp"],
        cwd=place.project,
        env=place.peer_env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as agent:
        assert agent.stdin and agent.stdout
        with ended_in_time(agent):
            line = b""
            for number, call in enumerate((INITIALIZE, new_session)):
                request = {"jsonrpc": "2.0", "id": number, **call}
                agent.stdin.write(msgspec.json.encode(request) + b"\n")
                agent.stdin.flush()
                line = next((said for said in agent.stdout if _answers(said, number)), b"")
            took = time.perf_counter() - started
            agent.stdin.close()
            reap(agent)
    if b"sessionId" not in line:
        raise Failed(f"`opencode acp` answered {line!r}")
    return took


class _Reply(msgspec.Struct):
    id: int | None = None
    method: str | None = None


def _answers(line: bytes, number: int) -> bool:
    reply = msgspec.json.decode(line, type=_Reply)
    return reply.method is None and reply.id == number
