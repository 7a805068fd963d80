"""What does `go-ent acp` cost beside `opencode acp`: to start, idle, and at work?"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import anyio
from bench.acp_client import Driven, driven
from bench.cost import Failed, alternating, resident
from bench.handshake import to_reply
from bench.place import GO_ENT, MODEL, OUR_TOOLS, PEER_TOOLS, Place
from bench.table import Row
from bench.tree import descendants

STARTS = 7
TURNS = 9
CALLS = 3
SETTLE_S = 3.0
PEER = "`opencode acp`"
INITIALIZE: Mapping[str, object] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}


def _ours() -> tuple[str, ...]:
    return (*GO_ENT, "acp", "--model", MODEL)


def _theirs(place: Place) -> tuple[str, ...]:
    return (place.opencode, "acp")


async def starts(place: Place) -> list[Row]:
    """Spawn to `initialize` reply; both have run in this home before."""
    greeted = partial(to_reply, cwd=place.project, asked=INITIALIZE, told="agentInfo")
    mine = partial(greeted, _ours(), env=place.env)
    theirs = partial(greeted, _theirs(place), env=place.peer_env)
    await alternating(mine, theirs, times=1)
    ours, peer = await alternating(mine, theirs, times=STARTS)
    return [
        Row(
            measure=f"`go-ent acp` to its first reply, {what}",
            unit="ms",
            ours=a * 1000,
            peer=b * 1000,
            peer_name=PEER,
            at_most=0.1 if what == "wall" else None,
        )
        for what, a, b in (("wall", ours.wall, peer.wall), ("CPU", ours.cpu, peer.cpu))
    ]


async def idle(place: Place) -> list[Row]:
    """Greeted, one session open, and nothing to do."""
    ours = await _memory(_ours(), place.project, place.env)
    peer = await _memory(_theirs(place), place.project, place.peer_env)
    return [
        Row(
            measure="an idle agent with a session, memory (RSS)",
            unit="MB",
            ours=ours / 1e6,
            peer=peer / 1e6,
            peer_name=PEER,
            at_most=0.15,
        )
    ]


async def _memory(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> int:
    async with driven(command, cwd=cwd, env=env) as agent:
        await agent.session()
        await anyio.sleep(SETTLE_S)
        return sum(map(resident, [agent.pid, *descendants(agent.pid)]))


async def turns(place: Place) -> list[Row]:
    """Read, edit, run, and a last word: the agents, the session and the model are warm."""
    async with (
        driven(_ours(), cwd=place.project, env=place.env) as mine,
        driven(_theirs(place), cwd=place.project, env=place.peer_env) as theirs,
    ):
        sides = ((mine, OUR_TOOLS), (theirs, PEER_TOOLS))
        sessions = [await agent.session() for agent, _ in sides]
        walls: tuple[list[float], list[float]] = ([], [])
        for number in range(TURNS + 2):
            for (agent, prompt), session, wall in zip(sides, sessions, walls, strict=True):
                took = await _turn(place, agent, session, prompt)
                if number >= 2:
                    wall.append(took)
    return [
        Row(
            measure=f"a turn of {CALLS} tool calls, instant model, wall",
            unit="ms",
            ours=median(walls[0]) * 1000,
            peer=median(walls[1]) * 1000,
            peer_name=PEER,
            at_most=0.5,
        )
    ]


async def _turn(place: Place, agent: Driven, session: str, prompt: str) -> float:
    (place.project / "colours.txt").write_text("red\ngreen\nblue\n")
    started = time.perf_counter()
    done = await agent.turn(session, prompt)
    took = time.perf_counter() - started
    said = (place.project / "colours.txt").read_text()
    if done != CALLS or said != "red\nyellow\nblue\n":
        raise Failed(f"{prompt!r}: {done} of {CALLS} tool calls succeeded, and left {said!r}")
    return took
