"""Guards processes that do not end with their input, in case go-ent itself is killed.

A server reads no input, and most commands read none, so they would outlive a go-ent that was killed
until the next one sweeps. A shell stands guard beside them: its own input ends with go-ent, and then it
ends every process that carries the mark.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from goent.proc.child_process import supervised
from goent.proc.process_table import (
    new_mark,
    new_owner,
)
from goent.system.process_protection import MARK_VARIABLE

GUARD_OWNER = "guard"


# A line on its input means a normal end; the end of input without one, that go-ent is dead. A process in
# the middle of exec has no environment for a moment, so all are checked several times. A process that is
# closed to others has its mark among its arguments.
_GUARD_SCRIPT = r"""
trap '' HUP INT TERM
if read -r _; then exit; fi
trap - HUP INT TERM
for ask in TERM KILL KILL KILL; do
  for folder in /proc/[0-9]*; do
    { tr '\0' '\n' <"$folder/environ" | grep -Eq "^$1=(.* )?$2( |\$)" ||
      tr '\0' '\n' <"$folder/cmdline" | grep -Eq "^-X$1=(.* )?$2( |\$)"
    } && kill -$ask "${folder#/proc/}"
  done
  sleep 1
done 2>/dev/null
"""


@asynccontextmanager
async def guarded(mark: str) -> AsyncGenerator[None]:
    """Guard the processes with this mark; enter before the first is started. Without /proc it does nothing."""
    async with _guard(re.escape(mark), new_mark(mark.rpartition("/")[0])):
        yield


@asynccontextmanager
async def all_guarded(owner: str) -> AsyncGenerator[None]:
    """Guard all processes with a mark of this owner."""
    # The guard's own mark has another owner: it must not end itself.
    async with _guard(f"{re.escape(owner)}/[0-9]+", new_mark(new_owner(GUARD_OWNER))):
        yield


@asynccontextmanager
async def _guard(marks: str, own: str) -> AsyncGenerator[None]:
    command = ["/bin/sh", "-c", _GUARD_SCRIPT, "guard", MARK_VARIABLE, marks]
    env = {"PATH": "/usr/bin:/bin"}
    async with supervised(command, cwd=Path("/"), env=env, mark=own) as guard:
        try:
            yield
        finally:
            with (
                anyio.CancelScope(shield=True),
                suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError),
            ):
                await guard.stdin.send(b"well\n")
