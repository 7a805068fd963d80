"""Decides when an OpenCode process is worn out or hung, and when to keep another in reserve.

A reserve costs the memory of an idle process, and a start. It is worth that during a turn that is
long enough to be worth saving, on a machine with capacity to spare.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
from anyio import to_thread

from goent.agents.process_vitals import GB, Vitals, read_vitals
from goent.domain.settings import StandbyMode
from goent.domain.types import Value
from goent.opencode.opencode_process import OpenCodeProcess


class CarePolicy(Value, frozen=True, kw_only=True):
    """How often a process is checked, and when it counts as hung or worn. Times are in seconds.

    After `misses` health checks in a row without an answer within `patience`, an idle process is
    killed; one that uses the CPU gets `misses_at_work`. A turn of `reserve_after_s` is worth another
    process in reserve, which stays for `reserve_linger_s` after the last turn.
    """

    interval: float = 15.0
    patience: float = 5.0
    misses: int = 3
    misses_at_work: int = 9
    memory: int = 2 * GB
    maps: int = 40_000
    age: float = 12 * 3600.0
    reserve_after_s: float = 60.0
    reserve_linger_s: float = 120.0

    def worn_reason(self, vitals: Vitals, age: float) -> str:
        """Why the process should take no further work; empty if it should."""
        if vitals.memory > self.memory:
            return f"{vitals.memory / GB:.1f} GB of memory"
        if vitals.maps > self.maps:
            return f"{vitals.maps} memory maps"
        if age > self.age:
            return f"{age / 3600:.1f} hours of age"
        return ""

    def is_hung(self, misses: int, *, at_work: bool) -> bool:
        return misses >= (self.misses_at_work if at_work else self.misses)


MAX_LOAD = 0.5  # of the last minute, per core
MIN_FREE_BYTES = 4 * GB  # a process in reserve takes about a seventh of it


class MachineLoad(Value, frozen=True, kw_only=True):
    """Load per core, and available bytes of memory."""

    load: float
    memory: int

    @property
    def has_room(self) -> bool:
        return self.load <= MAX_LOAD and self.memory >= MIN_FREE_BYTES


def is_reserve_wanted(
    choice: StandbyMode, longest: float, *, steady: float, machine: MachineLoad
) -> bool:
    """`longest` is the age of the longest running turn, in seconds."""
    return choice == "always" or (choice == "auto" and longest >= steady and machine.has_room)


def read_machine() -> MachineLoad:
    return MachineLoad(load=os.getloadavg()[0] / (os.cpu_count() or 1), memory=_available_memory())


if sys.platform == "linux":

    def _available_memory() -> int:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return 0

else:

    def _available_memory() -> int:
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        return psutil.virtual_memory().available


IDLE_CPU_S = 0.05  # between two checks of an idle process


async def watch_process(
    process: OpenCodeProcess, care: Callable[[], CarePolicy], worn: Callable[[str], None]
) -> None:
    """Return when the process is gone. Once it is worn, call `worn` with the reason at every check."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_check_repeatedly, process, care, worn)
        await process.gone.wait()
        tasks.cancel_scope.cancel()


async def _check_repeatedly(
    process: OpenCodeProcess, care: Callable[[], CarePolicy], worn: Callable[[str], None]
) -> None:
    born = time.monotonic()
    misses, reason = 0, ""
    before: Vitals | None = None
    while True:
        policy = care()
        await anyio.sleep(policy.interval)
        answers = await process.client.is_healthy(policy.patience)
        vitals = await to_thread.run_sync(read_vitals, process.pid)
        if vitals is None:
            continue  # it is ending
        misses = 0 if answers else misses + 1
        at_work = before is None or vitals.cpu - before.cpu > IDLE_CPU_S
        if policy.is_hung(misses, at_work=at_work):
            process.kill(f"did not answer {misses} times in a row and was killed")
            return
        if reason := reason or policy.worn_reason(vitals, time.monotonic() - born):
            worn(reason)
        before = vitals
