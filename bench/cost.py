"""What does a command cost, in wall and CPU time?"""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
from msgspec import Struct

PATIENCE = 120.0


class Cost(Struct, frozen=True, kw_only=True):
    """Seconds; CPU is that of the process and of every child it waited for."""

    wall: float
    cpu: float


class Failed(Exception):
    """A command that was to be measured did not do its work; the message shows its output."""


def whole_run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Cost:
    """From the start of the command to its end, which must be a good one."""
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout
        with ended_in_time(process):
            output = process.stdout.read()
            cpu = reap(process)
    wall = time.perf_counter() - started
    if process.returncode:
        said = output.decode(errors="replace")[-2000:]
        raise Failed(f"{' '.join(command)!r} ended with {process.returncode}: {said}")
    return Cost(wall=wall, cpu=cpu)


@contextmanager
def ended_in_time(process: "subprocess.Popen[bytes]") -> Generator[None]:
    """A command that hangs is killed: then the read ends, and so does the measurement."""
    clock = threading.Timer(PATIENCE, process.kill)
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def reap(process: "subprocess.Popen[bytes]") -> float:
    """Wait for the process ourselves, because the kernel tells its CPU time only once."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def cpu_of(pid: int) -> float:
    """CPU seconds of a living process so far, to the nanosecond; its children are not in it."""
    spent = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            spent += int(path.read_text().split()[0])
    return spent / 1e9


def cpu_ever(pid: int) -> float:
    """As `cpu_of`, to the clock's tick, and threads that have ended are in it."""
    # The name in parentheses may hold anything; what follows is plain.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Bytes of memory that the process has (RSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise Failed(f"the process {pid} has ended")


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        wall=statistics.median(cost.wall for cost in costs),
        cpu=statistics.median(cost.cpu for cost in costs),
    )


async def alternating(
    ours: Callable[[], Cost], peer: Callable[[], Cost], *, times: int
) -> tuple[Cost, Cost]:
    """The median of both, measured in turns: a busy moment of the machine meets both."""
    mine: list[Cost] = []
    theirs: list[Cost] = []
    for _ in range(times):
        mine.append(await anyio.to_thread.run_sync(ours))
        theirs.append(await anyio.to_thread.run_sync(peer))
    return median(mine), median(theirs)
