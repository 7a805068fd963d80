"""Reads the targets file nearest to a suite, strictly."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from goent.config.settings_tree import (
    Items,
    Mention,
    Node,
    Problems,
    SettingPlace,
    SettingsFields,
    Table,
    read_table,
)
from goent.domain.errors import Overloaded, ProviderDown, ProviderTimeout, RateLimited, WorkerError
from goent.domain.input_mistakes import suggestion
from goent.domain.types import Value
from goent.evals.files.case_reader import reject_key
from goent.evals.files.file_source import FileSource, plain_value, suite_location
from goent.evals.suites import SETTINGS_FOLDERS, Retry, TargetSpec
from goent.evals.targets.target_registry import TARGET_KINDS

# What a status is a sign of. Vendors mean different things by one, so it is the failure that counts.
_FAILURES_BY_STATUS: Final[Mapping[str, tuple[type[WorkerError], ...]]] = {
    "408": (ProviderTimeout,),
    "429": (RateLimited,),
    "500": (ProviderDown,),
    "502": (ProviderDown,),
    "503": (ProviderDown, Overloaded),
    "504": (ProviderTimeout,),
    "529": (ProviderDown, Overloaded),
}
_STATUS_KINDS: Final = frozenset(
    error.kind for errors in _FAILURES_BY_STATUS.values() for error in errors
)


def read_retry(fields: SettingsFields, kind: str) -> Retry:
    usual = Retry()
    return Retry(
        max_retries=fields.integer("max_retries", usual.max_retries),
        initial_delay_s=_read_seconds(fields, "retry_initial_delay_ms", usual.initial_delay_s),
        max_delay_s=_read_seconds(fields, "retry_max_delay_ms", usual.max_delay_s),
        factor=fields.amount("retry_backoff_factor", usual.factor, least=1),
        never=_excluded_kinds(fields, kind),
    )


def _excluded_kinds(fields: SettingsFields, kind: str) -> tuple[str, ...]:
    """The failures with a status of which no status is listed."""
    key = "retry_status_codes"
    if not fields.has(key):
        return ()
    known = TARGET_KINDS.get(kind)
    if known is None or known.no_status:
        if known:
            fields.note_mistake(key, f"{known.no_status}; remove it")
        return ()
    codes = fields.texts(key)
    for code in codes:
        if code not in _FAILURES_BY_STATUS:
            options = ", ".join(_FAILURES_BY_STATUS)
            fields.note_mistake(key, f"{code!r} is not a retryable status; one of {options}")
    named = {error.kind for code in codes for error in _FAILURES_BY_STATUS.get(code, ())}
    return tuple(sorted(_STATUS_KINDS - named))


def _read_seconds(fields: SettingsFields, key: str, default: float) -> float:
    value = fields.amount(key, None)
    return default if value is None else value / 1000


MOST_WORKERS: Final = 50
_PATH_STEP: Final = re.compile(r"[^.\[\]]+")
COMMON_SETTINGS: Final = frozenset(
    {
        *("name", "provider", "workers", "provider_batching", "use_target", "fallback_targets"),
        *("judge_target", "grader_target", "max_retries", "retry_initial_delay_ms"),
        *("retry_max_delay_ms", "retry_backoff_factor", "retry_status_codes"),
    }
)
_CAMEL_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


# AgentV's kinds, whose settings are not checked: a file may hold targets that are not used here.
_FOREIGN_KINDS: Final = (
    *("azure", "openai", "openrouter", "anthropic", "gemini", "codex"),
    *("claude", "claude-code", "claude-cli", "claude-sdk", "pi-coding-agent", "pi-cli"),
    *("copilot-cli", "copilot-sdk", "copilot-log", "vscode", "vscode-insiders"),
    *("transcript", "agentv"),
)


class _TargetEntry(Value, frozen=True, kw_only=True):
    """A target as written: its settings, or an alias with its own fallbacks or judge."""

    name: str
    place: SettingPlace
    spec: TargetSpec | None = None
    alias: Mention | None = None
    mentions: tuple[Mention, ...] = ()
    fallbacks: tuple[str, ...] = ()
    grader_target: str | None = None


def load_targets(
    start: Path, environ: Mapping[str, str], *, named: Path | None = None
) -> Mapping[str, TargetSpec]:
    """The targets for suites at `start`, by name; none if there is no targets file.

    Those of the file `named`, or of the nearest folder upward with a `.goent/targets.yaml` or an
    `.agentv/targets.yaml`. Raises one `ConfigError` with every mistake.
    """
    source = FileSource(environ, Problems())
    targets = read_targets(start, source, named=named)
    source.problems.raise_all()
    return targets


def read_targets(
    start: Path, source: FileSource, *, named: Path | None = None
) -> Mapping[str, TargetSpec]:
    """As `load_targets`, but notes mistakes in `source`."""
    problems = source.problems
    found: dict[str, _TargetEntry] = {}
    for path in (named,) if named else find_targets(start):
        table = source.table(path)
        if table:
            entries = read_table(table, _read_entries, problems)
            _check_names(entries, problems)
            for entry in entries:
                found.setdefault(entry.name, entry)
    return _resolve_aliases(found, problems)


def find_targets(start: Path) -> tuple[Path, ...]:
    """The targets files of the nearest folder that has any; that in `.goent` comes first."""
    here = start.absolute()
    for folder in (here, *here.parents):
        candidates = (
            folder / hidden / f"targets{ending}"
            for hidden in SETTINGS_FOLDERS
            for ending in (".yaml", ".yml")
        )
        if found := tuple(path for path in candidates if path.is_file()):
            return found
    return ()


def _read_entries(fields: SettingsFields) -> tuple[_TargetEntry, ...]:
    fields.text("$schema", None)
    fields.text("version", None)
    node = fields.node("targets")
    if node is None:
        fields.note_mistake("targets", "is missing; list them: targets: [{name: …, provider: …}]")
    if not isinstance(node, Items):
        fields.rows("targets", lambda _: None)
        return ()
    entries: list[_TargetEntry] = []
    for item in node.items:
        if isinstance(item, Table):
            entry = read_table(_snake_keys(item, fields.problems), _read_entry, fields.problems)
            if entry.name:
                entries.append(entry)
        else:
            fields.problems.note(item.place, "expected a target: {name: …, provider: …}")
    return tuple(entries)


def _snake_keys(table: Table, problems: Problems) -> Table:
    """Accepts camelCase names as well."""
    entries: dict[str, Node] = {}
    for key, node in table.entries.items():
        name = snake_case(key)
        if name in entries:
            problems.note(node.place, f"is the same as {name!r}; keep one of them")
        entries[name] = node
    return Table(place=table.place, entries=entries)


def snake_case(name: str) -> str:
    return _CAMEL_HUMP.sub(lambda found: f"_{found[1].lower()}", name)


def _read_entry(fields: SettingsFields) -> _TargetEntry:
    name = fields.required_text("name", "give the target a name")
    alias = fields.mention("use_target")
    key = fields.one_of("grader_target", "judge_target")
    judge = fields.mention(key) if key else None
    fallbacks = fields.mentions("fallback_targets")
    mentions = (*fallbacks, *((judge,) if judge else ()))
    for one in fallbacks:
        if one.name == name:
            fields.problems.note(one.place, "is the target itself; name another")
    entry = _TargetEntry(
        name=name,
        place=fields.place,
        alias=alias,
        mentions=mentions,
        fallbacks=tuple(mention.name for mention in fallbacks),
        grader_target=judge.name if judge else None,
    )
    if alias:
        return entry
    kind = fields.required_text("provider", f"one of {', '.join(TARGET_KINDS)}").replace("_", "-")
    workers = fields.integer("workers", None, least=1)
    if workers is not None and workers > MOST_WORKERS:
        fields.note_mistake("workers", f"must be at most {MOST_WORKERS}, not {workers}")
    if fields.flag("provider_batching", default=False):
        fields.note_mistake(
            "provider_batching", "is not supported; each case is a separate attempt"
        )
    spec = TargetSpec(
        name=name,
        kind=kind,
        workers=workers,
        fallbacks=entry.fallbacks,
        grader_target=entry.grader_target,
        retry=read_retry(fields, kind),
        settings=_read_settings(fields, kind),
        place=suite_location(fields.place),
    )
    return structs.replace(entry, spec=spec)


def _read_settings(fields: SettingsFields, kind: str) -> dict[str, object]:
    known = TARGET_KINDS.get(kind)
    if known is None:
        if kind and kind not in _FOREIGN_KINDS:
            remedy = suggestion(kind, (*TARGET_KINDS, *_FOREIGN_KINDS))
            message = f"{kind!r} is not a provider, or not supported; {remedy}"
            fields.note_mistake("provider", message)
        foreign = (key for key in fields.keys if key not in COMMON_SETTINGS and fields.has(key))
        return {key: plain_value(fields.node(key)) for key in foreign}
    settings = {
        key: plain_value(fields.node(key)) for key in known.setting_names if fields.has(key)
    }
    for key in known.unsupported:
        reject_key(fields, key)
    for path, message in known.mistakes(settings):
        key, *deeper = _PATH_STEP.findall(path)
        node = fields.node(key)
        place = _deepest_place(node, deeper) if node else fields.place.entry(key)
        fields.problems.note(place, message)
    return settings


def _deepest_place(node: Node, steps: Sequence[str]) -> SettingPlace:
    """The place of the deepest part of the path that exists."""
    for step in steps:
        match node:
            case Table() if step in node.entries:
                node = node.entries[step]
            case Items() if step.isdecimal() and int(step) < len(node.items):
                node = node.items[int(step)]
            case _:
                return node.place.entry(step)
    return node.place


def _check_names(entries: Sequence[_TargetEntry], problems: Problems) -> None:
    known: dict[str, _TargetEntry] = {}
    for entry in entries:
        first = known.setdefault(entry.name, entry)
        if first is not entry:
            message = (
                f"{entry.name!r} is the name of another target too, on line {first.place.line}"
            )
            problems.note(entry.place, message)


def _resolve_aliases(
    entries: Mapping[str, _TargetEntry], problems: Problems
) -> Mapping[str, TargetSpec]:
    """Each name with the target it finally stands for."""
    targets: dict[str, TargetSpec] = {}
    for name, entry in entries.items():
        for mention in entry.mentions:
            _find_entry(mention, entries, problems)
        passed = {name}
        last: _TargetEntry | None = entry
        while last and last.alias:
            mention = last.alias
            last = _find_entry(mention, entries, problems)
            if mention.name in passed:
                problems.note(mention.place, f"{mention.name!r} is an alias of itself")
                last = None
            passed.add(mention.name)
        if last and last.spec:
            targets[name] = structs.replace(
                last.spec,
                name=name,
                fallbacks=entry.fallbacks or last.spec.fallbacks,
                grader_target=entry.grader_target or last.spec.grader_target,
            )
    return targets


def _find_entry(
    mention: Mention, entries: Mapping[str, _TargetEntry], problems: Problems
) -> _TargetEntry | None:
    entry = entries.get(mention.name)
    if entry is None:
        remedy = suggestion(mention.name, tuple(entries))
        problems.note(mention.place, f"there is no target {mention.name!r}; {remedy}")
    return entry
