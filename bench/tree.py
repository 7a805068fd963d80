"""What do commands cost with everything they start, daemons too: CPU time, and memory at its peak?

Run as a process of its own (`python -m bench.tree`, an `Order` on stdin, a `Bill` on stdout), which
adopts whatever its descendants leave behind: so nothing escapes the count, or outlives it.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_S = 0.5
PAGE = os.sysconf("SC_PAGE_SIZE")


class Order(Struct, frozen=True, kw_only=True):
    """Commands to be run, so many at once; one to be run after them; how long all may take."""

    commands: tuple[tuple[str, ...], ...]
    at_once: int
    afterwards: tuple[str, ...] = ()
    cwd: str
    env: dict[str, str]
    seconds: float


class Bill(Struct, frozen=True, kw_only=True):
    """CPU and wall in seconds; memory in bytes, shared pages divided among who shares them."""

    wall: float
    cpu: float
    memory: int
    processes: int
    failed: tuple[str, ...] = ()


class Sampler(threading.Thread):
    """Keeps the highest sum of memory that it has seen."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.memory = 0
        self.processes = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(SAMPLE_S):
            below = descendants(os.getpid())
            self.memory = max(self.memory, sum(_memories(below)))
            self.processes = max(self.processes, len(below))


def descendants(root: int) -> list[int]:
    """Living processes below `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(folder.name), int(_stat(int(folder.name))[1])


def _stat(pid: int) -> list[str]:
    """State, parent, and so on: the name in parentheses may hold anything, what follows is plain."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _memories(pids: list[int]) -> Iterator[int]:
    """What each has. One that still is its parent's image, before its `exec`, has nothing of its own."""
    for pid in pids:
        with suppress(OSError):
            parent = int(_stat(pid)[1])
            if _command(pid) != _command(parent):
                yield memory_of(pid)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def memory_of(pid: int) -> int:
    """Its share, or all that it has if it is closed to us, as go-ent is to everybody but root."""
    with suppress(PermissionError):
        return _share(pid)
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def _share(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def serve(order: Order) -> Bill:
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("this kernel knows no subreaper")
    sampler = Sampler()
    sampler.start()
    started = time.perf_counter()
    try:
        failed = _run_all(order)
    finally:
        sampler.done.set()
        _end_the_rest()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Bill(
        wall=time.perf_counter() - started,
        cpu=usage.ru_utime + usage.ru_stime,
        memory=sampler.memory,
        processes=sampler.processes,
        failed=failed,
    )


def _run_all(order: Order) -> tuple[str, ...]:
    """The words of those that failed."""
    deadline = time.monotonic() + order.seconds

    def hand(command: tuple[str, ...]) -> str:
        return _ended(_start(command, order), deadline)

    with ThreadPoolExecutor(order.at_once) as hands:
        words = list(hands.map(hand, order.commands))
    if order.afterwards:
        words.append(_ended(_start(order.afterwards, order), deadline))
    return tuple(filter(None, words))


def _start(command: tuple[str, ...], order: Order) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        cwd=order.cwd,
        env=order.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _ended(process: "subprocess.Popen[bytes]", deadline: float) -> str:
    try:
        output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "it took too long"
    said = output.decode(errors="replace")[-500:]
    return f"exit {process.returncode}: {said}" if process.returncode else ""


def _end_the_rest() -> None:
    """Whoever is still there is ours, by descent; every wait counts towards the bill."""
    patience = time.monotonic() + 10
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(os.getpid())
        if not left:
            return
        if time.monotonic() > patience:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(serve(order)) + b"\n")


if __name__ == "__main__":
    main()
