"""Runs the commands of a suite, hooks and script graders, each confined to its attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox_port import CommandAccess, CommandSandbox, start_failure
from goent.domain.types import Value
from goent.proc.child_process import CompletedCommand, run_command
from goent.proc.programs import start_failure_message


class SuiteCommand(Value, frozen=True, kw_only=True):
    """A command that reads `stdin`, and can write in the `workspace` and in its own temporary folder.

    `read_paths` are files of the suite that it may read, `read_folder` holds input made for it.
    """

    command: tuple[str, ...]
    cwd: Path
    stdin: bytes
    timeout_s: float
    workspace: Path | None = None
    read_paths: tuple[Path, ...] = ()
    read_folder: Path | None = None
    env: Mapping[str, str] = {}


class SuiteCommandResult(Value, frozen=True, kw_only=True):
    """How it ended, with a `hint` if the sandbox may be why it failed."""

    completed: CompletedCommand
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCommandRunner:
    """Runs commands with `environ`, which must not contain keys.

    Only directories in `workspaces` are writable: a trace could name any other folder.
    """

    environ: Mapping[str, str]
    sandbox: CommandSandbox
    workspaces: Path

    async def run(self, order: SuiteCommand) -> SuiteCommandResult:
        """Raises `WorkerCrashed` if it cannot be started."""
        env = {**self.environ, **order.env}
        try:
            async with self.sandbox.command(
                order.command, cwd=order.cwd, env=env, reach=self._reach(order)
            ) as start:
                done = await _run(order, start.command, start.env)
        except OSError as error:
            raise WorkerCrashed(start_failure_message(order.command, order.cwd, error)) from error
        if why := start_failure(done.exit, done.errors):
            raise WorkerCrashed(why)
        return SuiteCommandResult(
            completed=done, hint=start.explain(done.errors or done.output) if done.exit else ""
        )

    def _reach(self, order: SuiteCommand) -> CommandAccess:
        place = order.workspace.resolve() if order.workspace else None
        is_ours = place is not None and self.workspaces.resolve() in place.parents
        return CommandAccess(
            writable=_optional_path(place) if is_ours else (),
            named=(*order.read_paths, *_optional_path(None if is_ours else place)),
            handed=_optional_path(order.read_folder),
        )


async def _run(
    order: SuiteCommand, command: Sequence[str], env: Mapping[str, str]
) -> CompletedCommand:
    try:
        return await run_command(
            command, cwd=order.cwd, env=env, timeout=order.timeout_s, stdin=order.stdin
        )
    except WorkerCrashed as error:  # it names the sandbox launcher, not the command
        told = str(error).replace(repr(command[0]), repr(order.command[0]), 1)
        raise WorkerCrashed(told) from error


def _optional_path(path: Path | None) -> tuple[Path, ...]:
    return () if path is None else (path,)
