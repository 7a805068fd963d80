"""What suites and targets would run, fetch or open, as something that a person can allow.

Whoever names a suite at a terminal has decided to run it. One that an agent names has to be allowed
first, if there is a command in it, a repository to clone, or a target with more than a model's name.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from goent.config.trust.materials import Unlooked, named_files
from goent.domain.trust import Act, Material, act, digest
from goent.evals.files.validating import validate
from goent.evals.graders.grading import every_grader
from goent.evals.graders.values import NO_KEYS, is_array, is_object
from goent.evals.running.materials import digests, materials
from goent.evals.suites import Case, GraderSpec, Suite, TargetSpec
from goent.evals.targets.settings import home_of

# What a target of one of these kinds may say without doing anything by itself.
HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "mock": frozenset({"*"}),
    "replay": frozenset({"*"}),
    "goent": frozenset({"subprovider", "model", "method", "timeout_seconds", "race"}),
    "opencode": frozenset(
        {
            *("model", "variant", "agent", "system_prompt", "timeout_seconds"),
            *("startup_timeout_seconds", "shared_server", "stream_logs", "profile"),
        }
    ),
}
HOOKS: Final = ("before_all", "before_each", "after_each", "after_all")


def evaluation_acts(
    suites: Iterable[Suite], targets: Iterable[TargetSpec], project: Path
) -> tuple[Act, ...]:
    """Of all cases of the suites, whichever of them are asked for, and of the targets."""
    known = tuple(suites)
    places = [suite.path.absolute().parent for suite in known]
    return (
        *(found for suite in known for found in _of_suite(suite, project)),
        *(found for spec in targets for found in _of_target(spec, project, places)),
    )


def acts_in_files(
    suites: Sequence[Path], environ: Mapping[str, str], project: Path
) -> tuple[Act, ...]:
    """Of suites, and of every target that holds where they lie. What cannot be read does nothing."""
    read = validate(suites, environ)
    return evaluation_acts(read.suites, read.targets.values(), project)


def _of_suite(suite: Suite, project: Path) -> Iterator[Act]:
    commands = list(dict.fromkeys(told for case in suite.cases for told in _of_case(case)))
    if not commands:
        return
    files = digests(materials((suite.path,), suite.cases, ()), project / ".goent" / "evals")
    yield act(
        file=_shown(suite.path, project),
        kind="evaluation",
        says=f"evaluating it would {'; '.join(commands)}",
        materials=[
            Material(name=_shown(Path(path), project), digest=content)
            for path, content in sorted(files.items())
        ],
    )


def _of_case(case: Case) -> Iterator[str]:
    place = case.workspace
    for hook in (getattr(place, name) for name in HOOKS) if place else ():
        if hook:
            yield f"run `{' '.join(hook.command)}`"
    if place and place.repository:
        yield f"clone {place.repository}"
    for _, grader in every_grader(case.every_grader):
        yield from _of_grader(grader)


def _of_grader(grader: GraderSpec) -> Iterator[str]:
    aggregator = grader.settings.get("aggregator")
    for settings in (grader.settings, aggregator if is_object(aggregator) else NO_KEYS):
        command = settings.get("command")
        if command:
            words = " ".join(map(str, command)) if is_array(command) else str(command)
            yield f"grade with `{words}`"


def _of_target(spec: TargetSpec, project: Path, places: Iterable[Path]) -> Iterator[Act]:
    """One for each place that its command may run in, if other files of the project are named there."""
    harmless = HARMLESS.get(spec.kind, frozenset[str]())
    told = {key: value for key, value in spec.settings.items() if key not in harmless}
    if "*" in harmless or (spec.kind in HARMLESS and not told):
        return
    content = msgspec.json.encode((spec.kind, told), enc_hook=str, order="sorted")
    file, key = _shown(Path(spec.place.file), project), f"targets.{spec.name}"
    says = (
        f"the target {spec.name!r} is {spec.kind} with {', '.join(sorted(told)) or 'its own settings'}: "
        f"{content.decode()}"
    )
    itself = Material(name=spec.name, digest=digest(content))
    found = dict[str, Act]()
    for place in dict.fromkeys((home_of(spec), *places)):
        try:
            files = named_files(tuple(_texts(told)), place, project.absolute())
        except Unlooked as error:
            yield Act(file=file, key=key, kind="evaluation", says=str(error), digest="")
            continue
        made_of = (itself, *files)
        one = act(file=file, key=key, kind="evaluation", says=says, materials=made_of)
        found[one.digest] = one
    yield from found.values()


def _texts(value: object) -> Iterator[str]:
    """Every text in a setting, whatever it is in."""
    if isinstance(value, str):
        yield value
    elif is_object(value):
        for each in value.values():
            yield from _texts(each)
    elif is_array(value):
        for each in value:
            yield from _texts(each)


def _shown(path: Path, project: Path) -> str:
    absolute = Path(os.path.realpath(path))
    top = Path(os.path.realpath(project))
    return str(absolute.relative_to(top)) if absolute.is_relative_to(top) else str(absolute)
