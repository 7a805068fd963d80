"""Reads what the subagents of `opencode run` did: it prints nothing of their calls.

OpenCode exports a session as JSON. Into a file, for what is left in a pipe when it exits gets lost.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec

from goent.domain.errors import PermissionBypassed, ProtocolError, WorkerError
from goent.drivers.opencode.second_look import SecondLook
from goent.drivers.opencode.shapes import Message, Part, Reading
from goent.drivers.opencode_run.lines import subagent_of
from goent.proc import run

PATIENCE = 60.0  # seconds for one session
MOST = 50  # sessions that are looked at
_INTO_FILE = 'exec "$@" >"$0"'


class Exported(Reading, frozen=True, kw_only=True):
    """One session, as OpenCode exports it."""

    messages: tuple[Message, ...] = ()


async def look_at_subagents(
    sessions: Sequence[str], look: SecondLook, *, program: Path, cwd: Path, env: Mapping[str, str]
) -> PermissionBypassed | None:
    """The first call of a subagent that ran and was never allowed; raises `WorkerError` if nobody can tell."""
    unread, known = [*sessions], set(sessions)
    while unread:
        if len(known) > MOST:
            raise ProtocolError(f"more than {MOST} subagents")
        for part in await _parts(unread.pop(), program, cwd, env):
            if bypass := look.saw(part, from_start=False):
                return bypass
            if (nested := subagent_of(part)) and nested not in known:
                known.add(nested)
                unread.append(nested)
    return None


async def _parts(session: str, program: Path, cwd: Path, env: Mapping[str, str]) -> Sequence[Part]:
    with TemporaryDirectory(prefix="goent-") as folder:
        file = Path(folder, "session.json")
        command = (str(program), "export", "--pure", session)
        done = await run(
            ["/bin/sh", "-c", _INTO_FILE, str(file), *command], cwd=cwd, env=env, timeout=PATIENCE
        )
        if done.exit != 0:
            raise WorkerError(f"`opencode export {session}` ended with {done.exit}: {done.errors}")
        try:
            told = msgspec.json.decode(await anyio.Path(file).read_bytes(), type=Exported)
        except (msgspec.DecodeError, OSError) as error:
            raise ProtocolError(f"`opencode export {session}` cannot be read: {error}") from error
    return [part for message in told.messages for part in message.parts]
