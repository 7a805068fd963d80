"""Decides which command is a worker's agent, and what its process inherits.

Keys that go-ent holds are in no agent's environment. go-ent's own agent gets the gateway's address
in a variable that it removes when it starts; other agents have logins of their own.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from glob import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from goent.agents.driver_context import DriverContext, hermetic_folders, public_environment
from goent.agents.opencode_program import opencode_data_folders, opencode_settings_folders
from goent.domain.errors import ProviderRefused
from goent.domain.ports import GATE_VARIABLE, Gate, GateAddress, GateModel, WorkerSpec
from goent.domain.sandbox_port import ConfinedCommand
from goent.domain.settings import PermissionRule, Settings
from goent.domain.types import Provider, Value
from goent.permissions.access_rules import is_always_denied
from goent.proc.programs import locate_command
from goent.sandbox.confinement import OPTIONS_VARIABLE
from goent.sandbox.process_sandbox import ProcessSandbox, SandboxedAgent
from goent.system.project_folders import home_dir, state_path

OWN_NAME = "go-ent acp"
# -P: a worker's directory, which is a repository, must not be searched for modules.
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
# Words of a command line that also name folders in a home, but none of an agent.
NOT_AGENTS = (
    *("", "aws", "cache", "config", "docker", "git", "gnupg", "kube", "local", "ssh"),
    *("bun", "cargo", "deno"),  # these hold programs that the user runs
)


class AgentLaunch(Value, frozen=True, kw_only=True):
    """How one agent process is started. go-ent's own (`own`) calls models through the gateway.

    In its sandbox it can write where its worker works, and in its own `folders`.
    """

    name: str
    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    own: bool
    start_timeout: float
    sandbox: ProcessSandbox
    auth_method: str = ""
    folders: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    gate_port: int | None = None

    @property
    def remedy(self) -> str:
        """What may help if a foreign agent does not start inside its sandbox."""
        if self.own or not self.sandbox.confines:
            return ""
        places = ", ".join(map(str, self.folders)) or "no folder of its own"
        return (
            f" (in go-ent's sandbox {self.name} can write in the project and {places}; if it keeps its "
            "data elsewhere, add that folder to `sandbox.writable` in ~/.config/go-ent/config.yaml)"
        )

    def confined(self) -> AbstractAsyncContextManager[ConfinedCommand]:
        """The command inside its sandbox."""
        return self.sandbox.agent(
            SandboxedAgent(
                command=self.command,
                env=self.env,
                roots=self.sandbox.writable_folders(self.cwd),
                data_folders=self.folders,
                readable=self.shown,
                ports=(self.gate_port,) if self.gate_port else (),
                is_foreign=not self.own,
            )
        )


def uses_own_agent(provider: Provider, settings: Settings) -> bool:
    """Whether the provider is for go-ent's own agent, because it is not another agent."""
    return provider.backend not in settings.agents


def own_launch(spec: WorkerSpec, context: DriverContext, gate: Gate, token: str) -> AgentLaunch:
    """Raises `ProviderRefused` if go-ent cannot call the model itself."""
    settings = context.settings()
    provider = spec.provider
    backend = settings.backends.get(provider.backend)
    if backend is None or not backend.base_url or not backend.is_held(context.environ()):
        raise ProviderRefused(
            f"go-ent's own agent calls models through go-ent, which holds no key for provider "
            f"{provider.name!r}: give it one in .goent/providers.yaml, or use the method 'acp'"
        )
    env = _environment(context, spec)
    also = tuple(folder for folder in settings.agent.writable if folder.is_dir())
    model = GateModel(
        name=provider.name,
        backend=provider.backend,
        model=provider.model,
        context_limit=provider.context_limit,
        dialect=backend.dialect,
        options=provider.options,
    )
    limits = (
        context.sandbox.shell_variables(spec.cwd, env, also) if context.sandbox.confines else {}
    )
    address = GateAddress(
        url=gate.base_url(provider.backend),
        token=token,
        provider=model,
        writable=tuple(map(str, settings.agent.writable)),
        refused=refused_tools(spec.rules),
        sandbox=limits.get(OPTIONS_VARIABLE, ""),
    )
    named = spec.allowed_tools
    tools = () if named is None else (f"--allowed-tools={','.join(named)}",)
    return AgentLaunch(
        name=OWN_NAME,
        command=(*OWN_COMMAND, "--model", provider.opencode_model, *tools),
        cwd=spec.cwd,
        env={**env, GATE_VARIABLE: msgspec.json.encode(address).decode()},
        own=True,
        start_timeout=settings.opencode.start_timeout_s,
        sandbox=context.sandbox,
        folders=(state_path(env), *also),
        gate_port=urlsplit(gate.guard_url).port,
    )


def refused_tools(rules: Sequence[PermissionRule]) -> tuple[str, ...]:
    """The tools of go-ent's own agent of which no call could be allowed."""
    refused = (tools for name, tools in OWN_TOOLS.items() if is_always_denied(rules, name))
    return tuple(tool for tools in refused for tool in tools)


def foreign_launch(spec: WorkerSpec, context: DriverContext) -> AgentLaunch:
    settings = context.settings()
    agent = settings.agents[spec.provider.backend]
    if settings.sandbox.network != "all" and context.sandbox.confines:
        raise ProviderRefused(
            f"the agent {spec.provider.backend!r} calls its models by itself, but `sandbox.network: "
            f"{settings.sandbox.network}` lets agents reach only go-ent's gateway: use another provider, "
            "or set `sandbox: {network: all}`"
        )
    env = _environment(context, spec)
    names = (spec.provider.backend, *_program_names(agent.command))
    return AgentLaunch(
        name=spec.provider.backend,
        command=tuple(map(os.fsdecode, locate_command(agent.command, env))),
        cwd=spec.cwd,
        env=env,
        own=False,
        start_timeout=agent.start_timeout_s,
        auth_method=agent.auth_method,
        sandbox=context.sandbox,
        folders=_usual_folders(names, env),
        shown=opencode_settings_folders(env) if "opencode" in names else (),
    )


def _program_names(command: Sequence[str]) -> tuple[str, ...]:
    """The names in a command and of its packages: it may begin with `env`, `npx` or `node`."""
    words = [Path(word) for word in command if not word.startswith("-")]
    real = [word.resolve() for word in words if word.is_absolute()]
    packages = [
        name
        for path in real
        for before, name in pairwise(path.parts)
        if before == "node_modules" or before.startswith("@")
    ]
    return (*(word.name for word in words), *packages)


def _usual_folders(names: Sequence[str], env: Mapping[str, str]) -> tuple[Path, ...]:
    """The existing folders where programs of these names usually keep logins and sessions."""
    if "opencode" in names:
        return opencode_data_folders(env)
    home = home_dir(env)
    names = [name for name in names if name not in NOT_AGENTS]
    bases = (".config", ".cache", ".local/share", ".local/state")
    found = [home / f".{name}" for name in names]
    found += [home / base / name for base in bases for name in names]
    stems = [name.partition("-")[0] for name in names]
    found += [home / f".{stem}" for stem in stems if stem not in NOT_AGENTS]
    found += [path for name in names for path in home.glob(f".{escape(name)}-*")]
    return tuple(path for path in dict.fromkeys(found) if path.is_dir() and path != home)


def _environment(context: DriverContext, spec: WorkerSpec) -> dict[str, str]:
    settings = context.settings()
    env = public_environment(settings, context.environ())
    env |= {"PWD": str(spec.cwd), **context.passes.environment(spec.id)}
    if settings.opencode.profile == "hermetic":
        home = context.state_dir / "agent-home"
        home.mkdir(0o700, parents=True, exist_ok=True)
        env |= hermetic_folders(home)
    return env
