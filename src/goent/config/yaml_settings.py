"""Reads `config.yaml`, `routing.yaml` and `tasks.yaml` into values.

What only the daemon can know, such as which providers there are, it says itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Final, Literal, get_args

from goent.config.file_syntax import parse_yaml
from goent.config.provider_settings import METHODS, TASK_TYPES
from goent.config.settings_tree import (
    Mention,
    Problems,
    Scalar,
    SettingPlace,
    SettingsFields,
    empty_reason,
    read_table,
    read_url,
    read_variable,
    suggestion,
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
    RoutingRule,
    StandbyMode,
)
from goent.domain.swarm_messages import SwarmSpawnRequest, SwarmTask
from goent.domain.types import Isolation, Preset, Value
from goent.domain.verification import blank_reason

PRESETS: Final[tuple[Preset, ...]] = get_args(Preset)
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)
ACTIONS: Final[tuple[PermissionAction, ...]] = get_args(PermissionAction)
STANDBYS: Final[tuple[StandbyMode, ...]] = get_args(StandbyMode)
DIRECTS: Final[tuple[DirectPolicy, ...]] = get_args(DirectPolicy)
LEVELS: Final[tuple[SandboxStrictness, ...]] = get_args(SandboxStrictness)
READINGS: Final[tuple[ReadAccess, ...]] = get_args(ReadAccess)
NETWORKS: Final[tuple[NetworkAccess, ...]] = get_args(NetworkAccess)
PROFILES: Final[tuple[Literal["user", "hermetic"], ...]] = ("user", "hermetic")

# OpenCode asks for these under another name, so a rule for them would hold nothing back.
_EDIT_ALIASES: Final = ("write", "patch", "multiedit", "apply_patch")


class GeneralFile(Value, frozen=True, kw_only=True):
    """Paths are not resolved yet: `config_path` (of opencode), `writable` (of agent), and the sandbox's."""

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
        sandbox=_sandbox_block(fields),
        learning=fields.flag("learning", default=True),
    )
    fields.section("evals", lambda f: f.texts("guideline_patterns"))  # taken by evals/files
    return general


def _sandbox_block(fields: SettingsFields) -> SandboxSettings:
    """`sandbox: off` for short, or a table."""
    if fields.shape("sandbox") == "value":
        return SandboxSettings(level="auto" if _is_sandbox_on(fields) else "off")
    return fields.section("sandbox", _sandbox)


def _is_sandbox_on(fields: SettingsFields) -> bool:
    node = fields.node("sandbox")
    off = isinstance(node, Scalar) and node.text.casefold() in ("off", "false", "no")
    if not off:
        fields.note_mistake(
            "sandbox", "expected off, or a table with level, writable, read and network"
        )
    return not off


def _sandbox(fields: SettingsFields) -> SandboxSettings:
    normal = SandboxSettings()
    return SandboxSettings(
        level=fields.choice("level", LEVELS, normal.level),
        writable=tuple(map(Path, fields.texts("writable", _path_reason))),
        read=fields.choice("read", READINGS, normal.read),
        readable=tuple(map(Path, fields.texts("readable", _path_reason))),
        network=fields.choice("network", NETWORKS, normal.network),
    )


def _path_reason(path: str) -> str | None:
    """Why it names no place; None if it does."""
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


COMPLEXITIES: Final[Mapping[str, str]] = {
    name: name for name in ("trivial", "simple", "medium", "complex", "high")
}
_THRESHOLD: Final = re.compile(r"(>=?)?\s*(\d{1,12})")
_EVERYTHING: Final = "to match every task write `match: {default: true}`"


class RuleEntry(Value, frozen=True, kw_only=True):
    """A rule, where it is, and where it names its provider."""

    rule: RoutingRule
    place: SettingPlace
    provider: Mention | None = None


class _Match(Value, frozen=True, kw_only=True):
    types: tuple[str, ...] = ()
    complexity: tuple[str, ...] = ()
    min_files: int | None = None
    min_context: int | None = None
    keywords: tuple[str, ...] = ()
    max_cost: float | None = None


class _Action(Value, frozen=True, kw_only=True):
    target: RoutingRule
    provider: Mention | None


def read_routing(fields: SettingsFields) -> tuple[RuleEntry, ...] | None:
    """The rules in order of evaluation; None where the file has none of either shape."""
    shape = fields.one_of("routing_rules", "rules")
    in_file_order = fields.rows("routing_rules", _flat_rule)
    by_priority = sorted(fields.rows("rules", _nested_rule), key=lambda r: -(r.rule.priority or 0))
    if shape is None:
        return None
    for rule in (*in_file_order, *by_priority):
        _note_duplicate_id(rule, (*in_file_order, *by_priority), fields)
    return in_file_order if shape == "routing_rules" else tuple(by_priority)


def _note_duplicate_id(rule: RuleEntry, rules: Iterable[RuleEntry], fields: SettingsFields) -> None:
    """An id belongs to one rule; the later one in the file is told of."""
    first = next(other for other in rules if other.rule.id == rule.rule.id)
    places = sorted((first.place, rule.place), key=lambda place: place.line)
    if rule.rule.id and first is not rule:
        earlier, later = places
        fields.problems.note(
            later.entry("id"), f"{rule.rule.id!r} is the id of another rule too ({earlier})"
        )


def unreachable_rules(rules: Sequence[RuleEntry]) -> Iterator[str]:
    """Rules that an earlier one leaves nothing to, as long as its provider can be had."""
    for at, later in enumerate(rules):
        earlier = next((e for e in rules[:at] if _covers(e.rule, later.rule)), None)
        if earlier:
            name = f"rule {earlier.rule.id!r}" if earlier.rule.id else "the rule"
            yield (
                f"{later.place}: can never match: {name} at line {earlier.place.line} comes before "
                "it and matches all that it does; change their order, or remove one"
            )


def _covers(earlier: RoutingRule, later: RoutingRule) -> bool:
    return (
        earlier.max_cost is None
        and _wider(earlier.types, later.types)
        and _wider(earlier.complexity, later.complexity)
        and _wider(earlier.keywords, later.keywords)
        and _lower(earlier.min_files, later.min_files)
        and _lower(earlier.min_context, later.min_context)
    )


def _wider(earlier: tuple[str, ...], later: tuple[str, ...]) -> bool:
    return not earlier or (bool(later) and set(later) <= set(earlier))


def _lower(earlier: int | None, later: int | None) -> bool:
    return not earlier or (later is not None and later >= earlier)


def _flat_rule(fields: SettingsFields) -> RuleEntry:
    return _build_rule(fields, action=_action(fields), priority=None)


def _nested_rule(fields: SettingsFields) -> RuleEntry:
    if not fields.has("action"):
        fields.note_mistake("action", "is missing; name a method, a provider or a model")
    priority = fields.integer("priority", None, least=-(10**6))
    return _build_rule(fields, action=fields.section("action", _action), priority=priority)


def _build_rule(fields: SettingsFields, *, action: _Action, priority: int | None) -> RuleEntry:
    if fields.has("match"):
        match = fields.section("match", _match)
    else:
        match = _Match()
        fields.note_mistake("match", f"is missing; {_EVERYTHING}")
    return RuleEntry(
        rule=RoutingRule(
            id=fields.text("id", ""),
            priority=priority,
            types=match.types,
            complexity=match.complexity,
            min_files=match.min_files,
            min_context=match.min_context,
            keywords=match.keywords,
            max_cost=match.max_cost,
            method=action.target.method,
            provider=action.target.provider,
            model=action.target.model,
        ),
        place=fields.place,
        provider=action.provider,
    )


def _action(fields: SettingsFields) -> _Action:
    if not any([fields.has("method"), fields.has("provider"), fields.has("model")]):
        fields.note_mistake("provider", "is missing; a rule names a method, a provider or a model")
    provider = fields.mention("provider")
    target = RoutingRule(
        method=fields.choice("method", METHODS, None),
        provider=provider.name if provider else None,
        model=fields.text("model", None),
    )
    return _Action(target=target, provider=provider)


def _match(fields: SettingsFields) -> _Match:
    everything = fields.flag("default", default=False)
    conditions = [key for key in fields.keys if key != "default"]
    if everything and conditions:
        fields.note_mistake("default", f"matches every task, so {conditions[0]!r} means nothing")
    if not everything and not conditions:
        fields.note_mistake("default", f"matches no task; {_EVERYTHING}")
    cost = fields.number("max_cost", None)
    return _Match(
        types=_known_names(fields, "type", TASK_TYPES),
        complexity=_known_names(fields, "complexity", COMPLEXITIES),
        min_files=_threshold(fields, "files", "file_count"),
        min_context=_threshold(fields, "context_tokens", "context_size"),
        keywords=fields.texts("keywords"),
        max_cost=None if cost is None else float(cost),
    )


def _known_names(fields: SettingsFields, key: str, names: Mapping[str, str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for mention in fields.mentions(key):
        name = mention.name.lower()
        if name in names:
            found[names[name]] = None
        else:
            message = f"unknown {key} {mention.name!r}; {suggestion(name, names)}"
            fields.problems.note(mention.place, message)
    return tuple(found)


def _threshold(fields: SettingsFields, *spellings: str) -> int | None:
    """`3`, `">=3"` and `">2"` are the same."""
    key = fields.one_of(*spellings)
    written = fields.text(key, None) if key else None
    if key is None or written is None:
        return None
    match = _THRESHOLD.fullmatch(written)
    if match is None:
        fields.note_mistake(key, f"{written!r} is no threshold such as 3, '>=3' or '>2'")
        return None
    sign, figure = match.groups()
    return int(figure) + (sign == ">")


MAX_CONCURRENCY: Final = 100
MAX_RETRIES: Final = 5
MAX_NAME_LENGTH: Final = 60
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]*")
_LETTERS: Final = "letters, digits, '_', '.' and '-'"


class _TaskEntry(Value, frozen=True, kw_only=True):
    """A task, where it is, and where it names others."""

    task: SwarmTask
    place: SettingPlace
    after: tuple[Mention, ...]


def read_tasks(text: str, file: str) -> SwarmSpawnRequest:
    """The swarm that the text asks for; a `ConfigError` has every mistake on a line of its own."""
    problems = Problems()
    tree = parse_yaml(text, SettingPlace(file=file), problems)
    request = None
    if not problems.unreadable:
        request = read_table(tree, _swarm, problems)
    problems.raise_all()
    assert request, "what cannot be read is a problem"
    return request


def _swarm(fields: SettingsFields) -> SwarmSpawnRequest:
    tasks = fields.rows("tasks", _task)
    if not fields.has("tasks"):
        remedy = "list what is to be done: tasks: [{id: …, task: …}]"
        fields.note_mistake("tasks", f"is missing; {remedy}")
    elif fields.shape("tasks") == "list" and not tasks:
        fields.note_mistake("tasks", "has no task; write at least one {id: …, task: …}")
    _check_names(tasks, fields.problems)
    return SwarmSpawnRequest(
        tasks=tuple(task.task for task in tasks),
        swarm=_swarm_name(fields),
        budget_usd=_positive_amount(fields, "budget_usd"),
        concurrency=_bounded_integer(fields, "concurrency", MAX_CONCURRENCY, least=1),
        isolation=fields.choice("isolation", ISOLATIONS, "auto"),
        permissions=fields.choice("permissions", PRESETS, None),
        verify=fields.texts("verify", refused=blank_reason),
        cwd=fields.text("cwd", None),
        uncommitted=fields.flag("uncommitted", default=False),
        carry=fields.texts("carry"),
        retries=_bounded_integer(fields, "retries", MAX_RETRIES, least=0) or 0,
    )


def _task(fields: SettingsFields) -> _TaskEntry:
    name = fields.required_text("id", "give it a short name, such as 'api'")
    if name and not _ID.fullmatch(name):
        message = f"{name!r} is no id: {_LETTERS}, beginning with a letter or a digit"
        fields.note_mistake("id", message)
    after = fields.mentions("after")
    task = SwarmTask(
        id=name,
        prompt=fields.required_text(
            fields.one_of("task", "prompt") or "task",
            "say the whole task: its worker sees nothing else",
        ),
        provider=fields.text("provider", None),
        model=fields.text("model", None),
        method=fields.choice("method", METHODS, None),
        files=fields.texts("files"),
        after=tuple(mention.name for mention in after),
        verify=fields.texts("verify", refused=blank_reason),
        isolation=fields.choice("isolation", ISOLATIONS, None),
        permissions=fields.choice("permissions", PRESETS, None),
        budget_usd=_positive_amount(fields, "budget_usd"),
        timeout_s=_positive_amount(fields, "timeout_s"),
        allow_fallback=_optional_flag(fields, "allow_fallback"),
        allowed_tools=fields.texts("allowed_tools") if fields.has("allowed_tools") else None,
        race=fields.texts("race"),
        staged=fields.flag("staged", default=False),
    )
    named = fields.mention("id")
    return _TaskEntry(task=task, place=named.place if named else fields.place, after=after)


def _swarm_name(fields: SettingsFields) -> str:
    name = fields.text("swarm", "")
    if not _NAME.fullmatch(name):
        fields.note_mistake("swarm", f"{name!r} is no name for a swarm: {_LETTERS}")
    elif len(name) > MAX_NAME_LENGTH:
        fields.note_mistake(
            "swarm", f"must be at most {MAX_NAME_LENGTH} characters long, not {len(name)}"
        )
    return name


def _positive_amount(fields: SettingsFields, key: str) -> float | None:
    value = fields.amount(key, None)
    if value == 0:
        fields.note_mistake(key, "must be more than 0")
        return None
    return value


def _bounded_integer(fields: SettingsFields, key: str, most: int, *, least: int) -> int | None:
    value = fields.integer(key, None, least=least)
    if value is not None and value > most:
        fields.note_mistake(key, f"must be at most {most}, not {value}")
        return None
    return value


def _optional_flag(fields: SettingsFields, key: str) -> bool | None:
    return fields.flag(key, default=False) if fields.has(key) else None


def _check_names(tasks: Sequence[_TaskEntry], problems: Problems) -> None:
    """Each id once, each `after` the id of a task, and none waits for itself."""
    known: dict[str, _TaskEntry] = {}
    for task in tasks:
        name = task.task.id
        if name and name in known:
            first = known[name].place.line
            problems.note(task.place, f"{name!r} is the id of another task too, on line {first}")
        known.setdefault(name, task)
    for task in tasks:
        for mention in task.after:
            if mention.name not in known:
                others = tuple(name for name in known if name and name != task.task.id)
                remedy = suggestion(mention.name, others) if others else "there is no other task"
                problems.note(mention.place, f"there is no task {mention.name!r}; {remedy}")
    for circle in _dependency_cycles(known):
        mention = next(m for m in known[circle[0]].after if m.name == circle[1])
        way = " -> ".join(circle)
        remedy = "none of them could begin; take one `after` away"
        problems.note(mention.place, f"these wait for one another: {way}; {remedy}")


def _dependency_cycles(tasks: Mapping[str, _TaskEntry]) -> Iterator[tuple[str, ...]]:
    """Each way from a task back to itself, told once: from its first task on."""
    settled: set[str] = set()
    for name in tasks:
        way: dict[str, None] = {}
        branches = [iter((name,))]
        while branches:
            step = next(branches[-1], None)
            if step is None:
                branches.pop()
                if way:
                    settled.add(way.popitem()[0])
            elif step in way:
                yield (*dropwhile(lambda passed, back=step: passed != back, way), step)
            elif step in tasks and step not in settled:
                way[step] = None
                branches.append(iter(tasks[step].task.after))
