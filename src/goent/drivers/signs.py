"""Is a silent process at work, seen from outside?"""

import os
from contextlib import suppress

import anyio
from anyio import to_thread

from goent.domain.ports import Signs
from goent.drivers.vitals import read_vitals
from goent.proc import Supervised, marked

LOOK, IDLE_CPU = 2.0, 0.2  # seconds to look at a silent process; CPU that idling takes at most


async def look(child: Supervised, name: str = "OpenCode") -> Signs:
    """A command that runs, or a process that computes: it lives."""
    if await to_thread.run_sync(_runs_a_command, child):
        return Signs(alive=True, detail="a command of its is running")
    before = read_vitals(child.pid)
    await anyio.sleep(LOOK)
    after = read_vitals(child.pid)
    used = after.cpu - before.cpu if before and after else 0.0
    return Signs(alive=used > IDLE_CPU, detail=f"{name} used {used:.2f} s of CPU in {LOOK:g} s")


def _runs_a_command(child: Supervised) -> bool:
    """Agents give each command a session of its own, and their servers (MCP) none."""
    for pid in list(marked(child.mark)):
        with suppress(ProcessLookupError, PermissionError):
            if pid != child.pid and os.getsid(pid) != child.pid:
                return True
    return False
