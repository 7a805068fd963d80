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

        A zombie's is empty. Of a process of ours that we may not look into, it is what its interpreter
        was told by `-X`: anybody can read arguments. Who was `present` at some time before can be left
        out: reading all of them is most of what ending one costs.
        """
        wanted = needle.encode()
        with os.scandir(PROC) as entries:
            names = [entry.name for entry in entries if entry.inode() not in but]
        for name in names:
            if name.isdecimal() and wanted in (environ := _environ(int(name))):
                yield int(name), os.fsdecode(environ).split("\0")

    def mounts(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, str]]:
        """What the needle begins on a line of each process's own mounts, if it has mounts of its own.

        Unlike an environment, a process cannot clear them.
        """
        ours = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 (for each of very many)
        with os.scandir(PROC) as entries:
            names = [entry.name for entry in entries if entry.inode() not in but]
        for name in names:
            if not name.isdecimal():
                continue
            try:
                if os.readlink(f"/proc/{name}/ns/mnt") == ours:  # noqa: PTH115 (the same)
                    continue
                lines = os.fsdecode(_content(f"/proc/{name}/mountinfo")).splitlines()
            except OSError as error:
                if error.errno in WANTING:
                    raise
                continue
            for line in lines:
                if needle in line:
                    yield int(name), line.partition(needle)[2].partition(" ")[0]
                    break

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
        except PermissionError:
            return _options(pid)
        except OSError as error:
            if error.errno in WANTING:
                raise
        return b""

    def _options(pid: int) -> bytes:
        """The values of `-X` among the arguments of a process of ours, as if they were its environment."""
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():  # noqa: PTH116 (for each of very many)
                return b""
            words = _content(f"/proc/{pid}/cmdline").split(b"\0")
        except OSError as error:
            if error.errno in WANTING:
                raise
            return b""
        return b"\0".join(word.removeprefix(b"-X") for word in words if word.startswith(b"-X"))

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
        except (FileNotFoundError, ProcessLookupError) as error:
            if _is_hidden(pid):
                raise OSError(f"/proc does not show process {pid}") from error
            return None
        # The name in parentheses may hold anything, parentheses too; what follows is plain.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in DEAD else fields[18]

    def _is_hidden(pid: int) -> bool:
        """Whether it lives all the same: with `hidepid`, /proc does not show who is closed to us."""
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return Path(PROC, "self").exists() and not Path(PROC, str(pid)).exists()

    def in_our_namespace(pid: int) -> bool:
        """False for a container's process: its pids are not ours, nor are its owner's."""
        with suppress(OSError):
            try:
                ours, its = (Path(PROC, who, "ns/pid").stat().st_ino for who in ("self", str(pid)))
            except PermissionError:  # of a process that is closed to us, how deep it is nested
                ours, its = (_depth(Path(PROC, who, "status")) for who in ("self", str(pid)))
            return ours == its
        return False

    def _depth(status: Path) -> int:
        for line in status.read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return len(line.split())
        return 0

else:

    def mounts(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, str]]:
        """Nobody has mounts of its own."""
        del needle, but
        yield from ()

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
