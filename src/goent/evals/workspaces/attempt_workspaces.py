"""Makes the workspace of each attempt, and runs the hooks around it."""

import shlex
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import msgspec

from goent.domain.errors import GoentError, WorkerCrashed
from goent.domain.types import Value
from goent.evals.eval_ports import TargetError
from goent.evals.suite_commands import SuiteCommand, SuiteCommandRunner
from goent.evals.suites import EvalCase, Hook, WorkspaceSpec, prompt_text, whole_case
from goent.evals.workspaces.workspace_changes import (
    ChangeRecord,
    CloneOrigin,
    CloneOrigins,
    OncePerKey,
)
from goent.evals.workspaces.workspace_folders import RunFolder, drop_folder, keep_folder
from goent.git.git_command import Git
from goent.git.workspace_maker import check_origin, copy_files

SHOWN_TAIL: Final = 500  # characters of a failed hook's output


class HookInput(Value, frozen=True, kw_only=True):
    """What a hook reads on standard input. `before_all` and `after_all` have no case."""

    workspace_path: str
    eval_run_id: str
    test_id: str | None = None
    case_input: str | None = None
    case_metadata: Mapping[str, object] = {}


def hook_input(workspace: Path, run_id: str, case: EvalCase | None = None) -> HookInput:
    told = HookInput(workspace_path=str(workspace), eval_run_id=run_id)
    if case is None:
        return told
    return msgspec.structs.replace(
        told, test_id=case.id, case_input=prompt_text(whole_case(case)), case_metadata=case.metadata
    )


async def run_hook(
    name: str,
    hook: Hook,
    told: HookInput,
    commands: SuiteCommandRunner,
    *,
    most_s: float | None = None,
) -> str:
    """Runs a hook, and returns what went wrong, or ''. It can write only in the workspace."""
    limit = hook.timeout_s if most_s is None else min(hook.timeout_s, most_s)
    shown = f"{name} ({shlex.join(hook.command)[:200]})"
    order = SuiteCommand(
        command=hook.command,
        cwd=hook.cwd or Path(told.workspace_path),
        stdin=msgspec.json.encode(told),
        timeout_s=limit,
        workspace=Path(told.workspace_path),
    )
    try:
        ran = await commands.run(order)
    except (WorkerCrashed, ValueError) as error:  # a zero byte in a word is a ValueError
        return f"{shown}: {error}"
    done = ran.completed
    output = (done.errors or done.output)[-SHOWN_TAIL:].strip() or "no output"
    if done.exit is None:
        return f"{shown} took longer than {limit:g} s: {output}"
    hint = f"\n{ran.hint}" if ran.hint else ""
    return f"{shown} ended with {done.exit}: {output}{hint}" if done.exit else ""


KeepPolicy = Literal["always", "failure", "never"]

FILES_FOLDER: Final = "work"
RECORD_FOLDER: Final = "record.git"
HURRIED_HOOK_S: Final = 10.0  # for a tear-down hook of a cancelled run


class AttemptWorkspace:
    """The directory of one attempt."""

    def __init__(self, folder: Path, git: Git, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.path = folder / FILES_FOLDER
        self.record = ChangeRecord(git, folder / RECORD_FOLDER, self.path)
        self.is_set_up = False
        self.has_passed = False
        self._warn = warn

    async def changes(self) -> str:
        try:
            return await self.record.changes()
        except (GoentError, OSError) as error:
            self._warn(f"the changes in {str(self.path)!r} are unknown: {error}")
            return f"[the changes are unknown: {error}]\n"

    def mark_passed(self) -> None:
        self.has_passed = True

    def holds_anything(self) -> bool:
        try:
            return any(self.path.iterdir())
        except OSError:
            return False


class UnusedWorkspace:
    """Stands for the directory of a target that uses none; it is never made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def changes(self) -> str:
        return ""

    def mark_passed(self) -> None:
        pass


class _PreparedWorkspace(Value, frozen=True, kw_only=True):
    """What attempts start from; `files` if a `before_all` hook prepared them."""

    origin: CloneOrigin | None = None
    files: Path | None = None


class AttemptWorkspaces:
    """Makes the directories of a run. Use it by `open_workspaces`."""

    def __init__(
        self,
        commands: SuiteCommandRunner,
        *,
        run_id: str,
        keep: KeepPolicy,
        idle: Collection[str],
        warn: Callable[[str], None],
    ) -> None:
        self._run = RunFolder(commands.workspaces)
        self._commands = commands
        self._git = Git(commands.workspaces, commands.environ)
        self._origins = CloneOrigins(self._run, self._git)
        self._prepared: OncePerKey[tuple[str, WorkspaceSpec], _PreparedWorkspace] = OncePerKey()
        self._prepared_hooks: list[tuple[Hook | None, Path]] = []
        self._run_id = run_id
        self._keep = keep
        self._idle = idle
        self._warn = warn

    @asynccontextmanager
    async def space(
        self, case: EvalCase, *, target: str, trial: int, number: int
    ) -> AsyncGenerator[AttemptWorkspace | UnusedWorkspace]:
        """Raises `TargetError` of the kind `setup_failed`."""
        if case.workspace is None and target in self._idle:
            yield UnusedWorkspace(self._run.root / "unused")
            return
        with _setup_errors(case):
            space = AttemptWorkspace(await self._run.new(case.id), self._git, self._warn)
        ended = False
        try:
            try:
                with _setup_errors(case):
                    space.path.mkdir()
                    if case.workspace:
                        name = f"{case.suite}/{case.id}, {target}, trial {trial}, attempt {number}"
                        await self._set_up(case, case.workspace, space, name)
            except TargetError as error:
                ended = space.is_set_up
                raise self._with_path(error, space) from error
            yield space
            ended = True
        finally:
            with anyio.CancelScope(shield=True):
                await self._tear_down(case, space, ended=ended)

    def _with_path(self, error: TargetError, space: AttemptWorkspace) -> TargetError:
        """Adds the path of a workspace that is kept."""
        if self._keep == "never" or not space.is_set_up:
            return error
        return TargetError(error.kind, f"{error}; see {str(space.path)!r}")

    async def close(self, *, hurry: bool) -> None:
        """Runs `after_all` hooks, and removes what is not kept."""
        for hook, files in self._prepared_hooks:
            await self._run_teardown_hook(
                "after_all", hook, hook_input(files, self._run_id), hurry=hurry
            )
        await self._run.close()

    async def _set_up(
        self, case: EvalCase, spec: WorkspaceSpec, space: AttemptWorkspace, name: str
    ) -> None:
        ready = await self._prepared.get((case.suite, spec), lambda: self._prepare(spec))
        begins = f"The beginning of {name} ({space.folder.name})"
        if ready.files:
            await copy_files(ready.files, space.path)
        else:
            await self._fill(spec, ready.origin, space)
        if ready.origin:  # hooks expect the repository
            if ready.files:
                await space.record.commit_baseline(begins, ready.origin)
            await anyio.to_thread.run_sync(space.record.link_repository)
        space.is_set_up = True
        if spec.before_each:
            told = hook_input(space.path, self._run_id, case)
            await self._run_setup_hook("before_each", spec.before_each, told)
        if spec.before_each or not ready.origin:
            await space.record.commit_baseline(begins, ready.origin)
        await anyio.to_thread.run_sync(space.record.link_repository)

    async def _prepare(self, spec: WorkspaceSpec) -> _PreparedWorkspace:
        """Runs once for all cases of a suite with the same workspace."""
        origin = await self._origins.of(spec.repository, spec.ref) if spec.repository else None
        if not spec.before_all and not spec.after_all:
            return _PreparedWorkspace(origin=origin)
        space = AttemptWorkspace(await self._run.new("prepared"), self._git, self._warn)
        space.path.mkdir()
        await self._fill(spec, origin, space)
        if origin:
            await anyio.to_thread.run_sync(space.record.link_repository)
        self._prepared_hooks.append((spec.after_all, space.path))
        if spec.before_all:
            await self._run_setup_hook(
                "before_all", spec.before_all, hook_input(space.path, self._run_id)
            )
        return _PreparedWorkspace(origin=origin, files=space.path)

    async def _fill(
        self, spec: WorkspaceSpec, origin: CloneOrigin | None, space: AttemptWorkspace
    ) -> None:
        if spec.template:
            check_origin(spec.template, self._run.root)
            await copy_files(spec.template, space.path)
        elif origin:
            await space.record.check_out(origin)

    async def _run_setup_hook(self, name: str, hook: Hook, told: HookInput) -> None:
        if trouble := await run_hook(name, hook, told, self._commands):
            raise TargetError("setup_failed", trouble)

    async def _run_teardown_hook(
        self, name: str, hook: Hook | None, told: HookInput, *, hurry: bool
    ) -> None:
        limit = HURRIED_HOOK_S if hurry else None
        if hook and (trouble := await run_hook(name, hook, told, self._commands, most_s=limit)):
            self._warn(trouble)

    async def _tear_down(self, case: EvalCase, space: AttemptWorkspace, *, ended: bool) -> None:
        spec = case.workspace
        if spec and space.is_set_up:
            told = hook_input(space.path, self._run_id, case)
            await self._run_teardown_hook("after_each", spec.after_each, told, hurry=not ended)
        failed = ended and not space.has_passed
        if (
            self._keep == "always" or (self._keep == "failure" and failed)
        ) and space.holds_anything():
            try:
                await self._keep_folders(spec, space)
            except OSError as error:
                self._warn(f"{str(space.path)!r} cannot be kept: {error.strerror}")
        else:
            await drop_folder(space.folder, space.path)

    async def _keep_folders(self, spec: WorkspaceSpec | None, space: AttemptWorkspace) -> None:
        keep_folder(space.folder)
        if spec and spec.repository:
            origin = await self._origins.of(spec.repository, spec.ref)
            if origin.folder:  # its objects are borrowed
                keep_folder(origin.folder)


@asynccontextmanager
async def open_workspaces(
    commands: SuiteCommandRunner,
    *,
    run_id: str = "",
    keep: KeepPolicy = "failure",
    idle: Collection[str] = (),
    warn: Callable[[str], None] = lambda _: None,
) -> AsyncGenerator[AttemptWorkspaces]:
    """Opens the directories for the attempts of one run.

    `commands` runs the hooks; git gets the same environment. `idle` are targets that need no directory.
    """
    spaces = AttemptWorkspaces(commands, run_id=run_id, keep=keep, idle=idle, warn=warn)
    hurry = True
    try:
        yield spaces
        hurry = False
    finally:
        with anyio.CancelScope(shield=True):
            await spaces.close(hurry=hurry)


@contextmanager
def _setup_errors(case: EvalCase) -> Generator[None]:
    try:
        yield
    except TargetError:
        raise
    except (GoentError, OSError, ValueError) as error:  # a zero byte in a name is a ValueError
        words = f"the workspace of {case.id!r} cannot be made: {error}"
        raise TargetError("setup_failed", words) from error
