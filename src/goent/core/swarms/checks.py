"""Can this list of tasks be done at all? Every mistake is told at once."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.settings import Settings
from goent.domain.swarms import SwarmSpawnRequest, SwarmTask
from goent.domain.verification import blank_commands

MOST_TASKS: Final = 100


def check(request: SwarmSpawnRequest, settings: Settings) -> None:
    """Raise a `RequestError` that names each mistake."""
    mistakes = [*_blank_verify(request), *_mistakes(request.tasks, settings)]
    if mistakes:
        raise RequestError("; ".join(mistakes))


def _blank_verify(request: SwarmSpawnRequest) -> Iterator[str]:
    for index, reason in blank_commands(request.verify):
        yield f"verify[{index}]: {reason}"
    for task in request.tasks:
        for index, reason in blank_commands(task.verify):
            yield f"task {task.id!r}: verify[{index}]: {reason}"


def _mistakes(tasks: Sequence[SwarmTask], settings: Settings) -> Iterator[str]:
    if len(tasks) > MOST_TASKS:
        yield f"{len(tasks)} tasks are more than {MOST_TASKS}: make several swarms of them"
    for name, count in Counter(task.id for task in tasks).items():
        if count > 1:
            yield f"{count} tasks have the id {name!r}: give each its own"
    known = {task.id for task in tasks}
    for task in tasks:
        yield from _mistakes_of(task, known, settings)
    yield from _cycle({task.id: task.after for task in tasks})


def _mistakes_of(task: SwarmTask, known: set[str], settings: Settings) -> Iterator[str]:
    where = f"task {task.id!r}"
    if not task.prompt.strip():
        yield f"{where} has an empty prompt: say what is to be done"
    for name in task.after:
        if name == task.id:
            yield f"{where} comes after itself"
        elif name not in known:
            yield f"{where} comes after {name!r}, and there is no such task"
    names = {p.name for p in settings.providers} | set(settings.backends) | set(settings.agents)
    for name in (*((task.provider,) if task.provider else ()), *task.race):
        if name not in names:
            there = ", ".join(sorted(p.name for p in settings.providers)) or "none"
            yield f"{where} names provider {name!r}, which is not configured (there are: {there})"
    if task.race and (task.provider or task.model):
        yield f"{where} has both a race and a pin: name the providers in `race` alone"
    if len(task.race) != len(set(task.race)):
        yield f"{where} names a provider twice in its race"
    if task.staged and not task.race:
        yield f"{where} is staged but has no `race`: name the providers, the cheap one first"


def _cycle(after: Mapping[str, Sequence[str]]) -> Iterator[str]:
    graph = {name: [each for each in names if each != name] for name, names in after.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        round_: Sequence[str] = error.args[1]
        yield f"tasks wait for each other in a circle: {' after '.join(round_)}"
