"""Turns a request into the command of a run, and lists what the user has to trust first.

Whoever names a suite at a terminal has decided to run it. One that an agent names has to be allowed
first, if there is a command in it, a repository to clone, or a target with more than a model's name.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from goent.config.trust_materials import UnreadableMaterial, named_file_materials
from goent.config.trust_records import read_approvals
from goent.domain.errors import RequestError
from goent.domain.evaluation_messages import EvalRunRequest
from goent.domain.settings import Act, Material, content_digest, list_places, make_act
from goent.domain.types import Value
from goent.evals.attended.project_runs import ProjectRuns
from goent.evals.files.suite_validation import validate
from goent.evals.files.workspace_reader import HOOK_NAMES
from goent.evals.graders.case_grader import all_graders
from goent.evals.graders.json_values import NO_KEYS, is_array, is_object
from goent.evals.runner.preflight import prepare_checked_run
from goent.evals.runner.run_folder import RunManifest, read_manifest
from goent.evals.runner.run_preparation import (
    PreparedRun,
    digest_files,
    find_materials,
    selection_options,
)
from goent.evals.runner.trial_plan import RunSelection, used_targets
from goent.evals.suites import EvalCase, GraderSpec, Suite, TargetSpec
from goent.evals.targets.target_settings import target_folder

# What a target of one of these kinds may say without doing anything by itself.
HARMLESS_SETTINGS: Final[Mapping[str, frozenset[str]]] = {
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


def evaluation_acts(
    suites: Iterable[Suite], targets: Iterable[TargetSpec], project: Path
) -> tuple[Act, ...]:
    """Of all cases of the suites, whichever of them are asked for, and of the targets."""
    known = tuple(suites)
    places = [suite.path.absolute().parent for suite in known]
    return (
        *(found for suite in known for found in _suite_acts(suite, project)),
        *(found for spec in targets for found in _target_acts(spec, project, places)),
    )


def acts_in_files(
    suites: Sequence[Path], environ: Mapping[str, str], project: Path
) -> tuple[Act, ...]:
    """Of suites, and of every target that holds where they lie. What cannot be read does nothing."""
    read = validate(suites, environ)
    return evaluation_acts(read.suites, read.targets.values(), project)


def _suite_acts(suite: Suite, project: Path) -> Iterator[Act]:
    commands = list(dict.fromkeys(told for case in suite.cases for told in _case_actions(case)))
    if not commands:
        return
    files = digest_files(
        find_materials((suite.path,), suite.cases, ()), project / ".goent" / "evals"
    )
    yield make_act(
        file=_shown_path(suite.path, project),
        kind="evaluation",
        says=f"evaluating it would {'; '.join(commands)}",
        materials=[
            Material(name=_shown_path(Path(path), project), digest=content)
            for path, content in sorted(files.items())
        ],
    )


def _case_actions(case: EvalCase) -> Iterator[str]:
    place = case.workspace
    for hook in (getattr(place, name) for name in HOOK_NAMES) if place else ():
        if hook:
            yield f"run `{' '.join(hook.command)}`"
    if place and place.repository:
        yield f"clone {place.repository}"
    for _, grader in all_graders(case.all_graders):
        yield from _grader_actions(grader)


def _grader_actions(grader: GraderSpec) -> Iterator[str]:
    aggregator = grader.settings.get("aggregator")
    for settings in (grader.settings, aggregator if is_object(aggregator) else NO_KEYS):
        command = settings.get("command")
        if command:
            words = " ".join(map(str, command)) if is_array(command) else str(command)
            yield f"grade with `{words}`"


def _target_acts(spec: TargetSpec, project: Path, places: Iterable[Path]) -> Iterator[Act]:
    """One for each place that its command may run in, if other files of the project are named there."""
    harmless = HARMLESS_SETTINGS.get(spec.kind, frozenset[str]())
    told = {key: value for key, value in spec.settings.items() if key not in harmless}
    if "*" in harmless or (spec.kind in HARMLESS_SETTINGS and not told):
        return
    content = msgspec.json.encode((spec.kind, told), enc_hook=str, order="sorted")
    file, key = _shown_path(Path(spec.place.file), project), f"targets.{spec.name}"
    says = (
        f"the target {spec.name!r} is {spec.kind} with {', '.join(sorted(told)) or 'its own settings'}: "
        f"{content.decode()}"
    )
    itself = Material(name=spec.name, digest=content_digest(content))
    found = dict[str, Act]()
    for place in dict.fromkeys((target_folder(spec), *places)):
        try:
            files = named_file_materials(tuple(_texts_in(told)), place, project.absolute())
        except UnreadableMaterial as error:
            yield Act(file=file, key=key, kind="evaluation", says=str(error), digest="")
            continue
        made_of = (itself, *files)
        one = make_act(file=file, key=key, kind="evaluation", says=says, materials=made_of)
        found[one.digest] = one
    yield from found.values()


def _texts_in(value: object) -> Iterator[str]:
    """Every text in a setting, whatever it is in."""
    if isinstance(value, str):
        yield value
    elif is_object(value):
        for each in value.values():
            yield from _texts_in(each)
    elif is_array(value):
        for each in value:
            yield from _texts_in(each)


def _shown_path(path: Path, project: Path) -> str:
    absolute = Path(os.path.realpath(path))
    top = Path(os.path.realpath(project))
    return str(absolute.relative_to(top)) if absolute.is_relative_to(top) else str(absolute)


NEW_RUN_FIELDS: Final = (
    "suites",
    "target",
    "targets_file",
    "ids",
    "tags",
    "exclude_tags",
    "trials",
    "threshold",
    "judge",
    "compat",
    "out",
)


class AttendedOrder(Value, frozen=True, kw_only=True):
    """A run, with every path inside the project. `before`: what is there is gone on with."""

    suites: tuple[Path, ...]
    wanted: RunSelection
    targets_file: Path | None = None
    resumed_folder: Path | None = None

    def prepared(self, environ: Mapping[str, str], project: Path) -> PreparedRun:
        """What there is to be done. Raises `ConfigError` with every mistake in the files.

        And a `RequestError` for what they would do and nobody has allowed.
        """
        found = prepare_checked_run(
            self.suites, environ, self.wanted, project=project, targets_file=self.targets_file
        )
        used = used_targets(found.trials, found.specs).values()
        if missing := read_approvals(project, environ).missing(
            evaluation_acts(found.suites, used, project)
        ):
            files = " ".join(shlex.quote(str(suite)) for suite in self.suites)
            raise RequestError(
                f"the evaluation was not started: {list_places(missing)} is not trusted "
                f"({missing[0].says}). Ask the user to review and allow it with `go-ent trust {files}`, "
                "or to run `go-ent eval run` in a terminal"
            )
        return found

    def command(self, request: EvalRunRequest, folder: Path) -> list[str]:
        resume = ("--retry", request.retry) if request.retry else ("--resume",)
        return [
            # -P: a project must not be able to put its own modules in the way of who holds the keys.
            *(sys.executable, "-P", "-m", "goent", "eval", "run"),
            *("--out", str(folder), "--json", "--attended"),
            *selection_options(self.wanted, self.targets_file),
            *_bound_options(request),
            *(resume if self.resumed_folder else ()),
            *("--", *map(str, self.suites)),
        ]


def read_order(request: EvalRunRequest, base: Path, places: ProjectRuns) -> AttendedOrder:
    """Raises `RequestError`."""
    if request.resume is not None:
        return _resumed_order(request, base, places)
    if not request.suites:
        raise RequestError("no suite is named: pass suites, or resume with the id of a run")
    if request.retry:
        raise RequestError("retry is for a run that is gone on with: pass resume with its id")
    suites = tuple(places.resolve_inside(suite, base, "suite") for suite in request.suites)
    for asked, suite in zip(request.suites, suites, strict=True):
        if not suite.exists():
            raise RequestError(f"suite {asked!r} does not exist in {str(base)!r}")
    named = request.targets_file
    return AttendedOrder(
        suites=suites,
        targets_file=places.resolve_inside(named, base, "targets_file") if named else None,
        wanted=RunSelection(
            targets=request.target,
            ids=request.ids,
            tags=request.tags,
            without_tags=request.exclude_tags,
            trials=request.trials,
            threshold=request.threshold,
            judge=request.judge or "",
            compat=request.compat is not None,
        ),
    )


def _resumed_order(request: EvalRunRequest, base: Path, places: ProjectRuns) -> AttendedOrder:
    """What the run was asked for then: it is gone on with as it was begun."""
    given = [name for name in NEW_RUN_FIELDS if getattr(request, name)]
    if given:
        raise RequestError(
            f"a run is gone on with as it was begun: leave {', '.join(given)} out, or begin another"
        )
    folder = places.find(request.resume or "", base)
    manifest: RunManifest = read_manifest(folder)
    for path in (*manifest.suites, *filter(None, [manifest.targets_file])):
        places.resolve_inside(path, base, "what the run was made of,")
    return AttendedOrder(
        suites=tuple(Path(suite) for suite in manifest.suites),
        targets_file=Path(manifest.targets_file) if manifest.targets_file else None,
        wanted=manifest.wanted,
        resumed_folder=folder,
    )


def _bound_options(request: EvalRunRequest) -> Iterator[str]:
    if request.workers is not None:
        yield from ("--workers", str(request.workers))
    if request.budget_usd is not None:
        yield from ("--budget-usd", str(request.budget_usd))
    if request.timeout_s is not None:
        yield from ("--timeout", str(request.timeout_s))
