"""Runs workers on OpenCode: sessions in pooled processes, or one `opencode run` for one prompt.

OpenCode keeps a session on disk, so another process can open it. The rule, when a process ends
in the middle of a turn: what it had started is ended too, its sessions are opened elsewhere, and
each is told, once per turn, to look what has become of its last step and to go on. A prompt that
has reached the session is never sent again. A second end in the same turn fails the turn, and a
turn that was cancelled is over. Between two turns a session just opens elsewhere when it is needed.

One warm process is shared by many workers, each in a session of its own; a worker that asks for
isolation gets a process that ends with it. When the settings change, new workers get a new process;
when a process is lost, its workers go on in another, which may have been kept in reserve.

A cold start of some seconds is inherent. What it gives is separation: a process, an environment
and a gate token of the worker's own, and nothing of it stays warm.
"""

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Self

import anyio
import msgspec
from msgspec.structs import replace

from goent.agents.driver_context import DriverContext
from goent.agents.opencode_program import find_opencode
from goent.domain.errors import GoentError, RequestError, WorkerBusy, WorkerCrashed
from goent.domain.events import Noticed
from goent.domain.ports import Emit, Gate, TurnStopReason, WorkerLiveness, WorkerSession, WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import PermissionAnswer, Prompt
from goent.opencode.acp_session import AcpHost
from goent.opencode.config_overlay import (
    NO_TITLE_AGENT,
    AgentEntry,
    ConfigOverlay,
    gated_backends,
    permission_map,
)
from goent.opencode.opencode_process import HostProcess
from goent.opencode.process_care import CarePolicy
from goent.opencode.process_launch import (
    OpenCodeLaunch,
    check_trusted,
    gate_port,
    gated_overlay,
    needed_models,
    process_environment,
    project_instructions,
    shared_roots,
    start_folder,
)
from goent.opencode.process_pool import ProcessPool, ProcessSlot
from goent.opencode.run_session import RunLaunch, RunSession
from goent.opencode.session import BaseSession
from goent.proc.concurrency import task_group
from goent.proc.process_table import new_mark
from goent.sandbox.sandbox_paths import is_below

SWEEP_TIMEOUT = 10.0  # seconds for the end of what a dead process had started
CONTINUE_PROMPT = Prompt(
    text=(
        "The process that you work in was interrupted and has been started again; what was said "
        "before is complete. Your last tool call may or may not have taken effect, and commands "
        "that were running have been ended: look before you repeat anything. Then go on with the "
        "task from where you were."
    )
)


class SessionPlace(NamedTuple):
    """Where a session is for now."""

    slot: ProcessSlot
    session: BaseSession


class StartTime(NamedTuple):
    """A time by the clock on the wall, which somebody may set, and by one that only goes on."""

    wall: float
    ticks: float

    @property
    def earliest(self) -> float:
        """No message of a later time is stamped earlier, whichever way the clock was set."""
        return min(self.wall, time.time() - (time.monotonic() - self.ticks))


FindPlace = Callable[[WorkerSpec, BaseSession | None], AbstractAsyncContextManager[SessionPlace]]


class ResumableSession:
    """The port `Session`, in one process after another; `find` opens it in a fit one."""

    def __init__(
        self, spec: WorkerSpec, find: FindPlace, waiting: Callable[[], float | None]
    ) -> None:
        self._spec = spec
        self._waiting = waiting
        self._find_place = find
        self._token = spec.resume
        self._place: SessionPlace | None = None
        self._exit_stack = AsyncExitStack()
        self._last: BaseSession | None = None
        self._crash_text = ""  # how the last process ended, until there is another
        self._moving = anyio.Lock()
        self._arrival_scope = anyio.CancelScope()
        self.busy_since: float | None = None
        self._cancelled = False

    @property
    def directory(self) -> Path:
        return self._spec.cwd

    @property
    def token(self) -> str:
        return self._token or ""

    async def enter(self) -> None:
        async with self._moving:
            await self._enter()

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        if self.busy_since is not None:
            raise WorkerBusy(f"worker {self._spec.id!r} is in the middle of a turn")
        self.busy_since, self._cancelled = anyio.current_time(), False
        try:
            return await self._take(prompt, emit)
        finally:
            self.busy_since = None

    async def cancel(self) -> None:
        if self.busy_since is None:
            return
        self._cancelled = True
        self._arrival_scope.cancel()
        if self._place:
            await self._place.session.cancel()

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        return bool(self._last) and await self._last.answer(permission_id, option, message)

    async def liveness(self) -> WorkerLiveness:
        """A model that is awaited, a tool that runs, a process that computes: it lives."""
        waited, place = self._waiting(), self._place
        if waited is not None:
            return WorkerLiveness(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if place is None:
            return WorkerLiveness(alive=True, detail="it is moving to another process")
        return await place.session.liveness()

    async def leave_if_idle(self) -> None:
        """Make room: the next prompt finds another process."""
        async with self._moving:
            if self.busy_since is None:
                await self._leave()

    async def close(self) -> None:
        async with self._moving:
            await self._leave()

    async def _take(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        begun = StartTime(time.time(), time.monotonic())
        place = await self._place_for_turn()
        if place is None:
            return "cancelled"
        try:
            return await place.session.prompt(prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            ending = str(crash).partition(": ")[0]
            await emit(Noticed(text=f"{ending}; the session goes on in another process"))
            self._crash_text = first = str(crash)
        another = await self._place_for_turn()
        with anyio.move_on_after(SWEEP_TIMEOUT):
            await place.slot.finished.wait()
        if another is None or self._cancelled:
            return "cancelled"
        told = another.session.has_prompt_since(begun.earliest)
        try:
            return await another.session.prompt(CONTINUE_PROMPT if told else prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            both = f"two processes were lost in one turn: {first}; then {crash}"
            raise WorkerCrashed(both, returncode=crash.returncode, stderr=crash.stderr) from crash

    async def _place_for_turn(self) -> SessionPlace | None:
        """A place that is fit for a turn, another one if need be; None if the turn is cancelled."""
        with anyio.CancelScope() as self._arrival_scope:
            async with self._moving:
                if self._place and (self._place.slot.is_gone or self._place.slot.worn_reason):
                    await self._leave()
                place = self._place or await self._enter()
            if not self._cancelled:
                return place
        return None

    async def _enter(self) -> SessionPlace:
        held = AsyncExitStack()
        spec = msgspec.structs.replace(self._spec, resume=self._token)
        try:
            place = await held.enter_async_context(self._find_place(spec, self._last))
        except GoentError as error:
            if not self._crash_text:
                raise
            both = f"{self._crash_text}; it could not go on in another process: {error}"
            raise WorkerCrashed(both) from error
        place.slot.tenants.add(self)
        self._exit_stack, self._place, self._last = held, place, place.session
        self._token, self._crash_text = place.session.id, ""
        return place

    async def _leave(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        place.slot.tenants.discard(self)
        with anyio.CancelScope(shield=True):
            if place.slot.is_gone and not self._crash_text:
                self._crash_text = str(await place.session.crash())
            await self._exit_stack.aclose()


class OpenCodeDriver:
    """The port `Driver`, by processes that many workers share. It exists only inside `running`."""

    def __init__(self, pool: ProcessPool, gate: Gate, around: DriverContext) -> None:
        self._pool = pool
        self._gate = gate
        self._around = around

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        around: DriverContext,
        gate: Gate,
        *,
        owner: str,
        care: Callable[[], CarePolicy] = CarePolicy,
    ) -> AsyncGenerator[Self]:
        """On leaving, every process of the driver is ended, and what it started."""
        async with task_group() as tasks:
            pool = ProcessPool(tasks, gate, owner, cls.run, care)
            tasks.start_soon(pool.keep_reserve)
            try:
                yield cls(pool, gate, around)
            finally:
                tasks.cancel_scope.cancel()

    @staticmethod
    def run(launch: OpenCodeLaunch, mark: str) -> AbstractAsyncContextManager[HostProcess]:
        """One process; another kind of it makes another method."""
        return AcpHost.running(launch, mark)

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one worker, closed on leaving."""
        if not spec.cwd.is_dir():
            raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
        await self._around.sandbox.level()
        session = ResumableSession(spec, self._place, lambda: self._gate.waiting_s(spec.id))
        try:
            await session.enter()
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()

    async def warm_up(self, cwd: Path) -> None:
        """Make the shared process ready for work in a directory; quick if it is already."""
        check_trusted(self._around, cwd)
        await self._around.sandbox.level()
        await self._pool.warm_up(cwd, *self._terms(cwd))

    @asynccontextmanager
    async def _place(
        self, spec: WorkerSpec, earlier: BaseSession | None
    ) -> AsyncGenerator[SessionPlace]:
        """The session in a fit process. One that ends meanwhile is no reason to fail, once."""
        async with AsyncExitStack() as held:
            slot = await held.enter_async_context(self._slot(spec))
            try:
                session = await self._start(slot, spec, earlier)
            except WorkerCrashed:
                slot = await held.enter_async_context(self._slot(spec))
                session = await self._start(slot, spec, earlier)
            try:
                yield SessionPlace(slot, session)
            finally:
                with anyio.CancelScope(shield=True):
                    await session.close()
                self._gate.unbind(session.id)

    async def _start(
        self, slot: ProcessSlot, spec: WorkerSpec, earlier: BaseSession | None
    ) -> BaseSession:
        await slot.until_warm(spec.cwd)
        process = await slot.process()
        check_trusted(self._around, spec.cwd)
        settings = self._around.settings()
        held = gated_backends(settings, self._around.environ())
        async with slot.booting:
            session = await process.open(
                spec,
                direct=spec.provider.backend not in held,
                instructions=project_instructions(spec.cwd, settings),
                earlier=earlier,
            )
        self._gate.bind(token=process.token, session=session.id, worker=spec.id)
        return session

    def _slot(self, spec: WorkerSpec) -> AbstractAsyncContextManager[ProcessSlot]:
        return self._pool.use(spec.cwd, *self._terms(spec.cwd), dedicated=spec.dedicated)

    def _terms(self, cwd: Path) -> tuple[str, Callable[[], OpenCodeLaunch]]:
        """What tells processes apart, and how one is started. Elsewhere a folder has one of its own."""
        settings, roots = self._around.settings(), shared_roots(self._around)
        open_to_all = (*roots, *settings.sandbox.writable)
        open_places = [root.resolve() for root in open_to_all]
        writes = self._around.sandbox.writable_folders(cwd)
        if not all(is_below(path, open_places) for path in writes):
            roots = writes
        content = gated_overlay(self._around, self._gate, token="")
        fingerprint = self._fingerprint(settings, content, roots)
        return fingerprint, lambda: self._launch(fingerprint, roots)

    def _fingerprint(
        self, settings: Settings, content: ConfigOverlay, roots: tuple[Path, ...]
    ) -> str:
        told = (content, settings.opencode, settings.sandbox, roots)
        return hashlib.sha256(msgspec.json.encode(told, enc_hook=str)).hexdigest()

    def _launch(self, fingerprint: str, roots: tuple[Path, ...]) -> OpenCodeLaunch:
        settings, environ = self._around.settings(), self._around.environ()
        check_trusted(self._around, settings.project)
        program = find_opencode(settings.opencode.command, environ)
        token = self._gate.issue_token()
        content = gated_overlay(self._around, self._gate, token=token)
        start = start_folder(self._around)
        env = process_environment(self._around, content, program=program, cwd=start)
        return OpenCodeLaunch(
            program=program,
            cwd=start,
            env=env,
            password=f"goent_{secrets.token_urlsafe(32)}",  # the shape that is redacted in journals
            token=token,
            fingerprint=fingerprint,
            start_timeout=settings.opencode.start_timeout_s,
            sandbox=self._around.sandbox,
            passes=self._around.passes,
            roots=roots,
            gate_port=gate_port(self._gate),
            standby=settings.opencode.standby,
            catalogue=needed_models(self._around, content),
        )


class OpenCodeRunDriver:
    """The port `Driver`, by `opencode run`."""

    def __init__(self, around: DriverContext, gate: Gate, *, owner: str) -> None:
        self._around = around
        self._gate = gate
        self._owner = owner

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one prompt, whose process lives no longer than that."""
        if not spec.cwd.is_dir():
            raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
        check_trusted(self._around, spec.cwd)
        await self._around.sandbox.level()
        token = self._gate.issue_token()
        try:
            # OpenCode names its session when it has one; until then any name does.
            self._gate.bind(token=token, session=spec.id, worker=spec.id)
            order = self._order(spec, token)
            session = RunSession(order, lambda: self._gate.waiting_s(spec.id))
            self._gate.set_guard(token, session)
            yield session
        finally:
            self._gate.unbind(spec.id)
            self._gate.revoke_token(token)

    def _order(self, spec: WorkerSpec, token: str) -> RunLaunch:
        settings, environ = self._around.settings(), self._around.environ()
        program = find_opencode(settings.opencode.command, environ)
        # Nobody who wrote a configuration can know the name and add to its rules.
        agent = f"goent-{secrets.token_hex(8)}"
        content = _with_rules(gated_overlay(self._around, self._gate, token=token), agent, spec)
        return RunLaunch(
            spec=spec,
            program=program,
            start=start_folder(self._around),
            env=process_environment(self._around, content, program=program, cwd=spec.cwd),
            mark=new_mark(self._owner),
            sandbox=self._around.sandbox,
            passes=self._around.passes,
            gate_port=gate_port(self._gate),
            agent=agent,
            start_timeout=settings.opencode.start_timeout_s,
            direct=spec.provider.backend not in gated_backends(settings, environ),
            instructions=tuple(project_instructions(spec.cwd, settings)),
            catalogue=needed_models(self._around, content),
        )


def _with_rules(content: ConfigOverlay, agent: str, spec: WorkerSpec) -> ConfigOverlay:
    """The worker's rules: last for its own agent, and for subagents, which have agents of theirs."""
    permissions = permission_map(spec.rules)
    own = AgentEntry(mode="primary", permission=permissions)
    return replace(content, agent={"title": NO_TITLE_AGENT, agent: own}, permission=permissions)
