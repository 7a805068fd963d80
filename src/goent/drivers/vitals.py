"""How is a process, seen from outside, and is it still worth keeping?

Seen in OpenCode 1.18: memory that a directory took is never given back, and a process that had
reached the kernel's limit of memory maps (65,530) answered nobody any more, at full load.
"""

import os
import sys
from pathlib import Path

from goent.domain.types import Value

GB = 1024**3


class Vitals(Value, frozen=True, kw_only=True):
    """CPU seconds since its start, resident bytes, and memory maps (0 where nobody counts them)."""

    cpu: float
    memory: int
    maps: int = 0


class Care(Value, frozen=True, kw_only=True):
    """When a process is looked at, when it is given up, and when it has served long enough.

    `misses` questions in a row without an answer are the end of one that does nothing; one that
    works gets `misses_at_work`. `patience` is for each answer. `steady` is the age of a turn that is
    worth another process in reserve, and `linger` how long that stays after the last turn. All times
    are in seconds.
    """

    interval: float = 15.0
    patience: float = 5.0
    misses: int = 3
    misses_at_work: int = 9
    memory: int = 2 * GB
    maps: int = 40_000
    age: float = 12 * 3600.0
    steady: float = 60.0
    linger: float = 120.0

    def worn(self, vitals: Vitals, age: float) -> str:
        """Why the process should take no further work; empty if it may."""
        if vitals.memory > self.memory:
            return f"{vitals.memory / GB:.1f} GB of memory"
        if vitals.maps > self.maps:
            return f"{vitals.maps} memory maps"
        if age > self.age:
            return f"{age / 3600:.1f} hours of age"
        return ""

    def given_up(self, misses: int, *, at_work: bool) -> bool:
        return misses >= (self.misses_at_work if at_work else self.misses)


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
