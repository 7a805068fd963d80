"""Provides the OpenCode server for an attempt: one for each set of server settings in a run.

The servers are those of `goent.opencode.server`, and their pool is the one that workers have: it
starts a server when one is needed, watches whether it answers, replaces one that died or has grown
too large, and ends them all. A server carries some ten busy directories; more get a second one.
"""

import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from goent.agents.driver_context import DriverContext
from goent.agents.opencode_program import find_opencode
from goent.domain.errors import WorkerCrashed
from goent.domain.events import UsageReported
from goent.domain.ports import Gate
from goent.domain.types import Provider, Usage, Value
from goent.evals.eval_ports import TargetError
from goent.evals.targets.opencode_target_settings import OpenCodeTargetSettings
from goent.evals.traces import TokenUsage
from goent.opencode.bundled_models import BundledModels
from goent.opencode.config_overlay import gated_backends
from goent.opencode.opencode_process import OpenCodeProcess
from goent.opencode.process_care import CarePolicy
from goent.opencode.process_launch import (
    OpenCodeLaunch,
    check_trusted,
    gate_port,
    gated_overlay,
    needed_models,
    process_environment,
    start_folder,
)
from goent.opencode.process_pool import COLD_STARTS, ProcessPool
from goent.opencode.server import ExternalServer, ServeProcess, ServerAddress
from goent.opencode.server_api import SERVER_USER
from goent.opencode.session import OpenCodeServer
from goent.proc.concurrency import task_group
from goent.sandbox.sandbox_paths import is_below
from goent.system.project_folders import state_path


class AttemptBill:
    """What one attempt was charged so far. The cost is unknown once that of one call is."""

    def __init__(self) -> None:
        self.calls = 0
        self.usage = Usage()
        self.cost_usd: Decimal | None = Decimal(0)

    def add(self, report: UsageReported) -> None:
        self.calls += report.calls
        self.usage += report.usage
        if self.cost_usd is not None and report.cost_usd is not None:
            self.cost_usd += report.cost_usd
        else:
            self.cost_usd = None

    @property
    def usd(self) -> float | None:
        """None if nothing was charged, or the cost is unknown."""
        return None if self.cost_usd is None or not self.calls else float(self.cost_usd)

    @property
    def tokens(self) -> TokenUsage:
        """As suites count them."""
        return TokenUsage(
            input=self.usage.input + self.usage.cache_write,
            output=self.usage.output + self.usage.reasoning,
            cached=self.usage.cache_read,
            reasoning=self.usage.reasoning,
        )


class Accounts(Protocol):
    """The ledger and the budgets, for attempts. `payer` is an attempt's name there."""

    @property
    def gate(self) -> Gate:
        """Where model calls go for which go-ent has the key."""
        ...

    def charge_to(self, payer: str) -> AbstractContextManager[AttemptBill]:
        """While open, the payer's calls through the gate are charged to the bill."""
        ...

    async def wait_settled(self, payer: str) -> None:
        """Return when the payer's calls are counted, or after a while."""
        ...

    async def allow_direct(self, payer: str, provider: Provider) -> None:
        """Raises `BudgetExceeded` if a budget forbids calls of the payer that bypass the gate."""
        ...

    async def report_direct(self, payer: str, provider: Provider, report: UsageReported) -> None:
        """Record calls that bypassed the gate."""
        ...


ConfigTree = dict[str, object]

# OpenCode's own subagents, which the user's configuration may allow more than an attempt may do.
_ASK_ACTIONS: Final = dict.fromkeys(("edit", "bash", "external_directory", "webfetch"), "ask")
SUBAGENT_SETTINGS: Final[Mapping[str, object]] = {
    "general": {"permission": {"*_*": "ask", **_ASK_ACTIONS}},
    "explore": {"permission": _ASK_ACTIONS},
}


class TargetModel(Value, frozen=True, kw_only=True):
    """Which model works; without a `model`, the server's configuration chooses one.

    `is_metered` if its calls pass the gate, because go-ent has the key.
    """

    provider: Provider
    model: str = ""
    is_metered: bool = False


def choose_model(settings: OpenCodeTargetSettings, context: DriverContext) -> TargetModel:
    """The target's `model`: `provider/model` or the name of a provider; by default the first one."""
    known, environ = context.settings(), context.environ()
    if settings.base_url is not None:
        if settings.model and "/" not in settings.model:
            raise _unknown_model(
                settings.model, "and the server at `base_url` does not know go-ent's providers"
            )
        where = f"the OpenCode server at {settings.base_url}"
        unknown = Provider(
            name=settings.model or where, backend=where, model=settings.model or "its own"
        )
        return TargetModel(provider=unknown, model=settings.model)
    provider = _find_provider(settings, known.providers)
    if provider is None:
        own = Provider(name="opencode", backend="opencode", model="its own")
        if "model" in settings.config:
            return TargetModel(provider=own)
        raise TargetError(
            "no_model",
            "the target names no `model`, and go-ent knows no provider: set `model: provider/model`",
        )
    is_metered = provider.backend in gated_backends(known, environ)
    return TargetModel(provider=provider, model=provider.opencode_model, is_metered=is_metered)


def _find_provider(settings: OpenCodeTargetSettings, known: Sequence[Provider]) -> Provider | None:
    if not settings.model:
        return None if "model" in settings.config else next(iter(known), None)
    for provider in known:
        if settings.model in (provider.name, provider.opencode_model):
            return provider
    backend, _, model = settings.model.partition("/")
    if not model:
        names = ", ".join(provider.name for provider in known) or "none"
        raise _unknown_model(settings.model, f"nor one of go-ent's providers: {names}")
    return Provider(name=settings.model, backend=backend, model=model)


def _unknown_model(model: str, why: str) -> TargetError:
    return TargetError("unknown_model", f"model {model!r} is not `provider/model`, {why}")


class ServerSettings(Value, frozen=True, kw_only=True):
    """The settings of a server: targets with the same ones share it."""

    settings: OpenCodeTargetSettings
    backend: str

    def fingerprint(self, context: DriverContext, gate: Gate, roots: tuple[Path, ...]) -> str:
        target, context = self.settings, with_profile(self.settings, context)
        own = (target.program, target.args, target.hostname, target.port, target.env)
        content = self._content(context, gate, token="")
        settings = context.settings()
        spelt = msgspec.json.encode(
            (own, content, settings.opencode, settings.sandbox, roots), enc_hook=str
        )
        return hashlib.sha256(spelt).hexdigest()

    def launch(self, context: DriverContext, gate: Gate, roots: tuple[Path, ...]) -> OpenCodeLaunch:
        """Attempts work below `roots`. Raises `OpenCodeMissing` if there is no such program."""
        context = with_profile(self.settings, context)
        settings, environ = context.settings(), context.environ()
        check_trusted(context, settings.project)
        program = find_opencode(self.settings.program or settings.opencode.command, environ)
        token = gate.issue_token()
        plain = gated_overlay(context, gate, token=token)
        content = self._content(context, gate, token=token)
        enabled = msgspec.convert(content["enabled_providers"], tuple[str, ...])
        catalogue = needed_models(context, plain)
        start = start_folder(context)
        return OpenCodeLaunch(
            program=program,
            cwd=start,
            env={
                **process_environment(context, plain, program=program, cwd=start),
                "OPENCODE_CONFIG_CONTENT": msgspec.json.encode(content).decode(),
                **self.settings.env,
            },
            password=f"goent_{secrets.token_urlsafe(32)}",  # the shape that is redacted in logs
            token=token,
            fingerprint=self.fingerprint(context, gate, roots),
            start_timeout=self.settings.startup_timeout_seconds,
            sandbox=context.sandbox,
            roots=roots,
            shown=(settings.project,),
            gate_port=gate_port(gate),
            standby="never",
            catalogue=BundledModels(backends=enabled, folder=catalogue.folder),
            hostname=self.settings.hostname,
            port=self.settings.port,
            arguments=self.settings.args,
        )

    def _content(self, context: DriverContext, gate: Gate, *, token: str) -> ConfigTree:
        """Our configuration with the target's; its own providers, and its model's, are enabled too."""
        plain = gated_overlay(context, gate, token=token)
        content = msgspec.convert(msgspec.to_builtins(plain), ConfigTree)
        if not self.settings.is_hermetic:
            content = _merge_trees(content, {"agent": SUBAGENT_SETTINGS})
        added = dict(self.settings.config)
        if self.settings.mcp:
            added = _merge_trees(added, {"mcp": self.settings.mcp})
        own = msgspec.convert(added.get("provider", {}), dict[str, object])
        enabled = (*plain.enabled_providers, self.backend, *own)
        content["enabled_providers"] = [name for name in dict.fromkeys(enabled) if name]
        if "plugin" in added:  # beside our guard, not instead of it
            ours = msgspec.convert(content["plugin"], list[object])
            added["plugin"] = [*msgspec.convert(added["plugin"], list[object]), *ours]
        return _merge_trees(content, added)


def with_profile(target: OpenCodeTargetSettings, context: DriverContext) -> DriverContext:
    """With the target's profile: the user's OpenCode configuration counts only if it says so."""
    settings = context.settings()
    config = settings.opencode.config_path if target.profile == "user" else None
    opencode = replace(settings.opencode, profile=target.profile, config_path=config)
    return replace(context, settings=lambda: replace(settings, opencode=opencode))


def _merge_trees(base: ConfigTree, added: Mapping[str, object]) -> ConfigTree:
    """Merge tables key by key, as OpenCode does with its files; replace everything else."""
    merged = dict(base)
    for key, value in added.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            table = msgspec.convert(old, ConfigTree)
            merged[key] = _merge_trees(table, msgspec.convert(value, ConfigTree, strict=False))
        else:
            merged[key] = value
    return merged


PASSWORD_VARIABLE, USER_VARIABLE = "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"
PASSWORD_REMEDY = f"set {PASSWORD_VARIABLE} in the target's `env`"
UNREACHABLE_REMEDY = (
    "start it (`opencode serve --port N`), or leave `base_url` out, and go-ent runs one of its own"
)


class EvalServer(ServeProcess):
    """A server whose events each attempt follows by itself, in its own directory."""

    async def _follow_events(self) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUse:
    """A server for the time of one attempt; directories are booted `booting` at a time."""

    server: OpenCodeServer
    booting: anyio.CapacityLimiter


class EvalServers:
    """All servers of a run, which exist only inside `running`."""

    def __init__(
        self,
        tasks: TaskGroup,
        context: DriverContext,
        accounts: Accounts,
        *,
        owner: str,
        secrets: Callable[[], Collection[str]],
    ) -> None:
        self.context = context
        self.accounts = accounts
        self.secrets = secrets
        self.care = CarePolicy()
        self._tasks = tasks
        self._owner = owner
        self._pools: dict[str, ProcessPool] = {}
        self._port_owners: dict[int, str] = {}  # fingerprints of the servers that have a port

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        context: DriverContext,
        accounts: Accounts,
        *,
        owner: str,
        secrets: Callable[[], Collection[str]] = tuple,
    ) -> "AsyncGenerator[EvalServers]":
        """On leaving, every server and everything that it started is ended."""
        async with task_group() as tasks:
            try:
                yield cls(tasks, context, accounts, owner=owner, secrets=secrets)
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def use(self, server_settings: ServerSettings, cwd: Path) -> AsyncGenerator[ServerUse]:
        """Raises `WorkerError` or `EnvironmentTrouble` if no server can be started or reached."""
        if server_settings.settings.base_url is not None:
            address = self._address(server_settings.settings, server_settings.settings.base_url)
            async with ExternalServer.reached(address) as external:
                yield ServerUse(server=external, booting=anyio.CapacityLimiter(COLD_STARTS))
            return
        gate = self.accounts.gate
        await self.context.sandbox.level()
        roots = self._roots(cwd)
        fingerprint = server_settings.fingerprint(self.context, gate, roots)
        if fingerprint not in self._pools:
            # One each: a pool ends idle processes other than its newest.
            self._pools[fingerprint] = ProcessPool(
                self._tasks, gate, self._owner, self._start, care=lambda: self.care
            )
        async with self._pools[fingerprint].use(
            cwd,
            fingerprint,
            lambda: server_settings.launch(self.context, gate, roots),
            dedicated=not server_settings.settings.shared_server,
        ) as slot:
            yield ServerUse(server=await slot.process(), booting=slot.booting)

    def _roots(self, cwd: Path) -> tuple[Path, ...]:
        """Where a server can write: where attempts usually work, or else the folder of this one."""
        usual = state_path(self.context.environ()) / "evals"
        writable = self.context.settings().sandbox.writable
        writes = self.context.sandbox.writable_folders(cwd)
        return (usual,) if all(is_below(path, (usual, *writable)) for path in writes) else writes

    @asynccontextmanager
    async def _start(self, launch: OpenCodeLaunch, mark: str) -> AsyncGenerator[OpenCodeProcess]:
        """The first server of its settings gets the port they ask for; a second one any other."""
        port = launch.port
        owner = self._port_owners.get(port)
        if owner not in (None, launch.fingerprint):
            raise WorkerCrashed(
                f"port {port} is that of another target's server, whose settings are others: "
                "set another `port`, or none"
            )
        if port and owner is None:
            self._port_owners[port] = launch.fingerprint
        else:
            launch = replace(launch, port=0)
        try:
            async with EvalServer.running(launch, mark) as server:
                yield server
        finally:
            if launch.port:
                del self._port_owners[port]

    def _address(self, settings: OpenCodeTargetSettings, url: str) -> ServerAddress:
        env = {**self.context.environ(), **settings.env}
        return ServerAddress(
            url=url,
            setting="base_url",
            user=env.get(USER_VARIABLE) or SERVER_USER,
            password=env.get(PASSWORD_VARIABLE, ""),
            password_remedy=PASSWORD_REMEDY,
            remedy=UNREACHABLE_REMEDY,
        )
