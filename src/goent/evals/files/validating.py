"""Are suites and targets in order? Everything that can be known before anything is run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from goent.config.tree import Place, Problems
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.files.asked import aliases, check_folders, unknown_target
from goent.evals.files.cases import Alias
from goent.evals.files.suites import read_suites
from goent.evals.files.targets import find_targets, read_all
from goent.evals.files.texts import Source
from goent.evals.files.trees import heard
from goent.evals.suites import Case, GraderSpec, Suite, TargetSpec

Chosen = Callable[[Case], bool]
"""Is the case to be run? If not, nobody has to be there for it."""


class Checked(Value, frozen=True, kw_only=True):
    """What could be read, and every mistake with file, line and path of keys. `files` are what was read.

    `warnings` are of what can be run, and may not be meant.
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
    chosen: Chosen = lambda _: True,
    compat: bool = False,
    running: bool = True,
) -> Checked:
    """Suites and the targets that hold where they lie, or those of the file `named`.

    `asked` are given the cases, instead of the targets that the cases name. If they are not `running`, but
    graded, what attempts need may be gone.
    """
    problems = Problems()
    source = Source(environ, problems, running=running)
    suites = read_suites(paths, source, compat=compat)
    targets: dict[str, TargetSpec] = {}
    mistaken: set[tuple[Path, ...]] = set()
    for folder, inside in _by_folder(suites).items():
        before = problems.count
        known = read_all(folder, source, named=named)
        files = (named,) if named else find_targets(folder)
        if problems.count > before:
            mistaken.add(files)
        if files in mistaken:  # a name may be missing because of that
            continue
        cases = [case for suite in inside for case in suite.cases]
        known = {**known, **aliases(cases, known, source, asked)}
        _join(targets, known, problems)
        for case in filter(chosen, cases):
            mentions = () if asked else source.targets.get((case.suite, case.place), ())
            own = ((one.place, one.name) for one in mentions if not isinstance(one, Alias))
            for place, name in (*own, *judges_named(case.every_grader)):
                if name not in known:
                    problems.note(place, unknown_target(name, known))
            if running:
                check_folders(case, asked or case.targets, known, source)
    return Checked(
        suites=suites,
        targets=targets,
        mistakes=_lines(problems),
        warnings=() if compat else tuple(_unread(suites, chosen)),
        files=tuple(source.files),
    )


def _unread(suites: Sequence[Suite], chosen: Chosen) -> Iterator[str]:
    """Criteria that are given to no judge; once for a suite. AgentV's first form demands them everywhere."""
    for suite in suites:
        cases = [
            case
            for case in suite.cases
            if case.criteria and chosen(case) and not any(map(_reads_criteria, case.every_grader))
        ]
        if cases and suite.form != "seed":
            place = heard(cases[0].place).below("criteria")
            more = len(cases) - 1
            others = f", nor that of {more} other case{'s' * (more > 1)}" if more else ""
            yield (
                f"{place}: no grader reads it{others}: beside assertions no judge goes by it; add "
                "{type: llm-grader} to them, or leave out the suite's by `execution: {skip_defaults: true}`"
            )


def _reads_criteria(grader: GraderSpec) -> bool:
    """Scripts may; a judge does, unless he has a text of his own to go by."""
    match grader.type:
        case "code-grader":
            return True
        case "llm-grader" | "rubrics":
            return not isinstance(grader.settings.get("criteria"), str)
        case _:
            by = grader.settings.get("aggregator")
            by_judge = isinstance(by, dict) and "llm-grader" in by.values()
            return by_judge or any(map(_reads_criteria, grader.members))


def _by_folder(suites: Sequence[Suite]) -> Mapping[Path, list[Suite]]:
    found: dict[Path, list[Suite]] = {}
    for suite in suites:
        found.setdefault(suite.path.resolve().parent, []).append(suite)
    return found


def _join(
    targets: dict[str, TargetSpec], known: Mapping[str, TargetSpec], problems: Problems
) -> None:
    """Those of all folders; two of one name must be the same."""
    for name, spec in known.items():
        other = targets.setdefault(name, spec)
        if other != spec:
            remedy = "rename one, run the suites apart, or name one file by --targets"
            message = f"{name!r} is the name of another target in {other.place.file}, too; {remedy}"
            problems.note(heard(spec.place), message)


def _lines(problems: Problems) -> tuple[str, ...]:
    try:
        problems.check()
    except ConfigError as error:
        return tuple(str(error).splitlines())
    return ()


def judges_named(graders: Sequence[GraderSpec]) -> Iterator[tuple[Place, str]]:
    """Targets that are to judge, and where that is written."""
    for grader in graders:
        name = grader.settings.get("target")
        if isinstance(name, str) and grader.type in ("llm-grader", "rubrics"):
            yield heard(grader.place).below("target"), name
        yield from judges_named(grader.members)
