"""Provides the OpenCode server for an attempt: one for each set of server settings in a run.

The pool is the drivers': it starts a server when one is needed, looks whether it answers, replaces one
that died or has grown too large, and ends them all. A server stands some ten directories at work at
once; more are given a second one.
"""

import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
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
from goent.domain.settings import Settings
from goent.domain.types import Provider, Usage, Value
from goent.evals.eval_ports import TargetError
from goent.evals.targets.opencode_target_settings import OpenCodeTargetSettings
from goent.evals.traces import TokenUsage
from goent.opencode.bundled_models import BundledModels
from goent.opencode.call_guard import ProcessGuard
from goent.opencode.config_overlay import gated_backends
from goent.opencode.opencode_process import HostProcess
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
from goent.opencode.server import ServeProcess, check_server
from goent.opencode.server_api import USER, OpenCodeClient
from goent.proc.concurrency import task_group
from goent.sandbox.sandbox_paths import is_below
from goent.system.project_folders import state_path


class AttemptBill:
    """What one attempt has been charged with so far. A cost is unknown as soon as one call's is."""

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
        """None if nothing was charged, or nobody knows what it costs."""
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
    """The ledger and the budgets, as an attempt sees them. `payer` is the attempt's name there."""

    @property
    def gate(self) -> Gate:
        """Where calls to models go in whose keys go-ent holds."""
        ...

    def charge_to(self, payer: str) -> AbstractContextManager[AttemptBill]:
        """What passes the gate in the payer's name is charged to the bill meanwhile."""
        ...

    async def wait_settled(self, payer: str) -> None:
        """Return when the payer's calls have been counted; bounded."""
        ...

    async def allow_direct(self, payer: str, provider: Provider) -> None:
        """Calls of the payer will not pass the gate. Raises `BudgetExceeded` if a budget forbids that."""
        ...

    async def report_direct(self, payer: str, provider: Provider, report: UsageReported) -> None:
        """What calls took that did not pass the gate."""
        ...


ConfigTree = dict[str, object]

# The subagents that OpenCode brings along: a user may have let them do more than ours may.
_ASK_ACTIONS: Final = dict.fromkeys(("edit", "bash", "external_directory", "webfetch"), "ask")
SUBAGENT_SETTINGS: Final[Mapping[str, object]] = {
    "general": {"permission": {"*_*": "ask", **_ASK_ACTIONS}},
    "explore": {"permission": _ASK_ACTIONS},
}


class TargetModel(Value, frozen=True, kw_only=True):
    """Which model is asked. `held`: go-ent has the key, and the calls pass its gate.

    Without a `model`, the server's own configuration chooses.
    """

    provider: Provider
    model: str = ""
    is_metered: bool = False


def choose_model(told: OpenCodeTargetSettings, around: DriverContext) -> TargetModel:
    """What the target names: `provider/model`, or one of go-ent's providers by its name; else the first of those."""
    settings, environ = around.settings(), around.environ()
    if told.base_url is not None:
        if told.model and "/" not in told.model:
            raise _unknown_model(
                told.model, "and the server at `base_url` knows no providers of go-ent's"
            )
        where = f"the OpenCode server at {told.base_url}"
        unknown = Provider(name=told.model or where, backend=where, model=told.model or "its own")
        return TargetModel(provider=unknown, model=told.model)
    provider = _find_provider(told, settings)
    if provider is None:
        own = Provider(name="opencode", backend="opencode", model="its own")
        if "model" in told.config:
            return TargetModel(provider=own)
        raise TargetError(
            "no_model",
            "the target names no `model`, and go-ent knows no provider: set `model: provider/model`",
        )
    held = provider.backend in gated_backends(settings, environ)
    return TargetModel(provider=provider, model=provider.opencode_model, is_metered=held)


def _find_provider(told: OpenCodeTargetSettings, settings: Settings) -> Provider | None:
    if not told.model:
        return None if "model" in told.config else next(iter(settings.providers), None)
    for provider in settings.providers:
        if told.model in (provider.name, provider.opencode_model):
            return provider
    backend, _, model = told.model.partition("/")
    if not model:
        known = ", ".join(provider.name for provider in settings.providers) or "none"
        raise _unknown_model(told.model, f"and no provider of go-ent's; these are: {known}")
    return Provider(name=told.model, backend=backend, model=model)


def _unknown_model(model: str, why: str) -> TargetError:
    return TargetError("unknown_model", f"model {model!r} is no `provider/model`, {why}")


class ServerSettings(Value, frozen=True, kw_only=True):
    """What tells servers apart: targets with the same terms share one."""

    settings: OpenCodeTargetSettings
    backend: str

    def fingerprint(self, around: DriverContext, gate: Gate, roots: tuple[Path, ...]) -> str:
        told, around = self.settings, with_profile(self.settings, around)
        own = (told.program, told.args, told.hostname, told.port, told.env)
        content = self._content(around, gate, token="")
        settings = around.settings()
        spelt = msgspec.json.encode(
            (own, content, settings.opencode, settings.sandbox, roots), enc_hook=str
        )
        return hashlib.sha256(spelt).hexdigest()

    def launch(self, around: DriverContext, gate: Gate, roots: tuple[Path, ...]) -> OpenCodeLaunch:
        """`roots` is where attempts work. Raises `OpenCodeMissing` if there is no such program."""
        around = with_profile(self.settings, around)
        settings, environ = around.settings(), around.environ()
        check_trusted(around, settings.project)
        program = find_opencode(self.settings.program or settings.opencode.command, environ)
        token = gate.issue_token()
        plain = gated_overlay(around, gate, token=token)
        content = self._content(around, gate, token=token)
        enabled = msgspec.convert(content["enabled_providers"], tuple[str, ...])
        catalogue = needed_models(around, plain)
        start = start_folder(around)
        return OpenCodeLaunch(
            program=program,
            cwd=start,
            env={
                **process_environment(around, plain, program=program, cwd=start),
                "OPENCODE_CONFIG_CONTENT": msgspec.json.encode(content).decode(),
                **self.settings.env,
            },
            password=f"goent_{secrets.token_urlsafe(32)}",  # the shape that is redacted in logs
            token=token,
            fingerprint=self.fingerprint(around, gate, roots),
            start_timeout=self.settings.startup_timeout_seconds,
            sandbox=around.sandbox,
            roots=roots,
            shown=(settings.project,),
            gate_port=gate_port(gate),
            standby="never",
            catalogue=BundledModels(backends=enabled, folder=catalogue.folder),
            hostname=self.settings.hostname,
            port=self.settings.port,
            arguments=self.settings.args,
        )

    def _content(self, around: DriverContext, gate: Gate, *, token: str) -> ConfigTree:
        """Ours, with what the target adds; its own providers, and its model's, are enabled too."""
        plain = gated_overlay(around, gate, token=token)
        content = msgspec.convert(msgspec.to_builtins(plain), ConfigTree)
        if not self.settings.is_hermetic:
            content = _merge_trees(content, {"agent": SUBAGENT_SETTINGS})
        added = dict(self.settings.config)
        if self.settings.mcp:
            added = _merge_trees(added, {"mcp": self.settings.mcp})
        own = msgspec.convert(added.get("provider", {}), dict[str, object])
        enabled = (*plain.enabled_providers, self.backend, *own)
        content["enabled_providers"] = [name for name in dict.fromkeys(enabled) if name]
        if "plugin" in added:  # beside our guard, not in its place
            ours = msgspec.convert(content["plugin"], list[object])
            added["plugin"] = [*msgspec.convert(added["plugin"], list[object]), *ours]
        return _merge_trees(content, added)


def with_profile(told: OpenCodeTargetSettings, around: DriverContext) -> DriverContext:
    """The target's profile, whatever workers have: the user's OpenCode has no say unless the target says so."""
    settings = around.settings()
    config = settings.opencode.config_path if told.profile == "user" else None
    opencode = replace(settings.opencode, profile=told.profile, config_path=config)
    return replace(around, settings=lambda: replace(settings, opencode=opencode))


def _merge_trees(below: ConfigTree, above: Mapping[str, object]) -> ConfigTree:
    """Tables key by key, as OpenCode merges its files; all else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            table = msgspec.convert(old, ConfigTree)
            merged[key] = _merge_trees(table, msgspec.convert(value, ConfigTree, strict=False))
        else:
            merged[key] = value
    return merged


PASSWORD, USERNAME = "OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME"
PASSWORD_REMEDY = f"set {PASSWORD} in the target's `env`"
UNREACHABLE_REMEDY = (
    "start it (`opencode serve --port N`), or leave `base_url` out, and go-ent runs one of its own"
)


class UnobservedServer(ServeProcess):
    """A server whose sessions are listened to one by one, each in its own directory."""

    async def _listen(self) -> None:
        return


class EvalServer(Protocol):
    """A running server, as an attempt sees it."""

    @property
    def client(self) -> OpenCodeClient: ...

    @property
    def gone(self) -> anyio.Event: ...

    @property
    def token(self) -> str: ...

    @property
    def guard(self) -> ProcessGuard | None: ...

    async def is_ending(self) -> bool: ...

    async def crash(self) -> WorkerCrashed: ...


class ForeignServer:
    """One that somebody else runs: it is never stopped, and no call of it passes our gate."""

    token = ""
    guard = None

    def __init__(self, url: str, client: OpenCodeClient) -> None:
        self.client = client
        self.gone = anyio.Event()
        self._url = url

    async def is_ending(self) -> bool:
        return False

    async def crash(self) -> WorkerCrashed:
        return WorkerCrashed(
            f"the OpenCode server at {self._url!r} answers no more: {UNREACHABLE_REMEDY}"
        )


class ServerUse:
    """A server for the time of one attempt; directories are made ready `booting` at a time."""

    def __init__(self, server: EvalServer, booting: anyio.CapacityLimiter) -> None:
        self.server = server
        self.booting = booting


class EvalServers:
    """All servers of a run. They exist only inside `running`."""

    def __init__(
        self,
        tasks: TaskGroup,
        around: DriverContext,
        accounts: Accounts,
        *,
        owner: str,
        secrets: Callable[[], Collection[str]],
    ) -> None:
        self.surroundings = around
        self.accounts = accounts
        self.secrets = secrets
        self.care = CarePolicy()
        self._tasks = tasks
        self._owner = owner
        self._pools: dict[str, ProcessPool] = {}
        self._ports: dict[int, str] = {}  # those that were asked for, each by whose server has it

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        around: DriverContext,
        accounts: Accounts,
        *,
        owner: str,
        secrets: Callable[[], Collection[str]] = tuple,
    ) -> "AsyncGenerator[EvalServers]":
        """On leaving, however it is left, every server that was started is gone, and what it started."""
        async with task_group() as tasks:
            try:
                yield cls(tasks, around, accounts, owner=owner, secrets=secrets)
            finally:
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def use(self, terms: ServerSettings, cwd: Path) -> AsyncGenerator[ServerUse]:
        """Raises `WorkerError` or `EnvironmentTrouble` if there is none and none can be had."""
        if terms.settings.base_url is not None:
            async with self._reach_foreign(terms.settings, terms.settings.base_url) as outside:
                yield ServerUse(outside, anyio.CapacityLimiter(COLD_STARTS))
            return
        gate = self.accounts.gate
        await self.surroundings.sandbox.level()
        roots = self._roots(cwd)
        fingerprint = terms.fingerprint(self.surroundings, gate, roots)
        if fingerprint not in self._pools:
            # One each: a pool ends what is idle and not its newest.
            self._pools[fingerprint] = ProcessPool(
                self._tasks, gate, self._owner, self._start, care=lambda: self.care
            )
        async with self._pools[fingerprint].use(
            cwd,
            fingerprint,
            lambda: terms.launch(self.surroundings, gate, roots),
            dedicated=not terms.settings.shared_server,
        ) as slot:
            yield ServerUse(_as_serve_process(await slot.process()), slot.booting)

    def _roots(self, cwd: Path) -> tuple[Path, ...]:
        """Where a server can write: where attempts usually work, or else in this one's folder."""
        usual = state_path(self.surroundings.environ()) / "evals"
        writable = self.surroundings.settings().sandbox.writable
        writes = self.surroundings.sandbox.writable_folders(cwd)
        return (usual,) if all(is_below(path, (usual, *writable)) for path in writes) else writes

    @asynccontextmanager
    async def _start(self, launch: OpenCodeLaunch, mark: str) -> AsyncGenerator[ServeProcess]:
        """The port that was asked for is the first server's; a second one of the same settings has another."""
        port = launch.port
        has_it = self._ports.get(port)
        if has_it not in (None, launch.fingerprint):
            raise WorkerCrashed(
                f"port {port} is that of another target's server, whose settings are others: "
                "set another `port`, or none"
            )
        if not port or has_it:
            async with UnobservedServer.running(replace(launch, port=0), mark) as server:
                yield server
            return
        self._ports[port] = launch.fingerprint
        try:
            async with UnobservedServer.running(launch, mark) as server:
                yield server
        finally:
            del self._ports[port]

    @asynccontextmanager
    async def _reach_foreign(
        self, told: OpenCodeTargetSettings, url: str
    ) -> AsyncGenerator[ForeignServer]:
        env = {**self.surroundings.environ(), **told.env}
        user, password = env.get(USERNAME) or USER, env.get(PASSWORD, "")
        async with OpenCodeClient.at(url, password, user=user) as client:
            await check_server(
                client, f"base_url {url!r}", if_refused=PASSWORD_REMEDY, remedy=UNREACHABLE_REMEDY
            )
            yield ForeignServer(url, client)


def _as_serve_process(process: HostProcess) -> ServeProcess:
    assert isinstance(process, ServeProcess)
    return process
