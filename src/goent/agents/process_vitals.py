"""Reads CPU, memory and signs of life of a process from outside.

Seen in OpenCode 1.18: memory that a directory took is never given back, and a process that had
reached the kernel's limit of memory maps (65,530) answered nobody any more, at full load.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import anyio
from anyio import to_thread

from goent.domain.ports import WorkerLiveness
from goent.domain.types import Value
from goent.proc.child_process import SupervisedProcess
from goent.proc.process_table import marked_processes

GB = 1024**3


class Vitals(Value, frozen=True, kw_only=True):
    """CPU seconds since its start, resident bytes, and memory maps (0 where nobody counts them)."""

    cpu: float
    memory: int
    maps: int = 0


if sys.platform == "linux":

    def read_vitals(pid: int) -> Vitals | None:
        """None if the process does not live, or is not ours to look into."""
        folder = Path("/proc", str(pid))
        try:
            # The name in parentheses may hold anything, parentheses too; what follows is plain.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            maps = (folder / "maps").read_bytes().count(b"\n")
        except OSError:
            return None
        return Vitals(
            cpu=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            memory=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
            maps=maps,
        )

else:

    def read_vitals(pid: int) -> Vitals | None:
        """None if the process does not live, or is not ours to look into."""
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        try:
            process = psutil.Process(pid)
            spent = process.cpu_times()
            return Vitals(cpu=spent.user + spent.system, memory=process.memory_info().rss)
        except psutil.Error:
            return None


SAMPLE_S, IDLE_CPU = 2.0, 0.2  # seconds to look at a silent process; CPU that idling takes at most


async def read_signs(child: SupervisedProcess, name: str = "OpenCode") -> WorkerLiveness:
    """A command that runs, or a process that computes: it lives."""
    if await to_thread.run_sync(_runs_a_command, child):
        return WorkerLiveness(alive=True, detail="a command of its is running")
    before = read_vitals(child.pid)
    await anyio.sleep(SAMPLE_S)
    after = read_vitals(child.pid)
    used = after.cpu - before.cpu if before and after else 0.0
    return WorkerLiveness(
        alive=used > IDLE_CPU, detail=f"{name} used {used:.2f} s of CPU in {SAMPLE_S:g} s"
    )


def _runs_a_command(child: SupervisedProcess) -> bool:
    """Agents give each command a session of its own, and their servers (MCP) none."""
    for pid in list(marked_processes(child.mark)):
        with suppress(ProcessLookupError, PermissionError):
            if pid != child.pid and os.getsid(pid) != child.pid:
                return True
    return False
