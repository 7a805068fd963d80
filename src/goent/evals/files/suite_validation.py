"""Validates suites together with their targets, before anything is run."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from goent.config.settings_tree import Items, Problems, SettingPlace, Table, read_table
from goent.domain.errors import ConfigError
from goent.domain.input_mistakes import suggestion
from goent.domain.types import Value
from goent.evals.files.case_reader import TargetAlias, check_graders
from goent.evals.files.file_source import FileSource, config_place
from goent.evals.files.grader_reader import can_score, read_grader_list, read_graders
from goent.evals.files.suite_reader import read_suites
from goent.evals.files.target_reader import find_targets, read_targets
from goent.evals.files.workspace_reader import is_folder
from goent.evals.graders.grader_registry import GRADERS
from goent.evals.suites import EvalCase, GraderSpec, Suite, TargetSpec
from goent.evals.targets.target_registry import TARGET_KINDS

DEFAULT_TARGET_NAME: Final = "default"  # the target of cases that name none


def suite_aliases(
    cases: Sequence[EvalCase],
    known: Mapping[str, TargetSpec],
    source: FileSource,
    asked: Sequence[str],
) -> dict[str, TargetSpec]:
    """The aliases in suites, as in AgentV; names in the targets file go first.

    Where other targets are `asked`, unknown ones are no mistake.
    """
    named: dict[str, TargetAlias] = {}
    for case in cases:
        for one in source.targets.get((case.suite, case.place), ()):
            if isinstance(one, TargetAlias) and one.name not in known:
                first = named.setdefault(one.name, one)
                if first.of.name != one.of.name:
                    where = f"{first.place.file}:{first.place.line}"
                    words = f"{one.name!r} is an alias of {first.of.name!r} at {where}"
                    source.problems.note(one.place, f"{words}; rename one")
    found: dict[str, TargetSpec] = {}
    for name, alias in named.items():
        meant = _alias_target(alias, named)
        if meant in known:
            found[name] = replace(known[meant], name=name)
        elif not asked or name in asked:
            source.problems.note(alias.of.place, unknown_target(meant, known))
    return found


def _alias_target(alias: TargetAlias, named: Mapping[str, TargetAlias]) -> str:
    """The name at the end of a chain of aliases."""
    passed = {alias.name}
    while (name := alias.of.name) in named and name not in passed:
        passed.add(name)
        alias = named[name]
    return alias.of.name


def check_folders(
    case: EvalCase, names: Sequence[str], known: Mapping[str, TargetSpec], source: FileSource
) -> None:
    """Notes folders that the targets of a case need and that do not exist."""
    for spec in _with_fallbacks(names, known):
        kind = TARGET_KINDS.get(spec.kind)
        for key, folder in kind.folders(spec, case) if kind else ():
            if not source.cached(("folder", folder), lambda at=folder: is_folder(at)):
                place = config_place(spec.place).entry(key)
                seen = ", relative to the suite" if key == "cwd" else ""
                source.problems.note(place, f"there is no folder {str(folder)!r}{seen}")


def _with_fallbacks(names: Sequence[str], known: Mapping[str, TargetSpec]) -> Iterator[TargetSpec]:
    """The targets, or the default one, with their fallbacks."""
    usual = (
        (DEFAULT_TARGET_NAME,)
        if DEFAULT_TARGET_NAME in known
        else tuple(known)
        if len(known) == 1
        else ()
    )
    for name in names or usual:
        if name in known:
            yield from (known[one] for one in (name, *known[name].fallbacks) if one in known)


def unknown_target(name: str, known: Mapping[str, TargetSpec]) -> str:
    remedy = suggestion(name, known) if known else "add it to .goent/targets.yaml"
    return f"there is no target {name!r}; {remedy}"


CaseFilter = Callable[[EvalCase], bool]
"""Whether a case is run; if not, its targets need not exist."""


class ValidationResult(Value, frozen=True, kw_only=True):
    """What could be read, and every mistake with file, line and key. `files` are those that were read.

    `warnings` are about suites that can run, but may not do what was meant.
    """

    suites: tuple[Suite, ...] = ()
    targets: Mapping[str, TargetSpec] = {}
    mistakes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def cases(self) -> int:
        return sum(len(suite.cases) for suite in self.suites)


def validate(  # noqa: PLR0913 (what is read, and what for)
    paths: Sequence[Path],
    environ: Mapping[str, str],
    *,
    named: Path | None = None,
    asked: Sequence[str] = (),
    chosen: CaseFilter = lambda _: True,
    compat: bool = False,
    running: bool = True,
) -> ValidationResult:
    """Reads suites, with the targets nearest to them or those of the file `named`.

    `asked` are targets to use instead of those that cases name. Unless `running`, as for grading,
    files that only attempts need may be missing.
    """
    problems = Problems()
    source = FileSource(environ, problems, running=running)
    suites = read_suites(paths, source, compat=compat)
    targets: dict[str, TargetSpec] = {}
    mistaken: set[tuple[Path, ...]] = set()
    for folder, inside in _suites_by_folder(suites).items():
        before = problems.mistake_count
        known = read_targets(folder, source, named=named)
        files = (named,) if named else find_targets(folder)
        if problems.mistake_count > before:
            mistaken.add(files)
        if files in mistaken:  # a name may be missing because of that
            continue
        cases = [case for suite in inside for case in suite.cases]
        known = {**known, **suite_aliases(cases, known, source, asked)}
        _join_targets(targets, known, problems)
        for case in filter(chosen, cases):
            mentions = () if asked else source.targets.get((case.suite, case.place), ())
            own = ((one.place, one.name) for one in mentions if not isinstance(one, TargetAlias))
            for place, name in (*own, *judge_mentions(case.all_graders)):
                if name not in known:
                    problems.note(place, unknown_target(name, known))
            if running:
                check_folders(case, asked or case.targets, known, source)
    return ValidationResult(
        suites=suites,
        targets=targets,
        mistakes=_mistake_lines(problems),
        warnings=() if compat else tuple(_unread_criteria(suites, chosen)),
        files=tuple(source.files),
    )


def _unread_criteria(suites: Sequence[Suite], chosen: CaseFilter) -> Iterator[str]:
    """Warns once per suite about criteria that no judge reads; AgentV's seed dialect requires them."""
    for suite in suites:
        cases = [
            case
            for case in suite.cases
            if case.criteria and chosen(case) and not any(map(_reads_criteria, case.all_graders))
        ]
        if cases and suite.form != "seed":
            place = config_place(cases[0].place).entry("criteria")
            more = len(cases) - 1
            others = f", nor that of {more} other case{'s' * (more > 1)}" if more else ""
            yield (
                f"{place}: no grader reads it{others}: with assertions there is no implicit judge; add "
                "{type: llm-grader} to them, or drop the suite's by `execution: {skip_defaults: true}`"
            )


def _reads_criteria(grader: GraderSpec) -> bool:
    """Scripts may; a judge does, unless it has criteria of its own."""
    kind = GRADERS.get(grader.type)
    if kind and kind.ask:
        return not (kind.is_judged and isinstance(grader.settings.get("criteria"), str))
    how = grader.settings.get("aggregator")
    by_judge = isinstance(how, dict) and "llm-grader" in how.values()
    return by_judge or any(map(_reads_criteria, grader.members))


def _suites_by_folder(suites: Sequence[Suite]) -> Mapping[Path, list[Suite]]:
    found: dict[Path, list[Suite]] = {}
    for suite in suites:
        found.setdefault(suite.path.resolve().parent, []).append(suite)
    return found


def _join_targets(
    targets: dict[str, TargetSpec], known: Mapping[str, TargetSpec], problems: Problems
) -> None:
    """Joins the targets of all folders; two with the same name must be equal."""
    for name, spec in known.items():
        other = targets.setdefault(name, spec)
        if other != spec:
            remedy = "rename one, run the suites apart, or name one file by --targets"
            message = f"{name!r} is also the name of another target in {other.place.file}; {remedy}"
            problems.note(config_place(spec.place), message)


def _mistake_lines(problems: Problems) -> tuple[str, ...]:
    try:
        problems.raise_all()
    except ConfigError as error:
        return tuple(str(error).splitlines())
    return ()


def judge_mentions(graders: Sequence[GraderSpec]) -> Iterator[tuple[SettingPlace, str]]:
    """The targets that graders name as judges, and where."""
    for grader in graders:
        name = grader.settings.get("target")
        kind = GRADERS.get(grader.type)
        if isinstance(name, str) and kind and kind.is_judged:
            yield config_place(grader.place).entry("target"), name
        yield from judge_mentions(grader.members)


def load_graders(
    path: Path,
    environ: Mapping[str, str],
    *,
    cases: Iterable[EvalCase],
    targets: Mapping[str, TargetSpec],
    compat: bool,
) -> tuple[GraderSpec, ...]:
    """Reads a list of graders, or one under `assertions`, for these cases; `targets` may judge.

    Raises one `ConfigError` with every mistake, as for a suite.
    """
    problems = Problems()
    source = FileSource(environ, problems)
    node = source.document(path)
    found: tuple[GraderSpec, ...] = ()
    if isinstance(node, Table):
        found = read_table(node, lambda fields: read_grader_list(fields, source), problems)
    elif isinstance(node, Items):
        found = read_graders(node, source)
    if node is not None and not any(map(can_score, found)):
        problems.note(node.place, "holds no grader that counts: assertions: [{type: …}]")
    for place, name in judge_mentions(found):
        if name not in targets:
            problems.note(place, unknown_target(name, targets))
    for case in () if compat else cases:
        graded = replace(case, graders=found, conversation=None)
        check_graders(graded, source, sound=False)
    problems.raise_all()
    return found
