"""Which targets are there? The targets file nearest to a suite, read strictly."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from goent.config.fields import Fields, Mention, read_table
from goent.config.tree import Items, Node, Place, Problems, Table, suggestion
from goent.domain.types import Value
from goent.evals.files.cases import unsupported
from goent.evals.files.retries import read_retry
from goent.evals.files.texts import Source
from goent.evals.files.trees import plain, told
from goent.evals.suites import FOLDERS, TargetSpec
from goent.evals.targets.cli import CliSettings, cli_mistakes
from goent.evals.targets.goent.settings import GoentSettings, goent_mistakes
from goent.evals.targets.mock import MockSettings, mock_mistakes
from goent.evals.targets.opencode import settings as opencode
from goent.evals.targets.replay import ReplaySettings
from goent.evals.targets.settings import misfits, names_of

MOST_WORKERS: Final = 50
_STEP: Final = re.compile(r"[^.\[\]]+")
COMMON: Final = frozenset(
    {
        *("name", "provider", "workers", "provider_batching", "use_target", "fallback_targets"),
        *("judge_target", "grader_target", "max_retries", "retry_initial_delay_ms"),
        *("retry_max_delay_ms", "retry_backoff_factor", "retry_status_codes"),
    }
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


class _Kind(Value, frozen=True, kw_only=True):
    """What can be set of a kind of targets, and what is wrong with what was set: paths and words."""

    names: tuple[str, ...]
    mistakes: Callable[[Mapping[str, object]], Iterable[tuple[str, str]]]


def _by(settings: type[Value]) -> _Kind:
    return _Kind(names=names_of(settings), mistakes=lambda told: misfits(told, settings))


KINDS: Final[Mapping[str, _Kind]] = {
    "cli": _Kind(names=names_of(CliSettings), mistakes=cli_mistakes),
    "mock": _Kind(names=names_of(MockSettings), mistakes=mock_mistakes),
    "replay": _by(ReplaySettings),
    "goent": _Kind(names=names_of(GoentSettings), mistakes=goent_mistakes),
    "opencode": _Kind(names=opencode.KNOWN, mistakes=opencode.mistakes),
}
# Their settings are judged by whoever opens them: a file may hold targets that nobody uses here.
_OPEN: Final = (
    "azure",
    "openai",
    "openrouter",
    "anthropic",
    "gemini",
    "codex",
    "claude",
    "claude-code",
    "claude-cli",
    "claude-sdk",
    "pi-coding-agent",
    "pi-cli",
    "copilot-cli",
    "copilot-sdk",
    "copilot-log",
    "vscode",
    "vscode-insiders",
    "transcript",
    "agentv",
)
_MISSING: Final[Mapping[str, tuple[str, ...]]] = {  # AgentV has them
    "cli": ("attachments_format",),
    "replay": ("execution_traces",),
}


class _Entry(Value, frozen=True, kw_only=True):
    """A target as written: itself, or another name for one, which may have others stand in or judge."""

    name: str
    place: Place
    spec: TargetSpec | None = None
    alias: Mention | None = None
    mentions: tuple[Mention, ...] = ()
    fallbacks: tuple[str, ...] = ()
    grader_target: str | None = None


def load_targets(
    start: Path, environ: Mapping[str, str], *, named: Path | None = None
) -> Mapping[str, TargetSpec]:
    """The targets for suites at `start`, by name.

    Those of the file `named`, or of the nearest folder above that has a `.goent/targets.yaml` or an
    `.agentv/targets.yaml`. Raises one `ConfigError` with every mistake. Where there is no such file, there are no targets.
    """
    source = Source(environ, Problems())
    targets = read_all(start, source, named=named)
    source.problems.check()
    return targets


def read_all(start: Path, source: Source, *, named: Path | None = None) -> Mapping[str, TargetSpec]:
    """The same; what is wrong is noted."""
    problems = source.problems
    found: dict[str, _Entry] = {}
    for path in (named,) if named else find_targets(start):
        table = source.table(path)
        if table:
            entries = read_table(table, _targets, problems)
            _check_names(entries, problems)
            for entry in entries:
                found.setdefault(entry.name, entry)
    return _resolved(found, problems)


def find_targets(start: Path) -> tuple[Path, ...]:
    """The targets files of the nearest folder that has any; go-ent's own comes first."""
    here = start.absolute()
    for folder in (here, *here.parents):
        candidates = (
            folder / hidden / f"targets{ending}"
            for hidden in FOLDERS
            for ending in (".yaml", ".yml")
        )
        if found := tuple(path for path in candidates if path.is_file()):
            return found
    return ()


def _targets(fields: Fields) -> tuple[_Entry, ...]:
    fields.text("$schema", None)
    fields.text("version", None)
    node = fields.node("targets")
    if node is None:
        fields.mistake("targets", "is missing; list them: targets: [{name: …, provider: …}]")
    if not isinstance(node, Items):
        fields.rows("targets", lambda _: None)
        return ()
    entries: list[_Entry] = []
    for item in node.items:
        if isinstance(item, Table):
            entry = read_table(_snake(item, fields.problems), _target, fields.problems)
            if entry.name:
                entries.append(entry)
        else:
            fields.problems.note(item.place, "expected a target: {name: …, provider: …}")
    return tuple(entries)


def _snake(table: Table, problems: Problems) -> Table:
    """The settings in snake_case; both spellings are written, and mean the same."""
    entries: dict[str, Node] = {}
    for key, node in table.entries.items():
        name = snake_case(key)
        if name in entries:
            problems.note(node.place, f"{name!r} says the same; keep one of them")
        entries[name] = node
    return Table(place=table.place, entries=entries)


def snake_case(name: str) -> str:
    return _HUMP.sub(lambda found: f"_{found[1].lower()}", name)


def _target(fields: Fields) -> _Entry:
    name = fields.needed("name", "give the target a name")
    alias = fields.mention("use_target")
    key = fields.one_of("grader_target", "judge_target")
    judge = fields.mention(key) if key else None
    fallbacks = fields.mentions("fallback_targets")
    mentions = (*fallbacks, *((judge,) if judge else ()))
    for one in fallbacks:
        if one.name == name:
            fields.problems.note(one.place, "is the target itself; name another, or none")
    if alias:
        return _Entry(
            name=name,
            place=fields.place,
            alias=alias,
            mentions=mentions,
            fallbacks=tuple(mention.name for mention in fallbacks),
            grader_target=judge.name if judge else None,
        )
    kind = fields.needed("provider", f"one of {', '.join(KINDS)}").replace("_", "-")
    workers = fields.integer("workers", None, least=1)
    if workers is not None and workers > MOST_WORKERS:
        fields.mistake("workers", f"must be at most {MOST_WORKERS}, not {workers}")
    if fields.flag("provider_batching", default=False):
        fields.mistake("provider_batching", "is not supported; each case is an attempt of its own")
    spec = TargetSpec(
        name=name,
        kind=kind,
        workers=workers,
        fallbacks=tuple(mention.name for mention in fallbacks),
        grader_target=judge.name if judge else None,
        retry=read_retry(fields, kind),
        settings=_settings(fields, kind),
        place=told(fields.place),
    )
    return _Entry(name=name, place=fields.place, spec=spec, mentions=mentions)


def _settings(fields: Fields, kind: str) -> dict[str, object]:
    known = KINDS.get(kind)
    names = known.names if known else tuple(key for key in fields.keys if key not in COMMON)
    if known is None and kind and kind not in _OPEN:
        remedy = suggestion(kind, (*KINDS, *_OPEN))
        fields.mistake("provider", f"{kind!r} is no provider, or not supported; {remedy}")
    settings = {key: plain(fields.node(key)) for key in names if fields.has(key)}
    for key in _MISSING.get(kind, ()):
        unsupported(fields, key)
    for path, message in known.mistakes(settings) if known else ():
        key, *deeper = _STEP.findall(path)
        node = fields.node(key)
        place = _below(node, deeper) if node else fields.place.below(key)
        fields.problems.note(place, message)
    return settings


def _below(node: Node, steps: Sequence[str]) -> Place:
    """Where the deepest part of the path stands that there is."""
    for step in steps:
        match node:
            case Table() if step in node.entries:
                node = node.entries[step]
            case Items() if step.isdecimal() and int(step) < len(node.items):
                node = node.items[int(step)]
            case _:
                return node.place.below(step)
    return node.place


def _check_names(entries: Sequence[_Entry], problems: Problems) -> None:
    known: dict[str, _Entry] = {}
    for entry in entries:
        first = known.setdefault(entry.name, entry)
        if first is not entry:
            message = (
                f"{entry.name!r} is the name of another target too, on line {first.place.line}"
            )
            problems.note(entry.place, message)


def _resolved(entries: Mapping[str, _Entry], problems: Problems) -> Mapping[str, TargetSpec]:
    """Each name with what it stands for in the end."""
    targets: dict[str, TargetSpec] = {}
    for name, entry in entries.items():
        for mention in entry.mentions:
            _known(mention, entries, problems)
        passed = {name}
        last: _Entry | None = entry
        while last and last.alias:
            mention = last.alias
            last = _known(mention, entries, problems)
            if mention.name in passed:
                problems.note(mention.place, f"{mention.name!r} stands for itself in the end")
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


def _known(mention: Mention, entries: Mapping[str, _Entry], problems: Problems) -> _Entry | None:
    entry = entries.get(mention.name)
    if entry is None:
        remedy = suggestion(mention.name, tuple(entries))
        problems.note(mention.place, f"there is no target {mention.name!r}; {remedy}")
    return entry
