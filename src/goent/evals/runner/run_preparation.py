"""Reads suites and an earlier run's folder, and prepares what a run has to do."""

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.eval_results import Row, latest_rows
from goent.evals.files.suite_validation import validate
from goent.evals.graders.grader_registry import all_graders
from goent.evals.graders.json_values import NO_KEYS, is_array, is_object
from goent.evals.graders.llm_grader import prompt_file
from goent.evals.reports.report_text import left_out_text
from goent.evals.runner.run_folder import RunManifest, StoredRun, read_manifest, utc_now
from goent.evals.runner.trial_plan import MAX_NAMES, RunSelection, Trial, plan_trials, used_targets
from goent.evals.suites import EvalCase, GraderSpec, Suite, TargetSpec, WorkspaceSpec
from goent.evals.targets.target_registry import TARGET_KINDS, is_agent
from goent.system.plain_files import LARGE_FILE, read_plain


def find_materials(
    read: Iterable[Path], cases: Iterable[EvalCase], specs: Iterable[TargetSpec]
) -> tuple[Path, ...]:
    """The files that were `read`, and those they name: prompts, scripts, recordings, workspace folders."""
    found = [
        *read,
        *(path for case in cases for path in _case_files(case)),
        *(
            path
            for spec in specs
            if spec.kind in TARGET_KINDS
            for path in TARGET_KINDS[spec.kind].files(spec)
        ),
    ]
    return tuple(dict.fromkeys(path.resolve() for path in found))


def path_text(path: Path) -> str:
    """The path as JSON text: a name need not be UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def digest_files(paths: Iterable[Path], run: Path) -> Mapping[str, str]:
    """Short digests of files and folders; empty for what cannot be read.

    The folders of runs and of git are ignored.
    """
    own = run.resolve()
    return {path_text(path): _digest(path, own) for path in paths}


def _case_files(case: EvalCase) -> Iterator[Path]:
    for said in case.all_input:
        yield from said.files
    yield from case.guidelines
    for _, spec in all_graders(case.all_graders):
        yield from _grader_files(spec, case)
    if case.workspace:
        yield from _workspace_files(case.workspace)


def _grader_files(spec: GraderSpec, case: EvalCase) -> Iterator[Path]:
    """The prompt and the script files, also of an aggregator."""
    aggregator = spec.settings.get("aggregator")
    for settings in (spec.settings, aggregator if is_object(aggregator) else NO_KEYS):
        prompt, command = settings.get("prompt"), settings.get("command")
        if isinstance(prompt, str) and (path := prompt_file(spec, case, prompt)):
            yield path
        if is_array(command):
            here = Path(case.place.file).parent / str(settings.get("cwd", "."))
            yield from _command_files([str(word) for word in command], here)


def _workspace_files(workspace: WorkspaceSpec) -> Iterator[Path]:
    if workspace.template:
        yield workspace.template
    hooks = (
        *(workspace.before_all, workspace.before_each),
        *(workspace.after_each, workspace.after_all),
    )
    for hook in hooks:
        if hook and hook.cwd:
            yield from _command_files(hook.command, hook.cwd)


def _command_files(command: Iterable[str], here: Path) -> Iterator[Path]:
    """Files among the words of a command, or of a shell line in it."""
    for words in command:
        try:
            each = {words, *shlex.split(words)}
        except ValueError:  # a quote that nothing closes
            each = {words}
        for word in each:
            with suppress(OSError, ValueError):  # a word need not be a file name
                if (here / word).is_file():
                    yield here / word


def _folder_content(folder: Path, run: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        inside = Path(here)
        apart = (run, inside / ".git", *([inside / "evals"] if inside.name == ".goent" else ()))
        folders[:] = [name for name in folders if inside / name not in apart]
        yield from (inside / name for name in (*folders, *files) if inside / name not in apart)


def _digest(path: Path, run: Path) -> str:
    whole = hashlib.sha256()
    try:
        if not path.is_dir():
            whole.update(read_plain(path, LARGE_FILE))
        else:
            for each in sorted(_folder_content(path, run)):
                whole.update(os.fsencode(each.relative_to(path)) + b"\0")
                if each.is_symlink():
                    whole.update(os.fsencode(each.readlink()))
                elif each.is_file():
                    whole.update(hashlib.sha256(read_plain(each, LARGE_FILE)).digest())
    except OSError:
        return ""
    return whole.hexdigest()[:16]


RerunScope = Literal["none", "errors", "failed"]
"""Which trials of an earlier run are made again: errored ones, or all that did not pass."""


class PreparedRun(Value, frozen=True, kw_only=True):
    """All trials of a run, `to_make` of them now; `rows` are those of the others.

    `materials` are the files that the run depends on.
    """

    suites: tuple[Suite, ...]
    specs: Mapping[str, TargetSpec]
    trials: tuple[Trial, ...]
    manifest: RunManifest
    to_make: tuple[Trial, ...] = ()
    rows: tuple[Row, ...] = ()
    materials: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


def prepare_run(
    paths: Sequence[Path],
    environ: Mapping[str, str],
    wanted: RunSelection,
    *,
    targets_file: Path | None = None,
    running: bool = True,
) -> PreparedRun:
    """Raises one `ConfigError` for all mistakes in the files, or in the selection."""
    read = validate(
        paths,
        environ,
        named=targets_file,
        asked=wanted.targets,
        chosen=wanted.matches,
        compat=wanted.compat,
        running=running,
    )
    if read.mistakes:
        raise ConfigError("\n".join(read.mistakes))
    trials = plan_trials(read.suites, read.targets, wanted)
    manifest = RunManifest(
        suites=tuple(path_text(path.resolve()) for path in paths),
        targets_file=path_text(targets_file.resolve()) if targets_file else None,
        wanted=wanted,
        began=utc_now(),
    )
    cases = {(trial.case.suite, trial.case.id): trial.case for trial in trials}
    used = used_targets(trials, read.targets)
    return PreparedRun(
        suites=read.suites,
        specs=read.targets,
        trials=trials,
        manifest=manifest,
        to_make=trials,
        warnings=(*read.warnings, *_dependency_warnings(trials, wanted)),
        materials=find_materials(read.files, cases.values(), used.values()),
    )


def _dependency_warnings(trials: Sequence[Trial], wanted: RunSelection) -> Iterator[str]:
    names = dict.fromkeys(trial.case.id for trial in trials if not wanted.matches(trial.case))
    if names:
        yield f"also run, because selected cases depend on them: {', '.join(names)}"


def uses_sandbox(trials: Iterable[Trial], specs: Iterable[TargetSpec]) -> bool:
    """Whether an agent, a hook or a script grader is started."""
    return any(map(is_agent, specs)) or any(_has_commands(one.case) for one in trials)


def _has_commands(case: EvalCase) -> bool:
    place = case.workspace
    if place and (place.before_all or place.before_each or place.after_each or place.after_all):
        return True
    return any(map(_runs_script, (spec for _, spec in all_graders(case.all_graders))))


def _runs_script(spec: GraderSpec) -> bool:
    aggregator = spec.settings.get("aggregator")
    return "command" in spec.settings or (is_object(aggregator) and "command" in aggregator)


def with_graders(prepared: PreparedRun, graders: tuple[GraderSpec, ...]) -> PreparedRun:
    """The same trials with these graders instead of their own."""
    trials = tuple(
        replace(trial, case=_case_with_graders(trial.case, graders)) for trial in prepared.trials
    )
    return replace(prepared, trials=trials)


def _case_with_graders(case: EvalCase, graders: tuple[GraderSpec, ...]) -> EvalCase:
    talk = case.conversation
    if talk is not None:
        turns = tuple(replace(turn, graders=()) for turn in talk.turns)
        talk = replace(talk, turns=turns)
    return replace(case, graders=graders, conversation=talk)


def prepare_in_folder(
    prepared: PreparedRun, folder: StoredRun, again: RerunScope | None
) -> PreparedRun:
    """A new run, or the rest of the one in the folder. Raises `ConfigError`."""
    manifest = replace(prepared.manifest, files=digest_files(prepared.materials, folder.path))
    prepared = replace(prepared, manifest=manifest)
    if again is not None:
        return prepare_resume(prepared, folder, again)
    if folder.is_used:
        raise ConfigError(
            f"{str(folder.path)!r} holds a run: continue it with --resume, or name another --out"
        )
    return prepared


def prepare_resume(prepared: PreparedRun, folder: StoredRun, again: RerunScope) -> PreparedRun:
    """The rest of the run in the folder, if there is one. Raises `ConfigError` if it is a different one."""
    if not folder.is_used:
        nothing = f"{str(folder.path)!r} holds nothing to resume: this is a new run"
        return replace(prepared, warnings=(*prepared.warnings, nothing))
    before = read_manifest(folder.path)
    if (before.wanted, before.suites) != (prepared.manifest.wanted, prepared.manifest.suites):
        differences = "; ".join(_differences(before, prepared.manifest))
        raise ConfigError(
            f"{str(folder.path)!r} holds a different run ({differences}): "
            "use the same options, or name another --out"
        )
    read = folder.rows()
    rows = latest_rows(read.rows)
    planned = {(trial.key, trial.number) for trial in prepared.trials}
    made = {(row.key, row.trial) for row in rows if not _is_rerun(row, again)} & planned
    gone = tuple(one for row in rows if (one := (row.key, row.trial)) not in planned)
    warnings = [
        *prepared.warnings,
        *_changed_file_warnings(before.files, prepared.manifest.files),
        *(f"line {number} of index.jsonl is not a row, and is ignored" for number in read.damaged),
        *((left_out_text(len(gone)),) if gone else ()),
    ]
    return replace(
        prepared,
        manifest=replace(before, files=prepared.manifest.files, gone=gone),
        to_make=tuple(trial for trial in prepared.trials if (trial.key, trial.number) not in made),
        rows=tuple(row for row in rows if (row.key, row.trial) in made),
        warnings=tuple(warnings),
    )


def _differences(before: RunManifest, after: RunManifest) -> Iterator[str]:
    then, later = _option_values(before), _option_values(after)
    for option in {**then, **later}:
        if then.get(option) != later.get(option):
            first, second = (shlex.join(told.get(option, ())) or "none" for told in (then, later))
            yield f"{option} {first} then, {second} now"


def _option_values(manifest: RunManifest) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {"suites": list(manifest.suites)}
    told = list(selection_options(manifest.wanted, None))
    for option, value in zip(told[::2], told[1::2], strict=True):
        found.setdefault(option, []).append(value)
    return found


def _changed_file_warnings(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    files = [file for file in before if before[file] != after.get(file)]
    told = [f"{file} has changed since: finished trials keep their results" for file in files]
    more = len(told) - MAX_NAMES
    return [*told[:MAX_NAMES], f"so have {more} other files"] if more > 0 else told


def _is_rerun(row: Row, again: RerunScope) -> bool:
    """Trials that were held back are always tried again: their dependencies may pass now."""
    if row.held_back_by:
        return True
    match again:
        case "none":
            return False
        case "errors":
            return not row.scored
        case "failed":
            return not row.passed


def run_arguments(manifest: RunManifest) -> list[str]:
    """The arguments of `go-ent eval run` for the same run."""
    return [*manifest.suites, *selection_options(manifest.wanted, manifest.targets_file)]


def selection_options(wanted: RunSelection, targets_file: Path | str | None) -> Iterator[str]:
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
