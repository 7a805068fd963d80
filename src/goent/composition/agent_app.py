"""Assembles the agent of `go-ent acp` with settings, models, ledger and tools.

It is loaded with the first session: a client that only asks for the agent's name gets an immediate
answer.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio
from anyio import to_thread

from goent.agent.agent_ports import AUTO, McpServerSpec, Toolbox, ToolContext
from goent.agent.coding_agent import AgentSetup, CodingAgent, SessionResources
from goent.agent.model_access import (
    DirectModelAccess,
    GatewayModelAccess,
    ModelCallListeners,
    read_gate,
)
from goent.agent.tools.toolbox import open_tools
from goent.composition.live_project import Project
from goent.composition.model_calls import UserRecords, model_calls, open_records
from goent.domain.errors import ConfigError
from goent.domain.ports import GateAddress
from goent.proc.process_table import new_owner, sweep_dead_owners
from goent.providers.connections import Connections
from goent.providers.model_list import ModelLists
from goent.routing.router import TaskClassifier
from goent.sandbox.process_sandbox import InheritedLimits
from goent.store.session_store import SqliteSessions
from goent.system.project_folders import UnsafeFolder, find_project, state_dir

MARK_KEY = "agent"
FOR_EVER = float("inf")


@asynccontextmanager
async def open_agent(
    environ: Mapping[str, str],
    *,
    gate: str = "",
    model: str = AUTO,
    mode: str = "ask",
    allowed_tools: frozenset[str] | None = None,
) -> AsyncGenerator[CodingAgent]:
    """The agent, with the user's stored sessions; processes of killed agents are ended first.

    `gate` is the value of `GOENT_GATE`, which `environ` must no longer contain. New sessions start with
    `model` and `mode`; `allowed_tools` None means all.
    """
    address = read_gate(gate) if gate else None
    owner = new_owner(MARK_KEY)
    async with anyio.create_task_group() as background:
        background.start_soon(to_thread.run_sync, sweep_dead_owners, MARK_KEY)
        async with (
            Connections.open() as connections,
            _provisions(address, connections, environ, owner) as provisions,
            SqliteSessions.open(
                state_dir(environ) / "sessions.db", secrets=provisions.secrets
            ) as shelf,
            CodingAgent.running(
                shelf,
                AgentSetup(
                    resources_at=provisions.at,
                    open_tools=_toolbox,
                    owner=owner,
                    model=model,
                    mode=mode,
                    allowed=allowed_tools,
                    refused=frozenset(address.refused if address else ()),
                ),
            ) as agent,
        ):
            yield agent
        background.cancel_scope.cancel()


class _Provisions(Protocol):
    """The resources for sessions by directory, and the keys seen so far."""

    def at(self, cwd: Path) -> SessionResources: ...

    def secrets(self) -> Collection[str]: ...


@asynccontextmanager
async def _provisions(
    gate: GateAddress | None, connections: Connections, environ: Mapping[str, str], owner: str
) -> AsyncGenerator[_Provisions]:
    """A daemon's worker uses its gate, an editor's agent the user's own providers."""
    if gate:
        yield _GatedProvisions(
            models=GatewayModelAccess(gate, connections), environ=environ, gate=gate
        )
        return
    async with open_records(environ, owner) as records:
        yield _OwnProvisions(connections=connections, records=records, environ=environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class _GatedProvisions:
    """One model, behind the gate."""

    models: GatewayModelAccess
    environ: Mapping[str, str]
    gate: GateAddress

    def at(self, cwd: Path) -> SessionResources:
        around = Project(_project(cwd), self.environ)
        return SessionResources(
            models=self.models,
            environ=around.environ_without_keys(),
            writable=tuple(map(Path, self.gate.writable)),
            sandbox=lambda _: nullcontext(InheritedLimits(self.gate.sandbox)),
            patience=FOR_EVER,  # the worker's owner has a limit of its own
        )

    def secrets(self) -> Collection[str]:
        return (self.gate.token,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnProvisions:
    """The user's ledger and providers, for each project that a session begins in."""

    connections: Connections
    records: UserRecords
    environ: Mapping[str, str]
    known: dict[Path, "_OpenProject"] = field(default_factory=dict[Path, "_OpenProject"])

    def at(self, cwd: Path) -> SessionResources:
        """Raises `ConfigError` if the project's files have a mistake."""
        project = _project(cwd)
        if project not in self.known:
            around = Project(project, self.environ)
            around.check()
            self.known[project] = self._models(around)
        around, models, servers = self.known[project]
        settings = around.settings()
        return SessionResources(
            models=models,
            environ=around.environ_without_keys(),
            writable=settings.agent.writable,
            sandbox=lambda roots: around.surroundings.sandbox.session(
                roots[0],
                roots=(*roots, *settings.agent.writable),
                env=around.environ_without_keys(),
            ),
            patience=settings.permissions.timeout_s,
            notices=around.notices(),
            servers=servers,
        )

    def secrets(self) -> Collection[str]:
        return [key for around, _, _ in self.known.values() for key in around.secrets()]

    def _models(self, around: Project) -> "_OpenProject":
        payer = ModelCallListeners(around.settings)
        calls = model_calls(around, self.connections, self.records, feed=payer, roster=payer)
        models = DirectModelAccess(
            calls.upstream,
            payer,
            TaskClassifier(),
            prices=calls.prices,
            settings=around.settings,
            environ=around.environ,
        )
        return _OpenProject(around, models, calls.servers)


class _OpenProject(NamedTuple):
    """A project that sessions have begun in."""

    around: Project
    models: DirectModelAccess
    servers: ModelLists


@asynccontextmanager
async def _toolbox(desk: ToolContext, servers: Sequence[McpServerSpec]) -> AsyncGenerator[Toolbox]:
    async with open_tools(desk) as tools:
        if not servers:
            yield Toolbox(tools=lambda: tools)
            return
        from goent.agent.mcp.mcp_client import open_mcp_servers  # noqa: PLC0415 (few sessions have any)

        async with open_mcp_servers(servers, desk) as found:
            yield Toolbox(tools=lambda: {**tools, **found.tools}, warnings=found.warnings)


def _project(cwd: Path) -> Path:
    try:
        return find_project(cwd)
    except UnsafeFolder as error:
        raise ConfigError(str(error)) from None
