"""Runs the commands of a suite, hooks and script graders, each confined to the attempt that it is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox import CommandSandbox, Reach, not_started
from goent.domain.types import Value
from goent.proc.run import Completed, run
from goent.proc.short import cannot_start


class Order(Value, frozen=True, kw_only=True):
    """A command that reads `stdin`. It can write in the `workspace`, and in a temporary folder of its own.

    `told` are files of the suite that it is told about, `handed` a folder of go-ent's own for it to read.
    """

    command: tuple[str, ...]
    cwd: Path
    stdin: bytes
    timeout_s: float
    workspace: Path | None = None
    told: tuple[Path, ...] = ()
    handed: Path | None = None
    env: Mapping[str, str] = {}


class Ran(Value, frozen=True, kw_only=True):
    """How it ended; `hint` if it failed and its sandbox may be the reason."""

    done: Completed
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """`environ` is theirs: whoever passes it has taken the keys out.

    `workspaces` is where the directories of attempts lie. What a trace names as one elsewhere is not opened
    for writing: whoever wrote that file could name any folder.
    """

    environ: Mapping[str, str]
    sandbox: CommandSandbox
    workspaces: Path

    async def run(self, order: Order) -> Ran:
        """Raises `WorkerCrashed` if it cannot be started."""
        env = {**self.environ, **order.env}
        try:
            async with self.sandbox.command(
                order.command, cwd=order.cwd, env=env, reach=self._reach(order)
            ) as start:
                done = await _run(order, start.command, start.env)
        except OSError as error:
            raise WorkerCrashed(cannot_start(order.command, order.cwd, error)) from error
        if why := not_started(done.exit, done.errors):
            raise WorkerCrashed(why)
        return Ran(done=done, hint=start.explain(done.errors or done.output) if done.exit else "")

    def _reach(self, order: Order) -> Reach:
        place = order.workspace.resolve() if order.workspace else None
        is_ours = place is not None and self.workspaces.resolve() in place.parents
        return Reach(
            writable=_there(place) if is_ours else (),
            named=(*order.told, *_there(None if is_ours else place)),
            handed=_there(order.handed),
        )


async def _run(order: Order, command: Sequence[str], env: Mapping[str, str]) -> Completed:
    try:
        return await run(
            command, cwd=order.cwd, env=env, timeout=order.timeout_s, stdin=order.stdin
        )
    except WorkerCrashed as error:  # it names what starts the command, not the command
        told = str(error).replace(repr(command[0]), repr(order.command[0]), 1)
        raise WorkerCrashed(told) from error


def _there(path: Path | None) -> tuple[Path, ...]:
    return () if path is None else (path,)
