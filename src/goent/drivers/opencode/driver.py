"""How do workers run on OpenCode?

One warm process is shared by many workers, each in a session of its own; a worker that asks for
isolation gets a process that ends with it. When the settings change, new workers get a new process;
when a process is lost, its workers go on in another, which may have been kept in reserve.
"""

import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

import anyio
import msgspec

from goent.domain.errors import RequestError, WorkerCrashed
from goent.domain.ports import Gate, Session, WorkerSpec
from goent.domain.settings import Settings
from goent.drivers.environment import Surroundings
from goent.drivers.opencode.acp_host import AcpHost
from goent.drivers.opencode.binary import find_opencode
from goent.drivers.opencode.content import Content, held_backends
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.hosted import Hosted
from goent.drivers.opencode.lasting import LastingSession, Place
from goent.drivers.opencode.launching import (
    check_trusted,
    gate_port,
    gated_content,
    known_models,
    process_environment,
    project_instructions,
    shared_roots,
    start_folder,
)
from goent.drivers.opencode.pool import Pool
from goent.drivers.opencode.slot import Slot
from goent.drivers.tasks import task_group
from goent.drivers.vitals import Care
from goent.sandbox.folders import is_below


class OpenCodeDriver:
    """The port `Driver`, by processes that many workers share. It exists only inside `running`."""

    def __init__(self, pool: Pool, gate: Gate, around: Surroundings) -> None:
        self._pool = pool
        self._gate = gate
        self._around = around

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        around: Surroundings,
        gate: Gate,
        *,
        owner: str,
        care: Callable[[], Care] = Care,
    ) -> AsyncGenerator[Self]:
        """On leaving, every process of the driver is ended, and what it started."""
        async with task_group() as tasks:
            pool = Pool(tasks, gate, owner, cls.run, care)
            tasks.start_soon(pool.keep_reserve)
            try:
                yield cls(pool, gate, around)
            finally:
                tasks.cancel_scope.cancel()

    @staticmethod
    def run(launch: Launch, mark: str) -> AbstractAsyncContextManager[Hosted]:
        """One process; another kind of it makes another method."""
        return AcpHost.running(launch, mark)

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[Session]:
        """A session for one worker, closed on leaving."""
        if not spec.cwd.is_dir():
            raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
        await self._around.sandbox.level()
        session = LastingSession(spec, self._place, lambda: self._gate.waiting(spec.id))
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
    async def _place(self, spec: WorkerSpec, earlier: Conversation | None) -> AsyncGenerator[Place]:
        """The session in a fit process. One that ends meanwhile is no reason to fail, once."""
        async with AsyncExitStack() as held:
            slot = await held.enter_async_context(self._slot(spec))
            try:
                session = await self._start(slot, spec, earlier)
            except WorkerCrashed:
                slot = await held.enter_async_context(self._slot(spec))
                session = await self._start(slot, spec, earlier)
            try:
                yield Place(slot, session)
            finally:
                with anyio.CancelScope(shield=True):
                    await session.close()
                self._gate.unbind(session.id)

    async def _start(
        self, slot: Slot, spec: WorkerSpec, earlier: Conversation | None
    ) -> Conversation:
        await slot.until_warm(spec.cwd)
        process = await slot.process()
        check_trusted(self._around, spec.cwd)
        settings = self._around.settings()
        held = held_backends(settings, self._around.environ())
        async with slot.booting:
            session = await process.open(
                spec,
                direct=spec.provider.backend not in held,
                instructions=project_instructions(spec.cwd, settings),
                earlier=earlier,
            )
        self._gate.bind(token=process.token, session=session.id, worker=spec.id)
        return session

    def _slot(self, spec: WorkerSpec) -> AbstractAsyncContextManager[Slot]:
        return self._pool.use(spec.cwd, *self._terms(spec.cwd), dedicated=spec.dedicated)

    def _terms(self, cwd: Path) -> tuple[str, Callable[[], Launch]]:
        """What tells processes apart, and how one is started. Elsewhere a folder has one of its own."""
        settings, roots = self._around.settings(), shared_roots(self._around)
        open_to_all = (*roots, *settings.sandbox.writable)
        open_places = [root.resolve() for root in open_to_all]
        writes = self._around.sandbox.writes(cwd)
        if not all(is_below(path, open_places) for path in writes):
            roots = writes
        content = gated_content(self._around, self._gate, token="")
        fingerprint = self._fingerprint(settings, content, roots)
        return fingerprint, lambda: self._launch(fingerprint, roots)

    def _fingerprint(self, settings: Settings, content: Content, roots: tuple[Path, ...]) -> str:
        told = (content, settings.opencode, settings.sandbox, roots)
        return hashlib.sha256(msgspec.json.encode(told, enc_hook=str)).hexdigest()

    def _launch(self, fingerprint: str, roots: tuple[Path, ...]) -> Launch:
        settings, environ = self._around.settings(), self._around.environ()
        check_trusted(self._around, settings.project)
        program = find_opencode(settings.opencode.command, environ)
        token = self._gate.issue_token()
        content = gated_content(self._around, self._gate, token=token)
        start = start_folder(self._around)
        env = process_environment(self._around, content, program=program, cwd=start)
        return Launch(
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
            catalogue=known_models(self._around, content),
        )
