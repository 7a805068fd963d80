"""Is another process to be kept in reserve, for when one that works is lost or full?

A reserve costs the memory of a process that does nothing, and a start. It is worth that while a
turn is long enough to be worth saving, on a machine that has both to spare.
"""

import os
import sys
from pathlib import Path

from goent.domain.settings import Standby
from goent.domain.types import Value
from goent.drivers.vitals import GB

CALM = 0.5  # load of the last minute for each core, at most
SPARE = 4 * GB  # memory that must be free: a process in reserve takes about a seventh of it


class Machine(Value, frozen=True, kw_only=True):
    """What others leave to us: load for each core, and bytes of memory to be had."""

    load: float
    memory: int

    @property
    def has_room(self) -> bool:
        return self.load <= CALM and self.memory >= SPARE


def wanted(choice: Standby, longest: float, *, steady: float, machine: Machine) -> bool:
    """`longest` is for how many seconds the longest turn has been under way."""
    return choice == "always" or (choice == "auto" and longest >= steady and machine.has_room)


def read_machine() -> Machine:
    """As it is now."""
    return Machine(load=os.getloadavg()[0] / (os.cpu_count() or 1), memory=_available())


if sys.platform == "linux":

    def _available() -> int:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return 0

else:

    def _available() -> int:
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        return psutil.virtual_memory().available
