"""Reads CPU, memory and signs of life of a process from outside.

Seen in OpenCode 1.18: memory that a directory took is never given back, and a process that had
reached the kernel's limit of memory maps (65,530) did not answer any more, at full load.
"""

import os
import re
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
EXIT_CODE_TIMEOUT_S = 2.0  # for the exit code, once the connection to a process is dead
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Vitals(Value, frozen=True, kw_only=True):
    """CPU seconds since its start, resident bytes, and memory maps (0 where they are not counted)."""

    cpu: float
    memory: int
    maps: int = 0


if sys.platform == "linux":

    def read_vitals(pid: int) -> Vitals | None:
        """None if the process is gone, or not ours to inspect."""
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
        """None if the process is gone, or not ours to inspect."""
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        try:
            process = psutil.Process(pid)
            spent = process.cpu_times()
            return Vitals(cpu=spent.user + spent.system, memory=process.memory_info().rss)
        except psutil.Error:
            return None


SAMPLE_S = 2.0  # how long a silent process is sampled
IDLE_CPU_S = 0.2  # at most, by an agent that idles while it is sampled


async def read_signs(child: SupervisedProcess, name: str) -> WorkerLiveness:
    """Alive if it runs a command, or uses the CPU."""
    if await to_thread.run_sync(_runs_a_command, child):
        return WorkerLiveness(alive=True, detail="it is running a command")
    return await sample_cpu(child.pid, name, idle_cpu=IDLE_CPU_S)


async def sample_cpu(pid: int, name: str, *, idle_cpu: float) -> WorkerLiveness:
    """Alive if the process uses more CPU seconds than an idle one while it is sampled."""
    before = read_vitals(pid)
    await anyio.sleep(SAMPLE_S)
    after = read_vitals(pid)
    used = after.cpu - before.cpu if before and after else 0.0
    return WorkerLiveness(
        alive=used > idle_cpu, detail=f"{name} used {used:.2f} s of CPU in {SAMPLE_S:g} s"
    )


def _runs_a_command(child: SupervisedProcess) -> bool:
    """Agents give each command a session of its own, but not their MCP servers."""
    for pid in list(marked_processes(child.mark)):
        with suppress(ProcessLookupError, PermissionError):
            if pid != child.pid and os.getsid(pid) != child.pid:
                return True
    return False


def without_colours(output: str) -> str:
    """The output of a process without the codes that colour it."""
    return _COLOURS.sub("", output)
