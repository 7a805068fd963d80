"""Reads `tasks.yaml`: a swarm's tasks, with every mistake in them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Final

from goent.config.file_syntax import parse_yaml
from goent.config.general_settings import ISOLATIONS, PRESETS
from goent.config.provider_settings import METHODS
from goent.config.settings_tree import Mention, Problems, SettingPlace, SettingsFields, read_table
from goent.domain.input_mistakes import suggestion
from goent.domain.swarm_messages import SwarmSpawnRequest, SwarmTask
from goent.domain.types import Value
from goent.domain.verification import blank_reason

MAX_CONCURRENCY: Final = 100


MAX_RETRIES: Final = 5


MAX_NAME_LENGTH: Final = 60


_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


_SWARM_NAME: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)?")


_LETTERS: Final = "letters, digits, '_', '.' and '-'"


class _TaskEntry(Value, frozen=True, kw_only=True):
    """A task, its place, and its references to other tasks."""

    task: SwarmTask
    place: SettingPlace
    after: tuple[Mention, ...]


def read_tasks(text: str, file: str) -> SwarmSpawnRequest:
    """Read a swarm; a `ConfigError` lists every mistake on a line of its own."""
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
        message = f"{name!r} is not an id: {_LETTERS}, beginning with a letter or a digit"
        fields.note_mistake("id", message)
    after = fields.mentions("after")
    task = SwarmTask(
        id=name,
        prompt=fields.required_text(
            fields.one_of("task", "prompt") or "task",
            "write the whole task: its worker sees nothing else",
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
    if not _SWARM_NAME.fullmatch(name):
        letters = "letters, digits, '_' and '-', beginning with a letter or a digit"
        fields.note_mistake("swarm", f"{name!r} is not a name for a swarm: {letters}")
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
    """Note ids that are not unique, unknown ids in `after`, and tasks that wait for one another."""
    known: dict[str, _TaskEntry] = {}
    for task in tasks:
        name = task.task.id
        if name and name in known:
            first = known[name].place.line
            problems.note(task.place, f"{name!r} is also the id of another task, on line {first}")
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
        remedy = "none of them could begin; remove one `after`"
        problems.note(mention.place, f"these wait for one another: {way}; {remedy}")


def _dependency_cycles(tasks: Mapping[str, _TaskEntry]) -> Iterator[tuple[str, ...]]:
    """Each cycle once, beginning with its first task."""
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
