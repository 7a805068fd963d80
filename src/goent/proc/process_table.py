"""Looks into the system's process table, and finds the processes that carry our marks.

A process we start carries `GOENT_PROC=<owner>/<n>` in its environment, and whatever it starts
inherits that, also what moved to a session of its own. The owner names a go-ent by pid and start
time, so that any other go-ent can tell whether it still lives. A go-ent that is itself somebody's
marked process puts its own mark behind the inherited one, separated by a space: whoever brings
the outer one down finds the inner ones too. A process may clear its environment; one in a sandbox with
mounts of its own is known by the name of a folder that is mounted for it as well.

A go-ent closes itself to other processes, and nobody can read its environment then. So one that we
start carries its mark among its arguments as well.
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
VANISHING_INODE = 1  # the kernel's number for whoever ends while the table is read
DEAD_STATES = frozenset({"Z", "X", "x"})
EXEC_CHECKS = (
    100  # at a process in the middle of exec, which takes less than that, also on a busy machine
)
EXEC_CHECK_S = 0.001  # seconds between them
SURE_CHECKS = 5  # looks at one that has arguments
OUT_OF_DESCRIPTORS = (
    errno.EMFILE,
    errno.ENFILE,
)  # they say nothing of the process that was looked at

if sys.platform == "linux":

    def present_processes() -> frozenset[int]:
        """Who is there now, each by a number that no later process has."""
        with os.scandir(PROC) as entries:
            found = {entry.inode() for entry in entries}
        return frozenset(found - {VANISHING_INODE})

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
        """Empty if there is none, or none for us. Raises `OSError` for want of descriptors.

        Whoever is just becoming another program has none for a moment, and no arguments either. So who has
        arguments alone is believed only after several looks: between two of them it may have begun again.
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
                    Path(
                        f"/proc/{pid}/exe"
                    ).readlink()  # fails for zombies and threads of the kernel
                    time.sleep(EXEC_CHECK_S)
        except PermissionError:
            return _options(pid)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise
        return b""

    def _options(pid: int) -> bytes:
        """The values of `-X` among the arguments of a process of ours, as if they were its environment."""
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
        """Of a file that has no size."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, CHUNK)
            while more := len(content) % CHUNK == 0 and os.read(descriptor, CHUNK):
                content += more
            return content
        finally:
            os.close(descriptor)

    def start_time(pid: int) -> str | None:
        """When the process started, as the kernel counts; None if it does not live.

        Raises `OSError` if that cannot be told, as for want of descriptors.
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

    def present_processes() -> frozenset[int]:
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

    def start_time(pid: int) -> str | None:
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


def is_alive(pid: int, since: str | None = None) -> bool:
    """Whether the process lives, the one that started then. Of one that cannot be told, yes."""
    try:
        found = start_time(pid)
    except OSError:
        return True
    return found is not None and since in (None, found)


MOUNT_PREFIX = "goent-mark-"  # how the names of folders begin that are mounted for marked processes
POLL_S = 0.05
_numbers = count(1)


def new_owner(key: str) -> str:
    """The name under which this go-ent marks its processes; `key` says for which project."""
    pid = os.getpid()
    return f"{key}.{pid}.{start_time(pid)}"


def is_owner_alive(owner: str) -> bool:
    """Whether the go-ent of that name is still there."""
    return not _is_owner_dead(owner, None)


def new_mark(owner: str) -> str:
    """A mark that no other process of this owner has."""
    return f"{owner}/{next(_numbers)}"


def marked_environment(env: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment of a process of ours, behind the mark that we carry ourselves."""
    return {**env, MARK_VARIABLE: _nested_mark(mark)}


def marked_command(command: Sequence[str], mark: str) -> tuple[str, ...]:
    """The command; if it is a go-ent, its interpreter is given the mark as an option of no effect."""
    words = tuple(command)
    for at, pair in enumerate(pairwise(words)):
        if pair == ("-m", "goent") and sys.executable in words[:at]:
            return (*words[:at], f"{MARK_OPTION}{_nested_mark(mark)}", *words[at:])
    return words


def _nested_mark(mark: str) -> str:
    inherited = os.environ.get(MARK_VARIABLE)
    return f"{inherited} {mark}" if inherited else mark


def marked_processes(prefix: str, *, but: Collection[int] = ()) -> Iterator[int]:
    """Living processes that carry the mark, or any mark of that owner. Never ourselves.

    `but`: who was there (`table.present`) before there was anybody with that mark.
    """
    for pid, marks in _process_marks(but):
        if any(mark == prefix or mark.startswith(f"{prefix}/") for mark in marks):
            yield pid


def sweep_dead_owners(key: str | None = None, *, grace: float = 2.0) -> list[int]:
    """End what dead go-ents left behind, of one project or of all; tells whom it ended."""
    ended: set[int] = set()
    for ask in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace
        told: set[int] = set()
        while orphans := set(_orphans(key)):
            for pid in orphans - told:
                send_signal(pid, ask)
            ended |= orphans
            # A killed process may have forked before it died: its child is told next round.
            told = orphans if ask is signal.SIGTERM else set()
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
    return sorted(ended)


def send_signal(pid: int, ask: signal.Signals) -> None:
    """Signal one process; one that is gone, or not ours, is no trouble."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, ask)


def send_group_signal(leader: int, ask: signal.Signals) -> None:
    """Signal all of a group that we made; of one that is gone there is nobody."""
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
    """A folder that is mounted for a process, and so marks it, must be called this."""
    return f"{MOUNT_PREFIX}{mark.replace('/', '~')}"
