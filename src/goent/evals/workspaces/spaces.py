"""Which directory does an attempt get, and what happens to it before and after?"""

from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Literal

import anyio

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.evals.commands import Commands
from goent.evals.ports import TargetError
from goent.evals.suites import Case, Hook, WorkspaceSpec
from goent.evals.workspaces.clones import Origin, Origins
from goent.evals.workspaces.folders import RunFolder, drop, keep
from goent.evals.workspaces.hooks import About, about, run_hook
from goent.evals.workspaces.once import Once
from goent.evals.workspaces.record import Record
from goent.git.command import Git
from goent.git.copies import check_origin, copy_files

Keep = Literal["always", "failure", "never"]

FILES: Final = "work"
RECORD: Final = "record.git"
HURRY_S: Final = 10.0  # for a tear-down when somebody wants the run to end


class Space:
    """The port `Space`: the directory of one attempt. `begun`: its set-up may have left something."""

    def __init__(self, folder: Path, git: Git, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.path = folder / FILES
        self.record = Record(git, folder / RECORD, self.path)
        self.begun = False
        self.has_passed = False
        self._warn = warn

    async def changes(self) -> str:
        try:
            return await self.record.changes()
        except (GoentError, OSError) as error:
            self._warn(f"what changed in {str(self.path)!r} cannot be told: {error}")
            return f"[what changed cannot be told: {error}]\n"

    def passed(self) -> None:
        self.has_passed = True

    def holds_anything(self) -> bool:
        try:
            return any(self.path.iterdir())
        except OSError:
            return False


class Unused:
    """The port `Space` for who looks at no directory: it has a name, and is never made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def changes(self) -> str:
        return ""

    def passed(self) -> None:
        pass


class _Prepared(Value, frozen=True, kw_only=True):
    """What attempts begin with; `files` if something was done to them before all."""

    origin: Origin | None = None
    files: Path | None = None


class Workspaces:
    """The port `Spaces`. It exists only inside `open_workspaces`."""

    def __init__(
        self,
        commands: Commands,
        *,
        run_id: str,
        keep: Keep,
        idle: Collection[str],
        warn: Callable[[str], None],
    ) -> None:
        self._run = RunFolder(commands.workspaces)
        self._commands = commands
        self._git = Git(commands.workspaces, commands.environ)
        self._origins = Origins(self._run, self._git)
        self._prepared: Once[tuple[str, WorkspaceSpec], _Prepared] = Once()
        self._begun: list[tuple[Hook | None, Path]] = []
        self._run_id = run_id
        self._keep = keep
        self._idle = idle
        self._warn = warn

    @asynccontextmanager
    async def space(
        self, case: Case, *, target: str, trial: int, number: int
    ) -> AsyncGenerator[Space | Unused]:
        """Raises `TargetError` of the kind `setup_failed`."""
        if case.workspace is None and target in self._idle:
            yield Unused(self._run.root / "unused")
            return
        with _setting_up(case):
            space = Space(await self._run.new(case.id), self._git, self._warn)
        ended = False
        try:
            try:
                with _setting_up(case):
                    space.path.mkdir()
                    if case.workspace:
                        name = f"{case.suite}/{case.id}, {target}, trial {trial}, attempt {number}"
                        await self._set_up(case, case.workspace, space, name)
            except TargetError as error:
                ended = space.begun
                raise self._showing(error, space) from error
            yield space
            ended = True
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave(case, space, ended=ended)

    def _showing(self, error: TargetError, space: Space) -> TargetError:
        """With the place where it can be looked at; a copy that found no room makes some."""
        if self._keep == "never" or not space.begun:
            return error
        return TargetError(error.kind, f"{error}; see {str(space.path)!r}")

    async def close(self, *, hurry: bool) -> None:
        """What comes after all, then only what is to be kept is left."""
        for hook, files in self._begun:
            await self._after("after_all", hook, about(files, self._run_id), hurry=hurry)
        await self._run.close()

    async def _set_up(self, case: Case, spec: WorkspaceSpec, space: Space, name: str) -> None:
        ready = await self._prepared.get((case.suite, spec), lambda: self._prepare(spec))
        begins = f"The beginning of {name} ({space.folder.name})"
        if ready.files:
            await copy_files(ready.files, space.path)
        else:
            await self._lay(spec, ready.origin, space)
        if ready.origin:  # what runs before expects the repository that was asked for
            if ready.files:
                await space.record.remember(begins, ready.origin)
            await anyio.to_thread.run_sync(space.record.show)
        space.begun = True
        if spec.before_each:
            told = about(space.path, self._run_id, case)
            await self._before("before_each", spec.before_each, told)
        if spec.before_each or not ready.origin:
            await space.record.remember(begins, ready.origin)
        await anyio.to_thread.run_sync(space.record.show)

    async def _prepare(self, spec: WorkspaceSpec) -> _Prepared:
        """Once for all cases of a suite that begin alike."""
        origin = await self._origins.of(spec.repository, spec.ref) if spec.repository else None
        if not spec.before_all and not spec.after_all:
            return _Prepared(origin=origin)
        space = Space(await self._run.new("prepared"), self._git, self._warn)
        space.path.mkdir()
        await self._lay(spec, origin, space)
        if origin:
            await anyio.to_thread.run_sync(space.record.show)
        self._begun.append((spec.after_all, space.path))
        if spec.before_all:
            await self._before("before_all", spec.before_all, about(space.path, self._run_id))
        return _Prepared(origin=origin, files=space.path)

    async def _lay(self, spec: WorkspaceSpec, origin: Origin | None, space: Space) -> None:
        if spec.template:
            check_origin(spec.template, self._run.root)
            await copy_files(spec.template, space.path)
        elif origin:
            await space.record.check_out(origin)

    async def _before(self, name: str, hook: Hook, told: About) -> None:
        if trouble := await run_hook(name, hook, told, self._commands):
            raise TargetError("setup_failed", trouble)

    async def _after(self, name: str, hook: Hook | None, told: About, *, hurry: bool) -> None:
        limit = HURRY_S if hurry else None
        if hook and (trouble := await run_hook(name, hook, told, self._commands, most_s=limit)):
            self._warn(trouble)

    async def _leave(self, case: Case, space: Space, *, ended: bool) -> None:
        spec = case.workspace
        if spec and space.begun:
            told = about(space.path, self._run_id, case)
            await self._after("after_each", spec.after_each, told, hurry=not ended)
        failed = ended and not space.has_passed
        if (
            self._keep == "always" or (self._keep == "failure" and failed)
        ) and space.holds_anything():
            try:
                await self._stay(spec, space)
            except OSError as error:
                self._warn(f"{str(space.path)!r} cannot be kept: {error.strerror}")
        else:
            await drop(space.folder, space.path)

    async def _stay(self, spec: WorkspaceSpec | None, space: Space) -> None:
        keep(space.folder)
        if spec and spec.repository:
            origin = await self._origins.of(spec.repository, spec.ref)
            if origin.folder:  # its objects are borrowed
                keep(origin.folder)


@asynccontextmanager
async def open_workspaces(
    commands: Commands,
    *,
    run_id: str = "",
    keep: Keep = "failure",
    idle: Collection[str] = (),
    warn: Callable[[str], None] = lambda _: None,
) -> AsyncGenerator[Workspaces]:
    """Directories for the attempts of one run, where `commands` expects them.

    `commands` runs the hooks; git gets the same environment. `idle` are targets that look at no
    directory. `warn` is told what fails after an attempt.
    """
    spaces = Workspaces(commands, run_id=run_id, keep=keep, idle=idle, warn=warn)
    hurry = True
    try:
        yield spaces
        hurry = False
    finally:
        with anyio.CancelScope(shield=True):
            await spaces.close(hurry=hurry)


@contextmanager
def _setting_up(case: Case) -> Generator[None]:
    try:
        yield
    except TargetError:
        raise
    except (GoentError, OSError, ValueError) as error:  # a zero byte in a name is a ValueError
        words = f"the workspace of {case.id!r} cannot be made: {error}"
        raise TargetError("setup_failed", words) from error
