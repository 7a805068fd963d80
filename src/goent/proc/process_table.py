"""Reads the system's process table, and finds the processes that carry go-ent's marks.

A process that go-ent starts carries `GOENT_PROC=<owner>/<n>` in its environment, and everything it starts
inherits that, also in a session of its own. The owner names a go-ent by pid and start time, so that any
other go-ent can tell whether it is alive. A go-ent that is itself a marked process appends its own marks
to the inherited one, separated by a space, so ending the outer process finds the inner ones too. A process
may clear its environment; in a sandbox with mounts of its own it is found by the name of a folder that is
mounted for it.

A go-ent closes its environment to other processes, so one that go-ent starts carries its mark among its
arguments as well.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path

from goent.system.process_protection import MARK_OPTION, MARK_VARIABLE

PROC = Path("/proc")
CHUNK = 64 * 1024
VANISHING_INODE = 1  # the kernel's number for a process that ends while the table is read
DEAD_STATES = frozenset({"Z", "X", "x"})
EXEC_CHECKS = (
    100  # of a process in the middle of exec, which is faster than that on a busy machine too
)
EXEC_CHECK_S = 0.001  # between two of them
SURE_CHECKS = 5  # of a process that has arguments but no environment
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)  # errors that are not the process's

if sys.platform == "linux":

    def present_processes() -> frozenset[int]:
        """The processes that exist now, by inode numbers that no later process gets."""
        with os.scandir(PROC) as entries:
            found = {entry.inode() for entry in entries}
        return frozenset(found - {VANISHING_INODE})

    def environments(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, list[str]]]:
        """The initial environment of each living process, where it contains the needle.

        For a closed process of this user, the values of its `-X` options stand in for it: anybody can read
        arguments. `but` are processes to leave out: reading all is most of the cost of ending one.
        """
        wanted = needle.encode()
        with os.scandir(PROC) as entries:
            names = [entry.name for entry in entries if entry.inode() not in but]
        for name in names:
            if name.isdecimal() and wanted in (environ := _environ(int(name))):
                yield int(name), os.fsdecode(environ).split("\0")

    def mounts(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, str]]:
        """Of each process with mounts of its own, the name in them that begins with the needle.

        Unlike its environment, a process cannot clear its mounts.
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
                lines = os.fsdecode(_read_file(f"/proc/{name}/mountinfo")).splitlines()
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    raise
                continue
            for line in lines:
                if needle in line:
                    yield int(name), line.partition(needle)[2].partition(" ")[0]
                    break

    def _environ(pid: int) -> bytes:
        """A process's environment; empty if it has none or is not readable.

        In the middle of exec a process has neither environment nor arguments for a moment. So arguments
        without an environment count only after several looks. Raises `OSError` for lack of descriptors.
        """
        seen = 0
        try:
            for _ in range(EXEC_CHECKS):
                if environ := _read_file(f"/proc/{pid}/environ"):
                    return environ
                if _read_file(f"/proc/{pid}/cmdline"):
                    seen += 1
                    if seen == SURE_CHECKS:
                        break
                else:
                    Path(f"/proc/{pid}/exe").readlink()  # fails for zombies and kernel threads
                    time.sleep(EXEC_CHECK_S)
        except PermissionError:
            return _options(pid)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise
        return b""

    def _options(pid: int) -> bytes:
        """The values of the `-X` options of a process of this user, in the form of an environment."""
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():  # noqa: PTH116 (for each of very many)
                return b""
            words = _read_file(f"/proc/{pid}/cmdline").split(b"\0")
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise
            return b""
        return b"\0".join(word.removeprefix(b"-X") for word in words if word.startswith(b"-X"))

    def _read_file(path: str) -> bytes:
        """Read a file whose size is unknown."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, CHUNK)
            while more := len(content) % CHUNK == 0 and os.read(descriptor, CHUNK):
                content += more
            return content
        finally:
            os.close(descriptor)

    def start_time(pid: int) -> str | None:
        """When the process started, in the kernel's ticks; None if it is not alive.

        Raises `OSError` if that is unknown, for lack of descriptors.
        """
        try:
            stat = os.fsdecode(_read_file(f"/proc/{pid}/stat"))
        except (FileNotFoundError, ProcessLookupError) as error:
            if _is_hidden(pid):
                raise OSError(f"/proc does not show process {pid}") from error
            return None
        # The name in parentheses may hold anything, parentheses too; what follows is plain.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in DEAD_STATES else fields[18]

    def _is_hidden(pid: int) -> bool:
        """Whether it is alive but not shown: with `hidepid`, /proc hides processes closed to this user."""
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
            except PermissionError:  # closed to this user, but its nesting depth is readable
                ours, its = (_depth(Path(PROC, who, "status")) for who in ("self", str(pid)))
            return ours == its
        return False

    def _depth(status: Path) -> int:
        for line in status.read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return len(line.split())
        return 0

else:
    import psutil

    def mounts(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, str]]:
        """No process has mounts of its own."""
        del needle, but
        yield from ()

    def present_processes() -> frozenset[int]:
        """There are no inode numbers."""
        return frozenset()

    def environments(needle: str, *, but: Collection[int] = ()) -> Iterator[tuple[int, list[str]]]:
        """The environment of each living process of which it is readable."""
        del but
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.status() != psutil.STATUS_ZOMBIE:
                    environ = [f"{name}={value}" for name, value in process.environ().items()]
                    if any(entry.startswith(needle) for entry in environ):
                        yield process.pid, environ

    def start_time(pid: int) -> str | None:
        """When the process started, in milliseconds; None if it is not alive.

        Raises `OSError` if that is unknown.
        """
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return str(int(process.create_time() * 1000))
        except psutil.NoSuchProcess:
            return None
        except psutil.Error as error:
            raise OSError(f"the start time of process {pid} is unknown: {error}") from error

    def in_our_namespace(pid: int) -> bool:
        """There are no other namespaces."""
        return pid > 0


def is_alive(pid: int, since: str | None = None) -> bool:
    """Whether the process that started at that time is alive; True if that is unknown."""
    try:
        found = start_time(pid)
    except OSError:
        return True
    return found is not None and since in (None, found)


MOUNT_PREFIX = "goent-mark-"  # how the names of folders begin that are mounted for marked processes
POLL_S = 0.05
_numbers = count(1)


def new_owner(key: str) -> str:
    """The owner in the marks of this go-ent's processes; `key` is the project's."""
    pid = os.getpid()
    return f"{key}.{pid}.{start_time(pid)}"


def is_owner_alive(owner: str) -> bool:
    """Whether the go-ent of that name is still alive."""
    return not _is_owner_dead(owner, None)


def new_mark(owner: str) -> str:
    """A mark that is unique for this owner."""
    return f"{owner}/{next(_numbers)}"


def marked_environment(env: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment with the mark, behind the mark that this process carries itself."""
    return {**env, MARK_VARIABLE: _nested_mark(mark)}


def marked_command(command: Sequence[str], mark: str) -> tuple[str, ...]:
    """The command; if it starts a go-ent, with the mark as an interpreter option without effect."""
    words = tuple(command)
    for at, pair in enumerate(pairwise(words)):
        if pair == ("-m", "goent") and sys.executable in words[:at]:
            return (*words[:at], f"{MARK_OPTION}{_nested_mark(mark)}", *words[at:])
    return words


def _nested_mark(mark: str) -> str:
    inherited = os.environ.get(MARK_VARIABLE)
    return f"{inherited} {mark}" if inherited else mark


def marked_processes(prefix: str, *, but: Collection[int] = ()) -> Iterator[int]:
    """Living processes other than this one that carry the mark, or any mark of that owner.

    `but` are processes that were present before there was one with that mark.
    """
    for pid, marks in _process_marks(but):
        if any(mark == prefix or mark.startswith(f"{prefix}/") for mark in marks):
            yield pid


def sweep_dead_owners(key: str | None = None, *, grace: float = 2.0) -> list[int]:
    """End the processes that dead go-ents left behind, of one project or of all; returns their ids."""
    ended: set[int] = set()
    for ask in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        signalled: set[int] = set()
        while orphans := set(_orphans(key)):
            for pid in orphans - signalled:
                send_signal(pid, ask)
            ended |= orphans
            # A killed process may have forked before: its child gets the signal in the next round.
            signalled = orphans if ask is signal.SIGTERM else set()
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
    return sorted(ended)


def send_signal(pid: int, ask: signal.Signals) -> None:
    """Signal one process, unless it is gone or another user's."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, ask)


def send_group_signal(leader: int, ask: signal.Signals) -> None:
    """Signal a process group, unless it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, ask)


def _orphans(key: str | None) -> Iterator[int]:
    for pid, marks in _process_marks():
        owners = [mark.rpartition("/")[0] for mark in marks]
        if any(_is_owner_dead(owner, key) for owner in owners) and in_our_namespace(pid):
            yield pid


def _is_owner_dead(owner: str, key: str | None) -> bool:
    project, pid, started = ("", "", *owner.rsplit(".", 2))[-3:]  # anybody may set the variable
    if not pid.isdecimal() or (key is not None and project != key):
        return False
    return not is_alive(int(pid), started)


def _process_marks(but: Collection[int] = ()) -> Iterator[tuple[int, list[str]]]:
    needle = f"{MARK_VARIABLE}="
    for pid, environ in environments(needle, but=but):
        value = next((entry for entry in environ if entry.startswith(needle)), "")
        if value and pid != os.getpid():
            yield pid, value.removeprefix(needle).split(" ")
    for pid, name in mounts(f"/{MOUNT_PREFIX}", but=but):
        yield pid, [name.replace("~", "/")]


def mount_name(mark: str) -> str:
    """The name of a folder that marks the processes for which it is mounted."""
    return f"{MOUNT_PREFIX}{mark.replace('/', '~')}"
