"""Runs workers on OpenCode by three methods: `acp`, `serve` and `cli`.

OpenCode keeps a session on disk, so another process can open it. When a process ends in the middle
of a turn, everything it had started is ended too, its sessions are opened elsewhere, and each is
prompted once per turn to check what became of its last step and to continue. A prompt that has
reached the session is never sent again. A second loss in the same turn fails the turn; a cancelled
turn is over. Between turns, a session just opens elsewhere when it is needed.

By `acp` and `serve`, one warm process is shared by many workers, each in a session of its own; a
worker that asks for isolation gets a process that ends with it. When the settings change, new
workers get a new process; when a process is lost, its workers continue in another, which may have
been kept in reserve. With `opencode.serve_url`, workers by `serve` are sessions on the server at
that address instead.

By `cli`, each worker is one `opencode run`: a cold start of some seconds buys separation, with a
process, an environment and a gate token of the worker's own.
"""

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import anyio
import msgspec
from msgspec.structs import replace

from goent.agents.driver_context import DriverContext, check_directory
from goent.agents.opencode_program import find_opencode
from goent.domain.errors import GoentError, WorkerBusy, WorkerCrashed
from goent.domain.events import Noticed
from goent.domain.ports import Emit, Gate, TurnStopReason, WorkerLiveness, WorkerSession, WorkerSpec
from goent.domain.types import PermissionAnswer, Prompt
from goent.opencode.acp_session import AcpProcess
from goent.opencode.config_overlay import (
    NO_TITLE_AGENT,
    AgentEntry,
    ConfigOverlay,
    gated_backends,
    permission_map,
)
from goent.opencode.opencode_process import OpenCodeProcess
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
from goent.opencode.serve_session import ServeSession
from goent.opencode.server import ExternalServer, ServeProcess, ServerAddress
from goent.opencode.session import BaseSession
from goent.proc.concurrency import task_group
from goent.proc.process_table import new_mark
from goent.sandbox.sandbox_paths import is_below

CLEAN_UP_TIMEOUT_S = 10.0  # for the end of everything that a lost process had started
CONTINUE_PROMPT = Prompt(
    text=(
        "The process that you work in was interrupted and has been started again; what was said "
        "before is complete. Your last tool call may or may not have taken effect, and commands "
        "that were running have been ended: look before you repeat anything. Then continue the "
        "task from where you were."
    )
)


class SessionPlace(NamedTuple):
    """The process that a session is in for now."""

    slot: ProcessSlot
    session: BaseSession


class StartTime(NamedTuple):
    """A time by the wall clock, which may be set, and by the monotonic clock."""

    wall: float
    ticks: float

    @property
    def earliest(self) -> float:
        """The earliest wall time of later messages, whichever way the clock was set."""
        return min(self.wall, time.time() - (time.monotonic() - self.ticks))


FindPlace = Callable[[WorkerSpec, BaseSession | None], AbstractAsyncContextManager[SessionPlace]]


class ResumableSession:
    """The port `Session`, in one process after another; `find` opens it in a suitable one."""

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
        """Alive while it waits for the model, runs a tool or uses the CPU."""
        waited, place = self._waiting(), self._place
        if waited is not None:
            return WorkerLiveness(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if place is None:
            return WorkerLiveness(alive=True, detail="it is moving to another process")
        return await place.session.liveness()

    async def leave_if_idle(self) -> None:
        """Make room; the next prompt finds another process."""
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
            await emit(Noticed(text=f"{ending}; the session continues in another process"))
            self._crash_text = first = str(crash)
        another = await self._place_for_turn()
        with anyio.move_on_after(CLEAN_UP_TIMEOUT_S):
            await place.slot.finished.wait()
        if another is None or self._cancelled:
            return "cancelled"
        prompted = another.session.has_prompt_since(begun.earliest)
        try:
            return await another.session.prompt(CONTINUE_PROMPT if prompted else prompt, emit)
        except WorkerCrashed as crash:
            if self._cancelled:
                return "cancelled"
            both = f"two processes were lost in one turn: {first}; then {crash}"
            raise WorkerCrashed(both, returncode=crash.returncode, stderr=crash.stderr) from crash

    async def _place_for_turn(self) -> SessionPlace | None:
        """A suitable place, another one if need be; None if the turn is cancelled."""
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
        spec = replace(self._spec, resume=self._token)
        try:
            place = await held.enter_async_context(self._find_place(spec, self._last))
        except GoentError as error:
            if not self._crash_text:
                raise
            both = f"{self._crash_text}; it could not continue in another process: {error}"
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


LOGIN_REMEDY = (
    "name the variable that holds it in opencode.serve_password_env, and set it where go-ent runs"
)
UNREACHABLE_REMEDY = (
    "start it (`opencode serve --port N`), or take opencode.serve_url out of .goent/config.yaml, "
    "and go-ent runs a server of its own"
)


class OpenCodeDriver:
    """The port `Driver`, by processes that many workers share. It exists only inside `running`."""

    process_type: ClassVar[type[OpenCodeProcess]] = AcpProcess

    def __init__(self, pool: ProcessPool, gate: Gate, context: DriverContext) -> None:
        self._pool = pool
        self._gate = gate
        self._context = context

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        context: DriverContext,
        gate: Gate,
        *,
        owner: str,
        care: Callable[[], CarePolicy] = CarePolicy,
    ) -> AsyncGenerator[Self]:
        """On leaving, every process of the driver and everything it started is ended."""
        async with task_group() as tasks:
            pool = ProcessPool(tasks, gate, owner, cls.process_type.running, care)
            tasks.start_soon(pool.keep_reserve)
            try:
                yield cls(pool, gate, context)
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one worker, closed on leaving."""
        check_directory(spec)
        await self._context.sandbox.level()
        session = ResumableSession(spec, self._place, lambda: self._gate.waiting_s(spec.id))
        try:
            await session.enter()
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()

    async def warm_up(self, cwd: Path) -> None:
        """Prepare the shared process for work in a directory; quick if it is ready."""
        check_trusted(self._context, cwd)
        await self._context.sandbox.level()
        await self._pool.warm_up(cwd, *self._terms(cwd))

    @asynccontextmanager
    async def _place(
        self, spec: WorkerSpec, earlier: BaseSession | None
    ) -> AsyncGenerator[SessionPlace]:
        """The session in a suitable process; retried once if that process ends meanwhile."""
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
        check_trusted(self._context, spec.cwd)
        settings = self._context.settings()
        held = gated_backends(settings, self._context.environ())
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
        """The fingerprint of a process for the directory, and how to start one.

        A directory outside the shared folders gets a process of its own.
        """
        settings, roots = self._context.settings(), shared_roots(self._context)
        open_to_all = (*roots, *settings.sandbox.writable)
        open_places = [root.resolve() for root in open_to_all]
        writes = self._context.sandbox.writable_folders(cwd)
        if not all(is_below(path, open_places) for path in writes):
            roots = writes
        content = gated_overlay(self._context, self._gate, token="")
        identity = (content, settings.opencode, settings.sandbox, roots)
        fingerprint = hashlib.sha256(msgspec.json.encode(identity, enc_hook=str)).hexdigest()
        return fingerprint, lambda: self._launch(fingerprint, roots)

    def _launch(self, fingerprint: str, roots: tuple[Path, ...]) -> OpenCodeLaunch:
        settings, environ = self._context.settings(), self._context.environ()
        check_trusted(self._context, settings.project)
        program = find_opencode(settings.opencode.command, environ)
        token = self._gate.issue_token()
        content = gated_overlay(self._context, self._gate, token=token)
        start = start_folder(self._context)
        env = process_environment(self._context, content, program=program, cwd=start)
        return OpenCodeLaunch(
            program=program,
            cwd=start,
            env=env,
            password=f"goent_{secrets.token_urlsafe(32)}",  # journals redact what looks like this
            token=token,
            fingerprint=fingerprint,
            start_timeout=settings.opencode.start_timeout_s,
            sandbox=self._context.sandbox,
            passes=self._context.passes,
            roots=roots,
            gate_port=gate_port(self._gate),
            standby=settings.opencode.standby,
            catalogue=needed_models(self._context, content),
        )


class OpenCodeServeDriver(OpenCodeDriver):
    """The port `Driver`, by servers of ours or the one that the settings name."""

    process_type = ServeProcess

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        settings = self._context.settings().opencode
        if settings.serve_url is None:
            async with super().open(spec) as session:
                yield session
            return
        check_directory(spec)
        address = ServerAddress(
            url=settings.serve_url,
            setting="opencode.serve_url",
            password=self._context.environ().get(settings.serve_password_env or "", ""),
            password_remedy=LOGIN_REMEDY,
            remedy=UNREACHABLE_REMEDY,
        )
        async with ExternalServer.reached(address) as server, task_group() as tasks:
            await server.watch(tasks)
            session = await ServeSession.start(server, spec, direct=True)
            try:
                yield session
            finally:
                with anyio.CancelScope(shield=True):
                    await session.close()
                tasks.cancel_scope.cancel()


class OpenCodeRunDriver:
    """The port `Driver`, by `opencode run`."""

    def __init__(self, context: DriverContext, gate: Gate, *, owner: str) -> None:
        self._context = context
        self._gate = gate
        self._owner = owner

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one prompt; its process ends with it."""
        check_directory(spec)
        check_trusted(self._context, spec.cwd)
        await self._context.sandbox.level()
        token = self._gate.issue_token()
        try:
            # OpenCode names its session later; until then any name will do.
            self._gate.bind(token=token, session=spec.id, worker=spec.id)
            launch = self._launch(spec, token)
            session = RunSession(launch, lambda: self._gate.waiting_s(spec.id))
            self._gate.set_guard(token, session)
            yield session
        finally:
            self._gate.unbind(spec.id)
            self._gate.revoke_token(token)

    def _launch(self, spec: WorkerSpec, token: str) -> RunLaunch:
        settings, environ = self._context.settings(), self._context.environ()
        program = find_opencode(settings.opencode.command, environ)
        # An unguessable name: no configuration can add to the agent's rules.
        agent = f"goent-{secrets.token_hex(8)}"
        content = _with_rules(gated_overlay(self._context, self._gate, token=token), agent, spec)
        return RunLaunch(
            spec=spec,
            program=program,
            cwd=start_folder(self._context),
            env=process_environment(self._context, content, program=program, cwd=spec.cwd),
            mark=new_mark(self._owner),
            sandbox=self._context.sandbox,
            roots=self._context.sandbox.writable_folders(spec.cwd),
            passes=self._context.passes,
            gate_port=gate_port(self._gate),
            agent=agent,
            start_timeout=settings.opencode.start_timeout_s,
            direct=spec.provider.backend not in gated_backends(settings, environ),
            instructions=tuple(project_instructions(spec.cwd, settings)),
            catalogue=needed_models(self._context, content),
        )


def _with_rules(content: ConfigOverlay, agent: str, spec: WorkerSpec) -> ConfigOverlay:
    """Add the worker's rules, for its own agent and for subagents, which have other agents."""
    permissions = permission_map(spec.rules)
    own = AgentEntry(mode="primary", permission=permissions)
    return replace(content, agent={"title": NO_TITLE_AGENT, agent: own}, permission=permissions)
