"""What does the system's process table say? Linux by /proc, elsewhere by psutil."""

import errno
import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
CHUNK = 64 * 1024
VANISHING = 1  # the kernel's number for whoever ends while the table is read
DEAD = frozenset({"Z", "X", "x"})
LOOKS = (
    100  # at a process in the middle of exec, which takes less than that, also on a busy machine
)
GLANCE = 0.001  # seconds between them
SURE = 5  # looks at one that has arguments
WANTING = (errno.EMFILE, errno.ENFILE)  # they say nothing of the process that was looked at

if sys.platform == "linux":

    def present() -> frozenset[int]:
        """Who is there now, each by a number that no later process has."""
        with os.scandir(PROC) as entries:
            found = {entry.inode() for entry in entries}
        return frozenset(found - {VANISHING})

    def environments(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, list[str]]]:
        """The environment each living process was started with, where it holds the needle.

        A zombie's is empty, and so is that of a process we may not look into. Who was `present`
        at some time before can be left out: reading all of them is most of what ending one costs.
        """
        wanted = needle.encode()
        with os.scandir(PROC) as entries:
            names = [entry.name for entry in entries if entry.inode() not in but]
        for name in names:
            if name.isdecimal() and wanted in (environ := _environ(int(name))):
                yield int(name), os.fsdecode(environ).split("\0")

    def _environ(pid: int) -> bytes:
        """Empty if there is none, or none for us. Raises `OSError` for want of descriptors.

        Whoever is just becoming another program has none for a moment, and no arguments either. So who has
        arguments alone is believed only after several looks: between two of them it may have begun again.
        """
        seen = 0
        try:
            for _ in range(LOOKS):
                if environ := _content(f"/proc/{pid}/environ"):
                    return environ
                if _content(f"/proc/{pid}/cmdline"):
                    seen += 1
                    if seen == SURE:
                        break
                else:
                    Path(
                        f"/proc/{pid}/exe"
                    ).readlink()  # fails for zombies and threads of the kernel
                    time.sleep(GLANCE)
        except OSError as error:
            if error.errno in WANTING:
                raise
        return b""

    def _content(path: str) -> bytes:
        """Of a file that has no size."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, CHUNK)
            while more := len(content) % CHUNK == 0 and os.read(descriptor, CHUNK):
                content += more
            return content
        finally:
            os.close(descriptor)

    def started(pid: int) -> str | None:
        """When the process started, as the kernel counts; None if it does not live.

        Raises `OSError` if that cannot be told, as for want of descriptors.
        """
        try:
            stat = os.fsdecode(_content(f"/proc/{pid}/stat"))
        except (FileNotFoundError, ProcessLookupError):
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

    def present() -> frozenset[int]:
        """Nobody has such a number."""
        return frozenset()

    def environments(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, list[str]]]:
        """The environment of each living process that we may look into."""
        del but
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    environ = [f"{name}={value}" for name, value in process.environ().items()]
                    if any(entry.startswith(needle) for entry in environ):
                        yield process.pid, environ

    def started(pid: int) -> str | None:
        """When the process started, in milliseconds; None if it does not live.

        Raises `OSError` if that cannot be told.
        """
        import psutil  # noqa: PLC0415 (only where there is no /proc)

        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return str(int(process.create_time() * 1000))
        except psutil.NoSuchProcess:
            return None
        except psutil.Error as error:
            raise OSError(f"when process {pid} started cannot be told: {error}") from error

    def in_our_namespace(pid: int) -> bool:
        """There are no others."""
        return pid > 0


def lives(pid: int, since: str | None = None) -> bool:
    """Whether the process lives, the one that started then. Of one that cannot be told, yes."""
    try:
        found = started(pid)
    except OSError:
        return True
    return found is not None and since in (None, found)
