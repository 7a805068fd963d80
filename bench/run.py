"""How long does a small task take from the shell, beside `opencode run`?"""

from functools import partial

from bench.cost import alternating, whole_run
from bench.place import ONE_STEP, Place
from bench.table import Row

TIMES = 7
TARGET = 0.2


async def run(place: Place) -> list[Row]:
    """One step of an instant model, whole command; daemon, directory and data are warm."""
    mine = partial(whole_run, place.go_ent_run(ONE_STEP), cwd=place.project, env=place.env)
    theirs = partial(whole_run, place.peer_run(ONE_STEP), cwd=place.project, env=place.peer_env)
    await alternating(mine, theirs, times=1)
    ours, peer = await alternating(mine, theirs, times=TIMES)
    return [
        Row(
            measure="`go-ent run` of a one-step task, wall",
            unit="ms",
            ours=ours.wall * 1000,
            peer=peer.wall * 1000,
            peer_name="`opencode run`",
            at_most=TARGET,
        )
    ]
