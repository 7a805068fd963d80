"""Reads `config.yaml`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from goent.config.settings_tree import (
    Mention,
    Scalar,
    SettingPlace,
    SettingsFields,
    empty_reason,
    read_url,
    read_variable,
)
from goent.domain.sandbox_port import NetworkAccess, ReadAccess, SandboxSettings, SandboxStrictness
from goent.domain.settings import (
    AgentSettings,
    BudgetSettings,
    DaemonSettings,
    DirectPolicy,
    LimitSettings,
    OpenCodeSettings,
    PermissionAction,
    PermissionRule,
    PermissionSettings,
    StandbyMode,
)
from goent.domain.types import Isolation, Preset, Value

PRESETS: Final[tuple[Preset, ...]] = get_args(Preset)
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)
ACTIONS: Final[tuple[PermissionAction, ...]] = get_args(PermissionAction)
STANDBYS: Final[tuple[StandbyMode, ...]] = get_args(StandbyMode)
DIRECTS: Final[tuple[DirectPolicy, ...]] = get_args(DirectPolicy)
LEVELS: Final[tuple[SandboxStrictness, ...]] = get_args(SandboxStrictness)
READINGS: Final[tuple[ReadAccess, ...]] = get_args(ReadAccess)
NETWORKS: Final[tuple[NetworkAccess, ...]] = get_args(NetworkAccess)
PROFILES: Final[tuple[Literal["user", "hermetic"], ...]] = ("user", "hermetic")

# OpenCode asks permission for these as `edit`, so a rule for them would have no effect.
_EDIT_ALIASES: Final = ("write", "patch", "multiedit", "apply_patch")


class GeneralFile(Value, frozen=True, kw_only=True):
    """The whole file. `config_path`, `writable` and the sandbox's paths are not resolved yet."""

    default_provider: Mention | None
    permissions: PermissionSettings
    isolation: Isolation
    budget: BudgetSettings
    failover_pinned: bool
    limits: LimitSettings
    agents: Mapping[str, AgentSettings]
    agent_places: Mapping[str, SettingPlace]
    writable: tuple[str, ...]
    daemon: DaemonSettings
    opencode: OpenCodeSettings
    config_path: Mention | None
    sandbox: SandboxSettings
    learning: bool


def read_general(fields: SettingsFields) -> GeneralFile:
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
        sandbox=_sandbox(fields),
        learning=fields.flag("learning", default=True),
    )
    fields.section("evals", lambda f: f.texts("guideline_patterns"))  # taken by evals/files
    return general


def _sandbox(fields: SettingsFields) -> SandboxSettings:
    """`sandbox: off`, or a table."""
    node = fields.node("sandbox")
    if not isinstance(node, Scalar):
        return fields.section("sandbox", _sandbox_table)
    if node.text.casefold() in ("off", "false", "no"):
        return SandboxSettings(level="off")
    expected = "expected off, or a table with level, writable, read and network"
    fields.note_mistake("sandbox", expected)
    return SandboxSettings()


def _sandbox_table(fields: SettingsFields) -> SandboxSettings:
    normal = SandboxSettings()
    return SandboxSettings(
        level=fields.choice("level", LEVELS, normal.level),
        writable=tuple(map(Path, fields.texts("writable", _path_reason))),
        read=fields.choice("read", READINGS, normal.read),
        readable=tuple(map(Path, fields.texts("readable", _path_reason))),
        network=fields.choice("network", NETWORKS, normal.network),
    )


def _path_reason(path: str) -> str | None:
    """Why the path is refused; None if it is not."""
    if path.startswith("$") or (path.startswith("~") and path != "~" and path[1] != "/"):
        return f"{path!r} is not expanded here; write ~/... for your home, or the full path"
    return empty_reason(path)


def _permissions(fields: SettingsFields) -> PermissionSettings:
    normal = PermissionSettings()
    return PermissionSettings(
        preset=fields.choice("preset", PRESETS, None),
        timeout_s=fields.amount("timeout_s", normal.timeout_s, least=1),
        rules=fields.rows("rules", _permission_rule),
    )


def _permission_rule(fields: SettingsFields) -> PermissionRule | None:
    tool = fields.required_text("tool", "name a tool such as edit or bash, or '*'")
    if tool in _EDIT_ALIASES:
        fields.note_mistake("tool", f"OpenCode asks for {tool!r} as 'edit'; write 'edit'")
    pattern = fields.text("pattern", "*")
    if not fields.has("action"):
        fields.note_mistake("action", f"is missing; one of {', '.join(ACTIONS)}")
    action: PermissionAction | None = fields.choice("action", ACTIONS, None)
    return PermissionRule(tool=tool, pattern=pattern, action=action) if action else None


def _budget(fields: SettingsFields) -> BudgetSettings:
    return BudgetSettings(
        per_task=fields.number("per_task", None),
        per_day=fields.number("per_day", None),
        per_project=fields.number("per_project", None),
        hard=fields.flag("hard", default=False),
        direct=fields.choice("direct", DIRECTS, "refuse"),
    )


def _limits(fields: SettingsFields) -> LimitSettings:
    normal = LimitSettings()
    return LimitSettings(
        workers=fields.integer("workers", normal.workers, least=1),
        idle_close_s=fields.amount("idle_close_s", normal.idle_close_s, least=1),
        cancel_grace_s=fields.amount("cancel_grace_s", normal.cancel_grace_s),
        turn_timeout_s=fields.amount("turn_timeout_s", normal.turn_timeout_s, least=1),
        stall_s=fields.amount("stall_s", normal.stall_s, least=1),
        verify_s=fields.amount("verify_s", normal.verify_s, least=1),
    )


def _agent(fields: SettingsFields) -> tuple[AgentSettings, SettingPlace] | None:
    command = fields.texts("command")
    if fields.shape("command") != "list":
        fields.note_mistake("command", "must be a list of words, such as [gemini, --acp]")
    models = fields.texts("models")
    patience = fields.amount("start_timeout_s", 60.0, least=1)
    login = fields.text("auth_method", "")
    agent = AgentSettings(
        command=command, models=models, start_timeout_s=patience, auth_method=login
    )
    return (agent, fields.place) if command else None


def _daemon(fields: SettingsFields) -> DaemonSettings:
    normal = DaemonSettings()
    return DaemonSettings(idle_exit_s=fields.amount("idle_exit_s", normal.idle_exit_s, least=1))


def _opencode(fields: SettingsFields) -> tuple[OpenCodeSettings, Mention | None]:
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
