"""Who ends a process of ours that does not notice that we are gone?

Some programs end with their input, as agents over a pipe do. A server reads none, so it would outlive a
go-ent that was killed, until the next one sweeps. A shell stands guard beside it: its own input ends with
us, and then it ends whoever carries the mark.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from goent.proc.marks import MARK, new_mark
from goent.proc.supervised import supervised

# A line means that all is well; the end of the input without one, that we are dead. Who is in the
# middle of exec has no environment for a moment, so all are looked at again.
_SCRIPT = r"""
trap '' HUP INT TERM
if read -r _; then exit; fi
trap - HUP INT TERM
for ask in TERM KILL KILL KILL; do
  for folder in /proc/[0-9]*; do
    tr '\0' '\n' <"$folder/environ" | grep -Eq "^$1=(.* )?$2( |\$)" && kill -$ask "${folder#/proc/}"
  done
  sleep 1
done 2>/dev/null
"""


@asynccontextmanager
async def guarded(mark: str) -> AsyncGenerator[None]:
    """Enter before the process is started, leave when it is gone. Where there is no /proc it guards nothing."""
    owner = mark.rpartition("/")[0]
    command = ["/bin/sh", "-c", _SCRIPT, "guard", MARK, mark.replace(".", "\\.")]
    env = {"PATH": "/usr/bin:/bin"}
    async with supervised(command, cwd=Path("/"), env=env, mark=new_mark(owner)) as guard:
        try:
            yield
        finally:
            with (
                anyio.CancelScope(shield=True),
                suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError),
            ):
                await guard.stdin.send(b"well\n")
