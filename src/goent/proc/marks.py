"""Whose is this process?

A process we start carries `GOENT_PROC=<owner>/<n>` in its environment, and whatever it starts
inherits that, also what moved to a session of its own. The owner names a go-ent by pid and start
time, so that any other go-ent can tell whether it still lives. A go-ent that is itself somebody's
marked process puts its own mark behind the inherited one, separated by a space: whoever brings
the outer one down finds the inner ones too. A process may clear its environment; one in a sandbox with
mounts of its own is known by the name of a folder that is mounted for it as well.

A go-ent closes itself to other processes, and nobody can read its environment then. So one that we
start carries its mark among its arguments as well.
"""

import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, pairwise

from goent.hardening import MARK, MARK_OPTION
from goent.proc import table

MOUNTED = "goent-mark-"  # how the names of folders begin that are mounted for marked processes
POLL = 0.05
_numbers = count(1)


def new_owner(key: str) -> str:
    """The name under which this go-ent marks its processes; `key` says for which project."""
    pid = os.getpid()
    return f"{key}.{pid}.{table.started(pid)}"


def lives(owner: str) -> bool:
    """Whether the go-ent of that name is still there."""
    return not _is_dead(owner, None)


def new_mark(owner: str) -> str:
    """A mark that no other process of this owner has."""
    return f"{owner}/{next(_numbers)}"


def marked_environment(env: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment of a process of ours, behind the mark that we carry ourselves."""
    return {**env, MARK: _behind_ours(mark)}


def marked_command(command: Sequence[str], mark: str) -> tuple[str, ...]:
    """The command; if it is a go-ent, its interpreter is given the mark as an option of no effect."""
    words = tuple(command)
    for at, pair in enumerate(pairwise(words)):
        if pair == ("-m", "goent") and sys.executable in words[:at]:
            return (*words[:at], f"{MARK_OPTION}{_behind_ours(mark)}", *words[at:])
    return words


def _behind_ours(mark: str) -> str:
    inherited = os.environ.get(MARK)
    return f"{inherited} {mark}" if inherited else mark


def marked(prefix: str, *, but: Collection[int] = ()) -> Iterator[int]:
    """Living processes that carry the mark, or any mark of that owner. Never ourselves.

    `but`: who was there (`table.present`) before there was anybody with that mark.
    """
    for pid, marks in _marks(but):
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
                send(pid, ask)
            ended |= orphans
            # A killed process may have forked before it died: its child is told next round.
            told = orphans if ask is signal.SIGTERM else set()
            if time.monotonic() > deadline:
                break
            time.sleep(POLL)
    return sorted(ended)


def send(pid: int, ask: signal.Signals) -> None:
    """Signal one process; one that is gone, or not ours, is no trouble."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, ask)


def send_group(leader: int, ask: signal.Signals) -> None:
    """Signal all of a group that we made; of one that is gone there is nobody."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, ask)


def _orphans(key: str | None) -> Iterator[int]:
    for pid, marks in _marks():
        owners = [mark.rpartition("/")[0] for mark in marks]
        if any(_is_dead(owner, key) for owner in owners) and table.in_our_namespace(pid):
            yield pid


def _is_dead(owner: str, key: str | None) -> bool:
    project, pid, started = ("", "", *owner.rsplit(".", 2))[-3:]  # anybody may set the variable
    if not pid.isdecimal() or (key is not None and project != key):
        return False
    return not table.lives(int(pid), started)


def _marks(but: Collection[int] = ()) -> Iterator[tuple[int, list[str]]]:
    needle = f"{MARK}="
    for pid, environ in table.environments(needle, but=but):
        value = next((entry for entry in environ if entry.startswith(needle)), "")
        if value and pid != os.getpid():
            yield pid, value.removeprefix(needle).split(" ")
    for pid, name in table.mounts(f"/{MOUNTED}", but=but):
        yield pid, [name.replace("~", "/")]


def mounted_name(mark: str) -> str:
    """A folder that is mounted for a process, and so marks it, must be called this."""
    return f"{MOUNTED}{mark.replace('/', '~')}"
