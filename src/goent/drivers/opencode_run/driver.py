"""How does a worker run by `opencode run`: one process, one prompt, and then it is over?

A cold start of some seconds is inherent. What it gives is separation: a process, an environment
and a gate token of the worker's own, and nothing of it stays warm.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.ports import Gate, Session, WorkerSpec
from goent.drivers.environment import Surroundings
from goent.drivers.opencode.binary import find_opencode
from goent.drivers.opencode.content import UNTITLED, Agent, Content, held_backends
from goent.drivers.opencode.launching import (
    check_trusted,
    gate_port,
    gated_content,
    known_models,
    process_environment,
    project_instructions,
    start_folder,
)
from goent.drivers.opencode_run.permission import as_permissions
from goent.drivers.opencode_run.session import Order, RunSession
from goent.proc import new_mark


class OpenCodeRunDriver:
    """The port `Driver`, by `opencode run`."""

    def __init__(self, around: Surroundings, gate: Gate, *, owner: str) -> None:
        self._around = around
        self._gate = gate
        self._owner = owner

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[Session]:
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
            session = RunSession(order, lambda: self._gate.waiting(spec.id))
            self._gate.attend(token, session)
            yield session
        finally:
            self._gate.unbind(spec.id)
            self._gate.revoke_token(token)

    def _order(self, spec: WorkerSpec, token: str) -> Order:
        settings, environ = self._around.settings(), self._around.environ()
        program = find_opencode(settings.opencode.command, environ)
        # Nobody who wrote a configuration can know the name and add to its rules.
        agent = f"goent-{secrets.token_hex(8)}"
        content = _ruled(gated_content(self._around, self._gate, token=token), agent, spec)
        return Order(
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
            direct=spec.provider.backend not in held_backends(settings, environ),
            instructions=tuple(project_instructions(spec.cwd, settings)),
            catalogue=known_models(self._around, content),
        )


def _ruled(content: Content, agent: str, spec: WorkerSpec) -> Content:
    """The worker's rules: last for its own agent, and for subagents, which have agents of theirs."""
    permissions = as_permissions(spec.rules)
    own = Agent(mode="primary", permission=permissions)
    return replace(content, agent={"title": UNTITLED, agent: own}, permission=permissions)
