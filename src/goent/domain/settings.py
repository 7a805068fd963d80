"""The settings of a project, and the acts in them that need the user's trust."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final, Literal

from goent.domain.sandbox_port import SandboxSettings
from goent.domain.types import Dialect, Isolation, Method, Preset, Provider, Secret, Value

ActKind = Literal[
    "program", "address", "permission", "spending", "plugin", "opencode", "git", "evaluation"
]


class Material(Value, frozen=True, kw_only=True):
    """A part of an act: a setting or a file, with the digest of its content."""

    name: str
    digest: str


class Act(Value, frozen=True, kw_only=True):
    """One thing that a project's files would do. `digest` identifies exactly this content.

    `says` describes it to a person. `names` are providers and agents that do not exist without it. An act
    without a digest cannot be approved, because its content is unknown.
    """

    file: str
    key: str
    kind: ActKind
    says: str
    digest: str
    names: tuple[str, ...] = ()
    materials: tuple[Material, ...] = ()

    @property
    def place(self) -> str:
        """The file, and the setting in it."""
        return f"{self.file}: {self.key}" if self.key else self.file


def content_digest(content: bytes) -> str:
    """The digest of a content."""
    return hashlib.sha256(content).hexdigest()


def make_act(
    *,
    file: str,
    key: str = "",
    kind: ActKind,
    says: str,
    materials: Iterable[Material] = (),
    names: tuple[str, ...] = (),
) -> Act:
    """An act whose digest covers its kind, key and materials, wherever they lie."""
    parts = tuple(materials)
    told = [kind, key, *(text for part in parts for text in (part.name, part.digest))]
    return Act(
        file=file,
        key=key,
        kind=kind,
        says=says,
        digest=content_digest(json.dumps(told).encode()),
        names=names,
        materials=parts,
    )


def list_places(acts: "tuple[Act, ...]", most: int = 3) -> str:
    """The places of the first acts, and the number of others."""
    places = list(dict.fromkeys(act.place for act in acts))
    more = f", and {len(places) - most} more" if len(places) > most else ""
    return ", ".join(places[:most]) + more


def withheld_warnings(acts: "tuple[Act, ...]") -> tuple[str, ...]:
    """One line for what is ignored until the user trusts it; none if nothing is."""
    if not acts:
        return ()
    return (f"ignored until you trust it: {list_places(acts)}; see `go-ent trust`",)


PermissionAction = Literal["allow", "ask", "deny"]
StandbyMode = Literal["auto", "always", "never"]
DirectPolicy = Literal["refuse", "stop"]


_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def is_secret_header(header: str) -> bool:
    """Whether a header of this name usually holds a key."""
    return bool(_SECRET_HEADER.search(header))


class Backend(Value, frozen=True, kw_only=True):
    """An endpoint that serves models. go-ent makes the calls if it has the key or needs none.

    `key_env` names the variable with the key; `key` is one found in `opencode.json`, as are `headers`, which
    every call carries; `header_envs` are the variables in them. A `local` one is free, and needs no key.
    """

    id: str
    dialect: Dialect = "openai"
    base_url: str | None = None
    key_env: str | None = None
    key: Secret | None = None
    npm: str | None = None
    source: str = ""
    local: bool = False
    headers: tuple[tuple[str, Secret], ...] = ()
    header_envs: tuple[str, ...] = ()

    def is_held(self, environ: Mapping[str, str]) -> bool:
        """Whether go-ent makes the calls itself: it has the key, or the server needs none."""
        return self._keyless or bool(self.resolve_key(environ))

    def lacks_key(self, environ: Mapping[str, str]) -> bool:
        """Whether a key variable is named but not set."""
        return bool(self.key_env) and not self.resolve_key(environ)

    @property
    def _keyless(self) -> bool:
        return self.local and not self.key_env and not self.key

    def secrets(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Values that must never be stored or logged."""
        private = (secret.reveal() for name, secret in self.headers if is_secret_header(name))
        key = self.resolve_key(environ)
        return (*((key,) if key else ()), *private)

    def resolve_key(self, environ: Mapping[str, str]) -> str | None:
        """The key for this backend, if go-ent has one."""
        if self.key_env and environ.get(self.key_env):
            return environ[self.key_env]
        return self.key.reveal() if self.key else None


class PermissionRule(Value, frozen=True, kw_only=True):
    """A permission rule; `tool` and `pattern` as in OpenCode. The last match counts."""

    tool: str
    pattern: str = "*"
    action: PermissionAction


class PermissionSettings(Value, frozen=True, kw_only=True):
    """The `permissions:` block. Without a `preset`, the isolation decides."""

    preset: Preset | None = None
    rules: tuple[PermissionRule, ...] = ()
    timeout_s: float = 300.0


class OpenCodeSettings(Value, frozen=True, kw_only=True):
    """How OpenCode is found and started. `serve_url` is a server that go-ent does not start."""

    command: str | None = None
    config_path: Path | None = None
    profile: Literal["user", "hermetic"] = "user"
    project_config: bool = False
    warm: bool = True
    standby: StandbyMode = "auto"
    start_timeout_s: float = 60.0
    serve_url: str | None = None
    serve_password_env: str | None = None


class LimitSettings(Value, frozen=True, kw_only=True):
    """Time limits, and the number of parallel workers."""

    workers: int = 20
    idle_close_s: float = 1800.0
    cancel_grace_s: float = 10.0
    turn_timeout_s: float | None = None
    stall_s: float = 180.0
    verify_s: float = 600.0


class DaemonSettings(Value, frozen=True, kw_only=True):
    """How long a daemon without workers and clients keeps running."""

    idle_exit_s: float = 1800.0


class RoutingRule(Value, frozen=True, kw_only=True):
    """One rule of `routing.yaml`. An omitted condition matches everything."""

    id: str = ""
    priority: int | None = None
    types: tuple[str, ...] = ()
    complexity: tuple[str, ...] = ()
    min_files: int | None = None
    min_context: int | None = None
    keywords: tuple[str, ...] = ()
    max_cost: float | None = None
    method: Method | None = None
    provider: str | None = None
    model: str | None = None


class HealthSettings(Value, frozen=True, kw_only=True):
    """The `health:` block of `providers.yaml`.

    A provider is down after `max_retries` consecutive failures, at first for `retry_delay` seconds. With
    `probe`, one that is not known to be healthy is probed every `check_interval`. A call fails after
    `silence_timeout` seconds without a byte; None means 300, or 120 if there is another provider.
    """

    check_interval: float = 30.0
    worker_timeout: float = 300.0
    max_retries: int = 3
    retry_delay: float = 5.0
    probe: bool = False
    silence_timeout: float | None = None


class BudgetSettings(Value, frozen=True, kw_only=True):
    """The `budget:` block, in USD.

    `direct` applies to workers whose calls bypass go-ent, if there is a hard limit: they are refused, or
    stopped at the next step that they report.
    """

    per_task: Decimal | None = None
    per_day: Decimal | None = None
    per_project: Decimal | None = None
    hard: bool = False
    direct: DirectPolicy = "refuse"


class AgentSettings(Value, frozen=True, kw_only=True):
    """An ACP agent of another vendor that runs workers."""

    command: tuple[str, ...]
    models: tuple[str, ...] = ()
    start_timeout_s: float = 60.0
    auth_method: str = ""


class OwnAgentSettings(Value, frozen=True, kw_only=True):
    """go-ent's own agent: folders its commands may write besides the session's."""

    writable: tuple[Path, ...] = ()


class Settings(Value, frozen=True, kw_only=True):
    """All settings of one project.

    `default_chosen`: the default provider is set explicitly, not inferred. `warnings` are about settings that
    are probably unintended. `written` are the providers of `providers.yaml`. `withheld` is what the project's
    own files would do but is not approved.
    """

    project: Path
    providers: tuple[Provider, ...] = ()
    backends: Mapping[str, Backend] = {}
    default_provider: str | None = None
    default_chosen: bool = False
    defaults: Mapping[str, str] = {}
    rules: tuple[RoutingRule, ...] = ()
    agents: Mapping[str, AgentSettings] = {}
    agent: OwnAgentSettings = OwnAgentSettings()
    health: HealthSettings = HealthSettings()
    budget: BudgetSettings = BudgetSettings()
    failover_pinned: bool = False
    isolation: Isolation = "auto"
    permissions: PermissionSettings = PermissionSettings()
    opencode: OpenCodeSettings = OpenCodeSettings()
    sandbox: SandboxSettings = SandboxSettings()
    limits: LimitSettings = LimitSettings()
    daemon: DaemonSettings = DaemonSettings()
    files: tuple[Path, ...] = ()
    usual_keys: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    learning: bool = True
    withheld: tuple[Act, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The environment variables with keys: requested from clients, and withheld from workers."""
        named = {b.key_env for b in self.backends.values() if b.key_env}
        called = (b for b in self.backends.values() if b.local or b.key_env or b.key)
        named |= {name for backend in called for name in backend.header_envs}
        password = self.opencode.serve_password_env
        return tuple(sorted(named | set(self.usual_keys) | ({password} if password else set())))
