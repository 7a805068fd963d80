"""Runs workers on ACP agents, each in a process of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import anyio
from anyio.abc import TaskGroup

from goent.agents.agent_launch import AgentLaunch, foreign_launch, own_launch, uses_own_agent
from goent.agents.agent_process import AgentProcess
from goent.agents.driver_context import DriverContext, check_directory
from goent.agents.opencode_program import OPENCODE, check_agent, read_version
from goent.agents.oversight import IsShared
from goent.agents.session import AgentWorkerSession
from goent.domain.ports import Gate, WorkerSession, WorkerSpec
from goent.proc.concurrency import task_group
from goent.proc.process_table import new_mark


def _never_shared(_worker: str, _since: float) -> bool:
    return False


class AgentDriver:
    """The port `Driver`, by ACP agents. It exists only inside `running`."""

    def __init__(
        self, tasks: TaskGroup, gate: Gate, context: DriverContext, owner: str, shared: IsShared
    ) -> None:
        self._tasks = tasks
        self._gate = gate
        self._context = context
        self._owner = owner
        self._shared = shared

    @classmethod
    @asynccontextmanager
    async def running(
        cls, context: DriverContext, gate: Gate, *, owner: str, shared: IsShared = _never_shared
    ) -> AsyncGenerator[Self]:
        """On leaving, every agent and everything it started is ended.

        `shared` tells whether others have worked in a worker's directory since a time.
        """
        async with task_group() as tasks:
            try:
                yield cls(tasks, gate, context, owner, shared)
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one worker, whose agent ends with it."""
        check_directory(spec)
        await self._context.sandbox.level()
        settings = self._context.settings()
        own = uses_own_agent(spec.provider, settings)
        token = self._gate.issue_token()
        # The token is this worker's alone, so the session's own name does not access.
        self._gate.bind(token=token, session=spec.id, worker=spec.id)

        async def start(client: AgentWorkerSession) -> AgentProcess:
            return await self._start(self._launch(spec, token, own=own), client)

        session = AgentWorkerSession(
            spec,
            start,
            direct=not own,
            grace=settings.limits.cancel_grace_s,
            waiting=lambda: self._gate.waiting_s(spec.id),
            shared=self._shared,
        )
        try:
            await session.enter()
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()
            self._gate.unbind(spec.id)
            self._gate.revoke_token(token)

    async def _start(self, launch: AgentLaunch, client: AgentWorkerSession) -> AgentProcess:
        program = Path(launch.command[0])
        if program.name == OPENCODE:
            version = await read_version(program, launch.env, patience=launch.start_timeout)
            check_agent(version, launch.name)
        process = AgentProcess(launch, client, new_mark(self._owner))
        await self._tasks.start(process.run)
        return process

    def _launch(self, spec: WorkerSpec, token: str, *, own: bool) -> AgentLaunch:
        if own:
            return own_launch(spec, self._context, self._gate, token)
        return foreign_launch(spec, self._context)
