"""When has a child ended, and how are it and all that it started brought down?

A worker is a tree: `opencode` starts shells in sessions of their own, shells start servers. So whoever
still carries the child's mark is told to end, session leader or not, and so is who lost the mark but is
still in the child's group: SIGTERM, then SIGKILL.
"""

import signal
from collections.abc import Collection
from typing import Protocol

import anyio

from goent.proc.marks import POLL, marked, send, send_group

SOON = 0.004  # seconds until we look for the first time whether a child has ended


class Child(Protocol):
    """A process of ours. `before`: who was there (`table.present`) before it was."""

    @property
    def pid(self) -> int: ...

    @property
    def mark(self) -> str: ...

    @property
    def inner_mark(self) -> str:
        """The mark of its sandbox, which it cannot shed; empty without one."""
        ...

    @property
    def before(self) -> Collection[int]: ...

    @property
    def returncode(self) -> int | None: ...


async def exit_of(child: Child) -> int:
    """The exit code, once there is one."""
    pause = SOON
    while (code := child.returncode) is None:
        await anyio.sleep(pause)
        pause = min(2 * pause, POLL)
    return code


async def bring_down(child: Child, grace: float) -> None:
    """`grace` seconds between one way of asking and the next."""
    for ask in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(grace):
            await _until_gone(child, ask)
            return


async def _until_gone(child: Child, ask: signal.Signals) -> None:
    told: set[int] = set()
    send_group(child.pid, ask)
    while (living := _surely_living(child)) != set():
        for pid in (living or set()) - told:
            send(pid, ask)
        # SIGKILL is repeated: who forked in the last moment left a child that was not told.
        told = set() if ask is signal.SIGKILL else living or told
        await anyio.sleep(POLL)


def _surely_living(child: Child) -> set[int] | None:
    """None if nobody can say, as for want of descriptors."""
    try:
        # Who forked and ended while we read the table left a child that was not in it: look twice.
        return _living(child) or _living(child)
    except OSError:
        return None


def _living(child: Child) -> set[int]:
    own = {child.pid} if child.returncode is None else set[int]()
    inner = marked(child.inner_mark, but=child.before) if child.inner_mark else ()
    return own | set(marked(child.mark, but=child.before)) | set(inner)
