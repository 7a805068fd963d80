"""The composition root of `go-ent acp`: joins the agent with settings, models, ledger and tools.

It is entered when the first session is asked for, and not before: a client that only looks which
agent it has started is answered at once.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import anyio
from anyio import to_thread

from goent.agent.agent import Agent, Provision, Setup
from goent.agent.gated import GatedModels, read_gate
from goent.agent.held import HeldModels, Payer
from goent.agent.models import AUTO
from goent.agent.ports import Desk, ServerSpec, Toolbox
from goent.agent.tools.toolbox import open_tools
from goent.composition.live_project import Project
from goent.composition.model_calls import UserRecords, model_calls, open_records
from goent.core.classifier import TaskClassifier
from goent.domain.errors import ConfigError
from goent.domain.gate import GateAddress
from goent.proc.marks import new_owner, sweep_dead_owners
from goent.project import UnsafeFolder, find_project, state_dir
from goent.sandbox.sandbox import GivenLimits
from goent.store.sessions import SqliteSessions
from goent.upstream.forward import Connections
from goent.upstream.model_list import ModelLists

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
) -> AsyncGenerator[Agent]:
    """Sessions are kept for the user; what an agent that was killed had running is ended first.

    `gate` is the value of `GOENT_GATE`, which `environ` must not have any more. `model` and `mode` are
    what new sessions begin with; `allowed_tools` None: all.
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
            Agent.running(
                shelf,
                Setup(
                    at=provisions.at,
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
    """What holds at a directory, and which keys have been seen so far."""

    def at(self, cwd: Path) -> Provision: ...

    def secrets(self) -> Collection[str]: ...


@asynccontextmanager
async def _provisions(
    gate: GateAddress | None, connections: Connections, environ: Mapping[str, str], owner: str
) -> AsyncGenerator[_Provisions]:
    """A worker of a daemon's has its gate, an editor's agent all else."""
    if gate:
        yield _Gated(models=GatedModels(gate, connections), environ=environ, gate=gate)
        return
    async with open_records(environ, owner) as records:
        yield _Held(connections=connections, records=records, environ=environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gated:
    """One model, behind the gate."""

    models: GatedModels
    environ: Mapping[str, str]
    gate: GateAddress

    def at(self, cwd: Path) -> Provision:
        around = Project(_project(cwd), self.environ)
        return Provision(
            models=self.models,
            environ=around.without_keys(),
            writable=tuple(map(Path, self.gate.writable)),
            sandbox=lambda _: nullcontext(GivenLimits(self.gate.sandbox)),
            patience=FOR_EVER,  # the worker's owner has a limit of its own
        )

    def secrets(self) -> Collection[str]:
        return (self.gate.token,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The user's ledger and providers, for each project that a session begins in."""

    connections: Connections
    records: UserRecords
    environ: Mapping[str, str]
    known: dict[Path, "_Known"] = field(default_factory=dict[Path, "_Known"])

    def at(self, cwd: Path) -> Provision:
        """Raises `ConfigError` if the project's files have a mistake."""
        project = _project(cwd)
        if project not in self.known:
            around = Project(project, self.environ)
            around.check()
            self.known[project] = self._models(around)
        around, models, servers = self.known[project]
        settings = around.settings()
        return Provision(
            models=models,
            environ=around.without_keys(),
            writable=settings.agent.writable,
            sandbox=lambda roots: around.surroundings.sandbox.session(
                roots[0],
                roots=(*roots, *settings.agent.writable),
                env=around.without_keys(),
            ),
            patience=settings.permissions.timeout_s,
            notices=around.notices(),
            servers=servers,
        )

    def secrets(self) -> Collection[str]:
        return [key for around, _, _ in self.known.values() for key in around.secrets()]

    def _models(self, around: Project) -> "_Known":
        payer = Payer(around.settings)
        calls = model_calls(around, self.connections, self.records, feed=payer, roster=payer)
        models = HeldModels(
            calls.upstream,
            payer,
            TaskClassifier(),
            prices=calls.prices,
            settings=around.settings,
            environ=around.environ,
        )
        return _Known(around, models, calls.servers)


class _Known(NamedTuple):
    """A project that sessions have begun in."""

    around: Project
    models: HeldModels
    servers: ModelLists


@asynccontextmanager
async def _toolbox(desk: Desk, servers: Sequence[ServerSpec]) -> AsyncGenerator[Toolbox]:
    async with open_tools(desk) as tools:
        if not servers:
            yield Toolbox(tools=lambda: tools)
            return
        from goent.agent.mcp import open_servers  # noqa: PLC0415 (few sessions have any)

        async with open_servers(servers, desk) as found:
            yield Toolbox(tools=lambda: {**tools, **found.tools}, warnings=found.warnings)


def _project(cwd: Path) -> Path:
    try:
        return find_project(cwd)
    except UnsafeFolder as error:
        raise ConfigError(str(error)) from None
