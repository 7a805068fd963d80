"""Which command is a worker's agent, and what does its process inherit?

Keys that go-ent holds are in no agent's environment. go-ent's own agent is told where the gateway
is, by one variable that it removes at its start; other agents have logins of their own.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from goent.domain.errors import ProviderRefused
from goent.domain.gate import GATE, GateAddress, GatedModel
from goent.domain.ports import Gate, WorkerSpec
from goent.domain.settings import PermissionRule, Settings
from goent.domain.types import Provider, Value
from goent.drivers.environment import Surroundings, hermetic_folders, public_environment
from goent.drivers.rules import refused_outright

OWN_NAME = "go-ent acp"
# -P: a worker's directory must not be searched for modules, it is somebody's repository.
OWN_COMMAND = (sys.executable, "-P", "-m", "goent", "acp")
# The own agent's tools, by the permission that each one needs.
OWN_TOOLS = {
    "bash": ("Bash",),
    "edit": ("Edit", "Write"),
    "glob": ("Glob",),
    "grep": ("Grep",),
    "read": ("Read",),
    "todowrite": ("TodoWrite",),
}


class Launch(Value, frozen=True, kw_only=True):
    """How one agent process is started. `own`: it is go-ent's own, and calls through the gateway."""

    name: str
    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    own: bool
    start_timeout: float


def is_own(provider: Provider, settings: Settings) -> bool:
    """Whether go-ent's own agent is meant: any provider that is no other agent."""
    return provider.backend not in settings.agents


def own_launch(spec: WorkerSpec, around: Surroundings, gate: Gate, token: str) -> Launch:
    """Raises `ProviderRefused` if go-ent cannot call the model itself."""
    settings = around.settings()
    provider = spec.provider
    backend = settings.backends.get(provider.backend)
    if backend is None or not backend.base_url or not backend.resolve_key(around.environ()):
        raise ProviderRefused(
            f"go-ent's own agent calls models through go-ent, which holds no key for provider "
            f"{provider.name!r}: give it one in .goent/providers.yaml, or use the method 'acp'"
        )
    told = GatedModel(
        name=provider.name,
        backend=provider.backend,
        model=provider.model,
        context_limit=provider.context_limit,
        dialect=backend.dialect,
    )
    address = GateAddress(
        url=gate.base_url(provider.backend),
        token=token,
        provider=told,
        writable=tuple(map(str, settings.agent.writable)),
        refused=refused_tools(spec.rules),
    )
    named = spec.allowed_tools
    tools = () if named is None else (f"--allowed-tools={','.join(named)}",)
    return Launch(
        name=OWN_NAME,
        command=(*OWN_COMMAND, "--model", provider.opencode_model, *tools),
        cwd=spec.cwd,
        env={**_environment(around, spec.cwd), GATE: msgspec.json.encode(address).decode()},
        own=True,
        start_timeout=settings.opencode.start_timeout_s,
    )


def refused_tools(rules: Sequence[PermissionRule]) -> tuple[str, ...]:
    """Those of the own agent's tools that no call of could be allowed."""
    refused = (tools for name, tools in OWN_TOOLS.items() if refused_outright(rules, name))
    return tuple(tool for tools in refused for tool in tools)


def foreign_launch(spec: WorkerSpec, around: Surroundings) -> Launch:
    settings = around.settings()
    agent = settings.agents[spec.provider.backend]
    return Launch(
        name=spec.provider.backend,
        command=agent.command,
        cwd=spec.cwd,
        env=_environment(around, spec.cwd),
        own=False,
        start_timeout=agent.start_timeout_s,
    )


def _environment(around: Surroundings, cwd: Path) -> dict[str, str]:
    settings = around.settings()
    env = public_environment(settings, around.environ())
    env["PWD"] = str(cwd)
    if settings.opencode.profile == "hermetic":
        home = around.state_dir / "agent-home"
        home.mkdir(0o700, parents=True, exist_ok=True)
        env |= hermetic_folders(home)
    return env
