"""Reads suites from files and folders, and reports all mistakes together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

from goent.config.settings_tree import (
    Items,
    Mention,
    Node,
    Problems,
    SettingPlace,
    SettingsFields,
    Table,
    describe_node,
    read_table,
)
from goent.domain.input_mistakes import suggestion
from goent.domain.types import Value
from goent.evals.files.case_input_reader import read_files, read_input
from goent.evals.files.case_reader import (
    ExecutionSettings,
    SuiteDefaults,
    read_case,
    read_execution,
    read_metadata,
    read_target_names,
    reject_key,
)
from goent.evals.files.file_source import LARGEST_FILE, FileSource, config_place
from goent.evals.files.grader_reader import read_grader_list, read_graders
from goent.evals.files.workspace_reader import workspace_table
from goent.evals.suites import EvalCase, Suite, SuiteDialect, SuiteLocation, Trials
from goent.system.plain_files import is_plain, read_plain

MOST_CYCLES: Final = 20  # cycles reported together


def check_needs(
    cases: Sequence[EvalCase],
    needs: Mapping[SuiteLocation, tuple[Mention, ...]],
    problems: Problems,
) -> None:
    """Notes unknown ids, and cases that depend on themselves."""
    known = {case.id: case for case in cases}
    mentioned = {case.id: needs.get(case.place, ()) for case in cases}
    for case in cases:
        for mention in mentioned[case.id]:
            if mention.name not in known:
                others = tuple(name for name in known if name != case.id)
                remedy = suggestion(mention.name, others) if others else "remove it"
                problems.note(
                    mention.place, f"no case of this suite has the id {mention.name!r}; {remedy}"
                )
    for circle in _cycles({case.id: case.needs for case in cases}):
        first = next(one for one in mentioned[circle[0]] if one.name == circle[1])
        problems.note(first.place, f"depends on itself: {' → '.join(circle)}; remove one of them")


def _cycles(needs: dict[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Cycles of dependent cases; no case is in two of them."""
    for _ in range(MOST_CYCLES):
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            told: list[str] = error.args[1]
            yield told[::-1]
            needs = {name: of for name, of in needs.items() if name not in told}
        else:
            return


MOST_WORKERS: Final = 50
MOST_TRIALS: Final = 1000
SUITE_ENDINGS: Final = (".eval.yaml", ".eval.yml")
NO_SUITE: Final = "holds no suite (*.eval.yaml); name a *.jsonl file itself"


class _SuiteExecution(Value, frozen=True, kw_only=True):
    """How a suite is run."""

    execution: ExecutionSettings
    workers: int | None = None
    budget_usd: float | None = None
    trials: Trials = Trials()
    fail_on_error: bool = False


def load_suites(
    paths: Sequence[Path], environ: Mapping[str, str], *, compat: bool = False
) -> tuple[Suite, ...]:
    """The suites in files and folders. Raises one `ConfigError` with every mistake.

    With `compat`, a case in which no grader counts is accepted, as in AgentV; its score is 0.
    """
    source = FileSource(environ, Problems())
    found = read_suites(paths, source, compat=compat)
    source.problems.raise_all()
    return found


def read_suites(
    paths: Sequence[Path], source: FileSource, *, compat: bool = False
) -> tuple[Suite, ...]:
    """As `load_suites`, but notes mistakes and returns what could be read."""
    found = [
        suite
        for path in _suite_files(paths, source.problems)
        if (suite := _load_suite(path, source, compat=compat))
    ]
    _check_names(found, source.problems)
    return tuple(found)


def _suite_files(paths: Sequence[Path], problems: Problems) -> tuple[Path, ...]:
    found: dict[Path, Path] = {}
    for path in paths:
        inside = _suites_inside(path) if path.is_dir() else (path,)
        if not inside:
            problems.note(SettingPlace(file=str(path)), NO_SUITE)
        for one in inside:
            data = _data_set_of(one)
            found.setdefault(data.absolute(), data)
    return tuple(found.values())


def _suites_inside(folder: Path) -> tuple[Path, ...]:
    inside = (path for path in sorted(folder.rglob("*")) if not _is_hidden(path, folder))
    named = (path for path in inside if path.name.endswith(SUITE_ENDINGS))
    # A dangling link is included, so that reading it reports the mistake.
    return tuple(path for path in named if path.is_file() or not path.exists())


def _is_hidden(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return any(part.startswith(".") or part == "node_modules" for part in parts)


def _data_set_of(path: Path) -> Path:
    """The data set, if the path is its sidecar."""
    for ending in SUITE_ENDINGS:
        if path.name.endswith(ending):
            data = path.with_name(path.name.removesuffix(ending) + ".jsonl")
            if data.is_file() and _is_sidecar(path):
                return data
    return path


def _is_sidecar(path: Path) -> bool:
    """With tests of its own it is a suite. Unreadable files are reported later."""
    try:
        lines = read_plain(path, LARGEST_FILE).decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return is_plain(path)
    return not any(line.startswith(("tests:", "evalcases:")) for line in lines)


def _load_suite(path: Path, source: FileSource, *, compat: bool) -> Suite | None:
    if path.suffix == ".jsonl":
        beside = (path.with_name(path.stem + ending) for ending in SUITE_ENDINGS)
        side = next(filter(_is_sidecar, beside), None)
        table = source.table(side) if side else Table(place=SettingPlace(file=str(path)))
        tests = tuple(source.lines(path))
    else:
        table, tests = source.table(path), None
    if table is None:
        return None
    return read_table(
        table,
        lambda fields: _read_suite(fields, path, tests, source, compat=compat),
        source.problems,
    )


def _read_suite(
    fields: SettingsFields,
    path: Path,
    tests: tuple[Table, ...] | None,
    source: FileSource,
    *,
    compat: bool,
) -> Suite:
    form: SuiteDialect = "seed" if fields.has("evalcases") else "v4"
    name = fields.text("name", "") or fields.text("suite", "") or _suite_stem(path)
    run = fields.section("execution", _read_execution)
    graders = (*read_grader_list(fields, source), *read_graders(run.execution.graders, source))
    shared = SuiteDefaults(
        suite=name,
        folder=path.parent,
        form=form,
        input=read_input(fields.node("input"), source),
        files=read_files(fields, "input_files", source),
        graders=graders,
        targets=run.execution.targets or read_target_names(fields),
        workspace=workspace_table(fields.node("workspace"), source),
        metadata=_read_description(fields),
        compat=compat,
    )
    tables = _case_tables(fields, form, source) if tests is None else tests
    read = (read_case(table, shared, source) for table in tables)
    cases = tuple(case for case in read if case)
    _check_ids(cases, source.problems)
    check_needs(cases, source.needs, source.problems)
    threshold = run.execution.threshold
    return Suite(
        name=name,
        path=path,
        form=form,
        cases=cases,
        description=fields.text("description", ""),
        workers=run.workers,
        threshold=0.8 if threshold is None else threshold,
        budget_usd=run.budget_usd,
        trials=run.trials,
        fail_on_error=run.fail_on_error,
    )


def _read_description(fields: SettingsFields) -> dict[str, object]:
    """A suite's description, which has no effect but for its cases' metadata."""
    for key in ("category", "version", "author", "license"):
        fields.text(key, None)
    fields.node("requires")
    reject_key(fields, "preprocessors")
    return read_metadata(fields)


def _read_execution(fields: SettingsFields) -> _SuiteExecution:
    workers = fields.integer("workers", None, least=1)
    if workers is not None and workers > MOST_WORKERS:
        fields.note_mistake("workers", f"must be at most {MOST_WORKERS}, not {workers}")
    return _SuiteExecution(
        execution=read_execution(fields),
        workers=workers,
        budget_usd=fields.amount("budget_usd", None),
        trials=_read_trial_count(fields, "trials")
        if fields.shape("trials") == "value"
        else fields.section("trials", _read_trials),
        fail_on_error=fields.flag("fail_on_error", default=False),
    )


def _read_trial_count(fields: SettingsFields, key: str) -> Trials:
    count = fields.integer(key, 1, least=1)
    if count > MOST_TRIALS:
        fields.note_mistake(key, f"must be at most {MOST_TRIALS}, not {count}")
    return Trials(count=count)


def _read_trials(fields: SettingsFields) -> Trials:
    return Trials(
        count=_read_trial_count(fields, "count").count,
        strategy=fields.choice("strategy", ("pass_at_k", "mean", "confidence_interval"), "mean"),
        cost_limit_usd=fields.amount("cost_limit_usd", None),
    )


def _case_tables(fields: SettingsFields, form: SuiteDialect, source: FileSource) -> Iterable[Table]:
    key = "evalcases" if form == "seed" else "tests"
    if form == "seed" and fields.has("tests"):
        fields.note_mistake("tests", "is the same as 'evalcases'; keep one of them")
    node = fields.node(key)
    if node is None:
        fields.note_mistake(key, "is missing; list the cases: tests: [{id: …, input: …}]")
        return ()
    mention = None if isinstance(node, Items | Table) else fields.mention(key)
    if mention:
        tables = _tables_from_files(
            Path(mention.place.file).parent / mention.name, mention.place, source
        )
    else:
        tables = _tables_in(node, source)
    if not tables and not isinstance(node, Table):
        fields.note_mistake(key, "has no case; write at least one {id: …, input: …}")
    return tables


def _tables_in(node: Node, source: FileSource) -> tuple[Table, ...]:
    if not isinstance(node, Items):
        source.problems.note(node.place, f"expected a list of cases, not {describe_node(node)}")
        return ()
    for item in node.items:
        if not isinstance(item, Table):
            source.problems.note(item.place, f"expected a case, not {describe_node(item)}")
    return tuple(item for item in node.items if isinstance(item, Table))


def _tables_from_files(path: Path, asked: SettingPlace, source: FileSource) -> tuple[Table, ...]:
    """Cases in one file, or in a folder for each."""
    try:
        folders = sorted(path.glob("*/case.yaml")) if path.is_dir() else None
    except (OSError, ValueError):
        folders = None
    if folders is not None:
        read = (source.table(case) for case in folders)
        return tuple(table for table in read if table)
    if path.suffix == ".jsonl":
        return tuple(source.lines(path, asked))
    node = source.document(path, asked)
    if isinstance(node, Table):
        node = node.entries.get("tests", node)
    return _tables_in(node, source) if node else ()


def _suite_stem(path: Path) -> str:
    for ending in (*SUITE_ENDINGS, ".yaml", ".yml", ".jsonl"):
        if path.name.endswith(ending) and path.name != ending:
            return path.name.removesuffix(ending)
    return path.name


def _check_ids(cases: Sequence[EvalCase], problems: Problems) -> None:
    known: dict[str, EvalCase] = {}
    for case in cases:
        first = known.setdefault(case.id, case)
        if first is not case:
            where = f"{first.place.file}:{first.place.line}"
            problems.note(
                config_place(case.place), f"{case.id!r} is also the id of the case at {where}"
            )


def _check_names(suites: Sequence[Suite], problems: Problems) -> None:
    """Results are identified by suite name and case id."""
    known: dict[str, Suite] = {}
    for suite in suites:
        first = known.setdefault(suite.name, suite)
        if first is not suite:
            message = f"{str(first.path)!r} has the name {suite.name!r} too; rename one"
            problems.note(SettingPlace(file=str(suite.path), key="name"), message)
