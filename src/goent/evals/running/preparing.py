"""What will a run do? Files are read and checked, and an earlier run's folder is looked at, before anything starts."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.files import validate
from goent.evals.graders.grading import every_grader
from goent.evals.graders.values import is_object
from goent.evals.reports.words import left_out
from goent.evals.rows import Row, latest
from goent.evals.running.folder import Folder, Manifest, now, read_manifest
from goent.evals.running.materials import digests, materials, spelt
from goent.evals.running.plan import NAMED, Trial, Wanted, in_use, plan
from goent.evals.suites import Case, GraderSpec, Suite, TargetSpec

Again = Literal["none", "errors", "failed"]
"""Which of an earlier run's trials are made again: those that could not be judged, or did not pass."""


class Prepared(Value, frozen=True, kw_only=True):
    """All trials there are to be, `to_make` of them now; `rows` are what is known of the others.

    `materials` are the files that all of it is made of.
    """

    suites: tuple[Suite, ...]
    specs: Mapping[str, TargetSpec]
    trials: tuple[Trial, ...]
    manifest: Manifest
    to_make: tuple[Trial, ...] = ()
    rows: tuple[Row, ...] = ()
    materials: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


def prepare(
    paths: Sequence[Path],
    environ: Mapping[str, str],
    wanted: Wanted,
    *,
    targets_file: Path | None = None,
    running: bool = True,
) -> Prepared:
    """Raises one `ConfigError` for whatever is wrong with the files, or else with what is wanted of them."""
    read = validate(
        paths,
        environ,
        named=targets_file,
        asked=wanted.targets,
        chosen=wanted.takes,
        compat=wanted.compat,
        running=running,
    )
    if read.mistakes:
        raise ConfigError("\n".join(read.mistakes))
    trials = plan(read.suites, read.targets, wanted)
    manifest = Manifest(
        suites=tuple(spelt(path.resolve()) for path in paths),
        targets_file=spelt(targets_file.resolve()) if targets_file else None,
        wanted=wanted,
        began=now(),
    )
    cases = {(trial.case.suite, trial.case.id): trial.case for trial in trials}
    used = in_use(trials, read.targets)
    return Prepared(
        suites=read.suites,
        specs=read.targets,
        trials=trials,
        manifest=manifest,
        to_make=trials,
        warnings=(*read.warnings, *_came_along(trials, wanted)),
        materials=materials(read.files, cases.values(), used.values()),
    )


def _came_along(trials: Sequence[Trial], wanted: Wanted) -> Iterator[str]:
    names = dict.fromkeys(trial.case.id for trial in trials if not wanted.takes(trial.case))
    if names:
        yield f"run as well, for what was chosen depends on them: {', '.join(names)}"


def uses_sandbox(trials: Iterable[Trial], specs: Iterable[TargetSpec]) -> bool:
    """Whether anything is started confined: an agent, a hook or a script grader."""
    return any(spec.is_agent for spec in specs) or any(_has_commands(one.case) for one in trials)


def _has_commands(case: Case) -> bool:
    place = case.workspace
    if place and (place.before_all or place.before_each or place.after_each or place.after_all):
        return True
    return any(map(_runs_script, (spec for _, spec in every_grader(case.every_grader))))


def _runs_script(spec: GraderSpec) -> bool:
    aggregator = spec.settings.get("aggregator")
    return "command" in spec.settings or (is_object(aggregator) and "command" in aggregator)


def graded_by(prepared: Prepared, graders: tuple[GraderSpec, ...]) -> Prepared:
    """The same trials with these graders, instead of those of their cases and turns."""
    trials = tuple(
        replace(trial, case=_graded_by(trial.case, graders)) for trial in prepared.trials
    )
    return replace(prepared, trials=trials)


def _graded_by(case: Case, graders: tuple[GraderSpec, ...]) -> Case:
    talk = case.conversation
    if talk is not None:
        turns = tuple(replace(turn, graders=()) for turn in talk.turns)
        talk = replace(talk, turns=turns)
    return replace(case, graders=graders, conversation=talk)


def taken_up(prepared: Prepared, folder: Folder, again: Again | None) -> Prepared:
    """A new run, or, with `again`, what is left of the one that is there. Raises `ConfigError`."""
    manifest = replace(prepared.manifest, files=digests(prepared.materials, folder.path))
    prepared = replace(prepared, manifest=manifest)
    if again is not None:
        return resumed(prepared, folder, again)
    if folder.is_used:
        raise ConfigError(
            f"{str(folder.path)!r} holds a run: go on with it by --resume, or name another --out"
        )
    return prepared


def resumed(prepared: Prepared, folder: Folder, again: Again) -> Prepared:
    """What is left of a run, if there is one there. Raises `ConfigError` if it is another one."""
    if not folder.is_used:
        nothing = f"{str(folder.path)!r} holds nothing to go on with: this is a new run"
        return replace(prepared, warnings=(*prepared.warnings, nothing))
    before = read_manifest(folder.path)
    if (before.wanted, before.suites) != (prepared.manifest.wanted, prepared.manifest.suites):
        differences = "; ".join(_differences(before, prepared.manifest))
        raise ConfigError(
            f"{str(folder.path)!r} holds a run of something else ({differences}): "
            "ask for the same, or name another --out"
        )
    read = folder.rows()
    rows = latest(read.rows)
    planned = {(trial.key, trial.number) for trial in prepared.trials}
    made = {(row.key, row.trial) for row in rows if not _is_again(row, again)} & planned
    gone = tuple(one for row in rows if (one := (row.key, row.trial)) not in planned)
    warnings = [
        *prepared.warnings,
        *_changed(before.files, prepared.manifest.files),
        *(f"line {number} of index.jsonl is no row, and left out" for number in read.damaged),
        *((left_out(len(gone)),) if gone else ()),
    ]
    return replace(
        prepared,
        manifest=replace(before, files=prepared.manifest.files, gone=gone),
        to_make=tuple(trial for trial in prepared.trials if (trial.key, trial.number) not in made),
        rows=tuple(row for row in rows if (row.key, row.trial) in made),
        warnings=tuple(warnings),
    )


def _differences(before: Manifest, after: Manifest) -> Iterator[str]:
    then, later = _by_option(before), _by_option(after)
    for option in {**then, **later}:
        if then.get(option) != later.get(option):
            first, second = (shlex.join(told.get(option, ())) or "none" for told in (then, later))
            yield f"{option} {first} then, {second} now"


def _by_option(manifest: Manifest) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {"suites": list(manifest.suites)}
    told = list(options(manifest.wanted, None))
    for option, value in zip(told[::2], told[1::2], strict=True):
        found.setdefault(option, []).append(value)
    return found


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    files = [file for file in before if before[file] != after.get(file)]
    told = [f"{file} has changed since: what was finished stays as it was" for file in files]
    more = len(told) - NAMED
    return [*told[:NAMED], f"so have {more} other files"] if more > 0 else told


def _is_again(row: Row, again: Again) -> bool:
    """What was held back is decided anew: what it waits for may pass this time."""
    if row.held_back_by:
        return True
    match again:
        case "none":
            return False
        case "errors":
            return not row.scored
        case "failed":
            return not row.passed


def asked(manifest: Manifest) -> list[str]:
    """What `go-ent eval run` is told to do the same."""
    return [*manifest.suites, *options(manifest.wanted, manifest.targets_file)]


def options(wanted: Wanted, targets_file: Path | str | None) -> Iterator[str]:
    """How it is told what is wanted of the suites."""
    for name in wanted.targets:
        yield from ("--target", name)
    for pattern in wanted.ids:
        yield from ("--id", pattern)
    for tag in wanted.tags:
        yield from ("--tag", tag)
    for tag in wanted.without_tags:
        yield from ("--exclude-tag", tag)
    if wanted.trials is not None:
        yield from ("--trials", str(wanted.trials))
    if wanted.threshold is not None:
        yield from ("--threshold", str(wanted.threshold))
    if wanted.judge:
        yield from ("--judge", wanted.judge)
    if wanted.compat:
        yield from ("--compat", "agentv")
    if targets_file:
        yield from ("--targets", str(targets_file))
