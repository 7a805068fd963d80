"""What does `config.yaml` say? Everything but providers and routing rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from goent.config.fields import Fields, Mention, empty_reason, read_url, read_variable
from goent.config.tree import Place, Scalar
from goent.domain.sandbox import Network, Reading, SandboxSettings, Strictness
from goent.domain.settings import (
    Action,
    Agent,
    Budget,
    DaemonSettings,
    Direct,
    Limits,
    OpenCodeSettings,
    PermissionRule,
    PermissionSettings,
    Standby,
)
from goent.domain.types import Isolation, Preset, Value

PRESETS: Final[tuple[Preset, ...]] = get_args(Preset)
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
STANDBYS: Final[tuple[Standby, ...]] = get_args(Standby)
DIRECTS: Final[tuple[Direct, ...]] = get_args(Direct)
LEVELS: Final[tuple[Strictness, ...]] = get_args(Strictness)
READINGS: Final[tuple[Reading, ...]] = get_args(Reading)
NETWORKS: Final[tuple[Network, ...]] = get_args(Network)
PROFILES: Final[tuple[Literal["user", "hermetic"], ...]] = ("user", "hermetic")

# OpenCode asks for these under another name, so a rule for them would hold nothing back.
_ASKED_AS_EDIT: Final = ("write", "patch", "multiedit", "apply_patch")


class GeneralFile(Value, frozen=True, kw_only=True):
    """Paths are not resolved yet: `config_path` (of opencode), `writable` (of agent), and the sandbox's."""

    default_provider: Mention | None
    permissions: PermissionSettings
    isolation: Isolation
    budget: Budget
    failover_pinned: bool
    limits: Limits
    agents: Mapping[str, Agent]
    agent_places: Mapping[str, Place]
    writable: tuple[str, ...]
    daemon: DaemonSettings
    opencode: OpenCodeSettings
    config_path: Mention | None
    sandbox: SandboxSettings
    learning: bool


def read_general(fields: Fields) -> GeneralFile:
    opencode, config_path = fields.section("opencode", _opencode)
    agents = fields.tables("agents", _agent)
    general = GeneralFile(
        default_provider=fields.mention("default_provider"),
        permissions=fields.section("permissions", _permissions),
        isolation=fields.choice("isolation", ISOLATIONS, "auto"),
        budget=fields.section("budget", _budget),
        failover_pinned=fields.section("failover", lambda f: f.flag("pinned", default=False)),
        limits=fields.section("limits", _limits),
        agents={name: agent for name, (agent, _) in agents.items()},
        agent_places={name: place for name, (_, place) in agents.items()},
        writable=fields.section("agent", lambda f: f.texts("writable")),
        daemon=fields.section("daemon", _daemon),
        opencode=opencode,
        config_path=config_path,
        sandbox=_sandbox_block(fields),
        learning=fields.flag("learning", default=True),
    )
    fields.section("evals", lambda f: f.texts("guideline_patterns"))  # taken by evals/files
    return general


def _sandbox_block(fields: Fields) -> SandboxSettings:
    """`sandbox: off` for short, or a table."""
    if fields.shape("sandbox") == "value":
        return SandboxSettings(level="auto" if _is_on(fields) else "off")
    return fields.section("sandbox", _sandbox)


def _is_on(fields: Fields) -> bool:
    node = fields.node("sandbox")
    off = isinstance(node, Scalar) and node.text.casefold() in ("off", "false", "no")
    if not off:
        fields.mistake("sandbox", "expected off, or a table with level, writable, read and network")
    return not off


def _sandbox(fields: Fields) -> SandboxSettings:
    normal = SandboxSettings()
    return SandboxSettings(
        level=fields.choice("level", LEVELS, normal.level),
        writable=tuple(map(Path, fields.texts("writable", _place_reason))),
        read=fields.choice("read", READINGS, normal.read),
        readable=tuple(map(Path, fields.texts("readable", _place_reason))),
        network=fields.choice("network", NETWORKS, normal.network),
    )


def _place_reason(path: str) -> str | None:
    """Why it names no place; None if it does."""
    if path.startswith("$") or (path.startswith("~") and path != "~" and path[1] != "/"):
        return f"{path!r} is not expanded here; write ~/... for your home, or the full path"
    return empty_reason(path)


def _permissions(fields: Fields) -> PermissionSettings:
    normal = PermissionSettings()
    return PermissionSettings(
        preset=fields.choice("preset", PRESETS, None),
        timeout_s=fields.amount("timeout_s", normal.timeout_s, least=1),
        rules=fields.rows("rules", _permission_rule),
    )


def _permission_rule(fields: Fields) -> PermissionRule | None:
    tool = fields.needed("tool", "name a tool such as edit or bash, or '*'")
    if tool in _ASKED_AS_EDIT:
        fields.mistake("tool", f"OpenCode asks for {tool!r} as 'edit'; write 'edit'")
    pattern = fields.text("pattern", "*")
    if not fields.has("action"):
        fields.mistake("action", f"is missing; one of {', '.join(ACTIONS)}")
    action: Action | None = fields.choice("action", ACTIONS, None)
    return PermissionRule(tool=tool, pattern=pattern, action=action) if action else None


def _budget(fields: Fields) -> Budget:
    return Budget(
        per_task=fields.number("per_task", None),
        per_day=fields.number("per_day", None),
        per_project=fields.number("per_project", None),
        hard=fields.flag("hard", default=False),
        direct=fields.choice("direct", DIRECTS, "refuse"),
    )


def _limits(fields: Fields) -> Limits:
    normal = Limits()
    return Limits(
        workers=fields.integer("workers", normal.workers, least=1),
        idle_close_s=fields.amount("idle_close_s", normal.idle_close_s, least=1),
        cancel_grace_s=fields.amount("cancel_grace_s", normal.cancel_grace_s),
        turn_timeout_s=fields.amount("turn_timeout_s", normal.turn_timeout_s, least=1),
        stall_s=fields.amount("stall_s", normal.stall_s, least=1),
        verify_s=fields.amount("verify_s", normal.verify_s, least=1),
    )


def _agent(fields: Fields) -> tuple[Agent, Place] | None:
    command = fields.texts("command")
    if fields.shape("command") != "list":
        fields.mistake("command", "must be a list of words, such as [gemini, --acp]")
    models = fields.texts("models")
    patience = fields.amount("start_timeout_s", 60.0, least=1)
    login = fields.text("auth_method", "")
    agent = Agent(command=command, models=models, start_timeout_s=patience, auth_method=login)
    return (agent, fields.place) if command else None


def _daemon(fields: Fields) -> DaemonSettings:
    normal = DaemonSettings()
    return DaemonSettings(idle_exit_s=fields.amount("idle_exit_s", normal.idle_exit_s, least=1))


def _opencode(fields: Fields) -> tuple[OpenCodeSettings, Mention | None]:
    normal = OpenCodeSettings()
    url, password = read_url(fields, "serve_url"), read_variable(fields, "serve_password_env")
    settings = OpenCodeSettings(
        command=fields.text("command", None),
        profile=fields.choice("profile", PROFILES, normal.profile),
        project_config=fields.flag("project_config", default=normal.project_config),
        warm=fields.flag("warm", default=normal.warm),
        standby=fields.choice("standby", STANDBYS, normal.standby),
        start_timeout_s=fields.amount("start_timeout_s", normal.start_timeout_s, least=1),
        serve_url=url.name if url else None,
        serve_password_env=password.name if password else None,
    )
    return settings, fields.mention("config_path")
