"""What does the system's process table say? Linux by /proc, elsewhere by psutil."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
DEAD = frozenset({"Z", "X", "x"})

if sys.platform == "linux":

    def environments(needle: str) -> Iterator[tuple[int, list[str]]]:
        """The environment each living process was started with, where it holds the needle.

        A zombie's is empty, and so is that of a process we may not look into.
        """
        wanted = needle.encode()
        for entry in os.scandir(PROC):
            if not entry.name.isdecimal():
                continue
            with suppress(OSError):
                environ = Path(entry.path, "environ").read_bytes()
                if wanted in environ:
                    yield int(entry.name), os.fsdecode(environ).split("\0")

    def started(pid: int) -> str | None:
        """When the process started, as the kernel counts; None if it does not live."""
        try:
            stat = (PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The name in parentheses may hold anything, parentheses too; what follows is plain.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in DEAD else fields[18]

    def in_our_namespace(pid: int) -> bool:
        """False for a container's process: its pids are not ours, nor are its owner's."""
        with suppress(OSError):
            ours, its = (Path(PROC, who, "ns/pid").stat().st_ino for who in ("self", str(pid)))
            return ours == its
        return False

else:

    def environments(needle: str) -> Iterator[tuple[int, list[str]]]:
        """The environment of each living process that we may look into."""
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    environ = [f"{name}={value}" for name, value in process.environ().items()]
                    if any(entry.startswith(needle) for entry in environ):
                        yield process.pid, environ

    def started(pid: int) -> str | None:
        """When the process started, in milliseconds; None if it does not live."""
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return str(int(process.create_time() * 1000))
        except psutil.Error:
            return None

    def in_our_namespace(pid: int) -> bool:
        """There are no others."""
        return pid > 0
