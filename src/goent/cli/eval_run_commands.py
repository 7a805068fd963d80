"""The commands `go-ent eval run` and `go-ent eval grade`."""

import math
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Annotated, Final, Literal

import anyio
import typer
from msgspec.structs import replace

from goent.cli.command_options import JsonOption, ask_before_work
from goent.cli.daemon_link import open_daemon_link
from goent.cli.display import print_json, show_rows, show_table
from goent.cli.eval_display import print_summary_json, show_run_summary
from goent.cli.eval_options import (
    CompatOption,
    IdsOption,
    JudgeOption,
    RunFolderArgument,
    SuitesArgument,
    TagsOption,
    TargetsFileOption,
    TargetsOption,
    ThresholdOption,
    WithoutTagsOption,
    parse_folder,
    require_finite,
    run_folder_of,
)
from goent.cli.eval_progress import open_progress
from goent.cli.terminal import StdoutUnwritable, discard_output, print_notice, strip_controls
from goent.composition.eval_app import EvalApp
from goent.composition.live_project import Project
from goent.domain.errors import ConfigError, GoentError
from goent.evals.eval_results import Row
from goent.evals.files.suite_validation import load_graders
from goent.evals.runner.eval_run import EvalLimits
from goent.evals.runner.preflight import (
    DryRun,
    DryRunCase,
    check_judges,
    describe_run,
    find_judges,
    prepare_checked_run,
)
from goent.evals.runner.run_folder import (
    StoredRun,
    current_rows,
    interrupted_cost_usd,
    read_manifest,
    superseded_rows,
)
from goent.evals.runner.run_locations import new_run_folder
from goent.evals.runner.run_preparation import (
    PreparedRun,
    prepare_in_folder,
    prepare_run,
    run_arguments,
    with_graders,
)
from goent.evals.runner.run_scheduler import RunOutcome
from goent.evals.runner.trial_plan import RunSelection
from goent.evals.targets.target_settings import target_secrets
from goent.system.project_folders import find_project

STDIN_FD = 0


def end_with_input() -> None:
    """End when standard input does: a killed daemon cannot send a signal."""
    Thread(target=_wait_for_end_of_input, name="end of input", daemon=True).start()


def _wait_for_end_of_input() -> None:
    try:
        while os.read(STDIN_FD, 4096):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


SIGNAL_EXIT: Final = 128
EXECUTION_ERROR: Final = 3
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

NextSteps = Sequence[tuple[str, str]]  # commands, and the purpose of each


def run_with_progress(
    work: Callable[[EvalApp], Awaitable[RunOutcome]],
    project: Project,
    folder: StoredRun,
    *,
    json: bool,
    next_steps: Callable[[RunOutcome | int], NextSteps] = lambda _: (),
    if_interrupted: str = "",
) -> int:
    """Do the work, show the summary of the run's folder, and return the exit code.

    `if_interrupted` is shown instead, where an interruption leaves nothing new to summarize.
    """
    try:
        ended = anyio.run(_run_app, work, project, json)
    except GoentError:
        raise
    except Exception:  # noqa: BLE001 (an internal error must not exit 1, which means failed cases)
        traceback.print_exc()
        return EXECUTION_ERROR
    code = SIGNAL_EXIT + ended if isinstance(ended, int) else ended.exit_code
    if isinstance(ended, int) and if_interrupted:
        print_notice(f"interrupted: {if_interrupted}")
        return code
    rows = current_rows(folder.rows(), folder.path)
    try:
        if json:
            print_summary_json(rows, folder.path, exit_code=code)
        else:
            show_run_summary(rows, folder.path, next_steps=next_steps(ended), exit_code=code)
        sys.stdout.flush()
    except StdoutUnwritable as error:
        discard_output(sys.stdout)
        report = f"`go-ent eval report {shlex.quote(str(folder.path))}` shows it"
        print_notice(f"the summary cannot be written to stdout: {error.strerror}; {report}")
        return code or EXECUTION_ERROR
    return code


async def _run_app(
    work: Callable[[EvalApp], Awaitable[RunOutcome]], project: Project, silent: bool
) -> RunOutcome | int:

    with ExitStack() as shown:
        watcher = shown.enter_context(open_progress(silent=silent))
        app = EvalApp(
            project=project, open_daemon=lambda: open_daemon_link(project.folder), watcher=watcher
        )
        return await _run_interruptible(lambda: work(app), shown)


async def _run_interruptible(
    work: Callable[[], Awaitable[RunOutcome]], shown: ExitStack
) -> RunOutcome | int:
    """The outcome, or the signal that cancelled the work, once everything it started has ended.

    A second signal exits immediately.
    """
    came: list[int] = []
    done: list[RunOutcome] = []
    wrong: list[GoentError] = []
    async with anyio.create_task_group() as group:

        async def listen() -> None:
            wanted = [
                one for one in END_SIGNALS if signal.getsignal(one) is not signal.SIG_IGN
            ]  # nohup
            with anyio.open_signal_receiver(*wanted) as heard:
                async for number in heard:
                    if came:  # the second one: the guard process ends what is left
                        with suppress(OSError):
                            shown.close()
                        os._exit(SIGNAL_EXIT + number)
                    came.append(number)
                    working.cancel()

        group.start_soon(listen)
        with anyio.CancelScope() as working:
            try:
                done.append(await work())
            except GoentError as error:  # raised as itself, not in a group
                wrong.append(error)
        group.cancel_scope.cancel()
    if wrong:
        raise wrong[0]
    return done[0] if done else came[0]


LASTING_FAILURES: Final = (
    "refused",
    "unknown_model",
    "auth_refused",
    "no_model",
    "opencode_missing",
)
_SUITE_BUDGET: Final = " of the suite "  # in the message about a suite's budget


def next_steps(
    ended: RunOutcome | int, prepared: PreparedRun, folder: StoredRun, bounds: EvalLimits
) -> NextSteps:

    out = shlex.quote(str(folder.path))
    again = (
        f"{shlex.join(['go-ent', 'eval', 'run', *run_arguments(prepared.manifest)])} --out {out}"
    )
    if isinstance(ended, int):
        return ((f"{again}{_limit_options(bounds)} --resume", "resume it"),)
    ungraded, failed = _split_errors(folder)
    # Trials that only lack grades are not repeated: that would cost as much as the first time.
    steps = [(f"go-ent eval grade {out}", _regrade_purpose(ungraded))] if ungraded else []
    halted = any(suite.fail_on_error for suite in prepared.suites) and bool(ungraded or failed)
    retry = f"{again}{_limit_options(bounds)} --retry errors"
    if halted and failed and ended.unrun:
        steps.append((retry, "retry what failed, and run the rest"))
    elif ended.unrun:
        more = (bounds, "") if halted else _larger_budget(ended.stopped, bounds, prepared, folder)
        steps.append((f"{again}{_limit_options(more[0])} --resume", f"resume it{more[1]}"))
    elif failed:
        steps.append((retry, _retry_purpose(failed, graded_first=bool(ungraded))))
    return steps or ((f"go-ent eval report {out} --html report.html", "open the report"),)


def _split_errors(folder: StoredRun) -> tuple[list[Row], list[Row]]:
    """Trials that ran but were not graded, and those that could not run."""
    rows = current_rows(folder.rows(), folder.path).rows
    errors = [row for row in rows if row.execution_status == "execution_error"]
    return [row for row in errors if row.ungraded], [row for row in errors if not row.ungraded]


def _retry_purpose(rows: Sequence[Row], *, graded_first: bool) -> str:
    what_for = "retry the attempts with errors"
    if graded_first:
        return f"then {what_for}"
    if all((row.error or "").partition(":")[0] in LASTING_FAILURES for row in rows):
        return f"once that is fixed, {what_for}"
    return what_for


def _regrade_purpose(rows: Sequence[Row]) -> str:
    errors = [row.error or "" for row in rows]
    if all(error.startswith("cannot start ") for error in errors):
        when = "once the grader's program can be started"
    elif all(error.startswith("judge ") for error in errors):
        when = "once the judge answers, or with another one by --judge NAME"
    else:
        when = "once that is fixed"
    return f"{when}: grade again, without running an agent"


def _larger_budget(
    stopped: str, bounds: EvalLimits, prepared: PreparedRun, folder: StoredRun
) -> tuple[EvalLimits, str]:
    """Bounds with more to spend than was spent already, which counts when the run resumes."""
    if not stopped:
        return bounds, ""
    if bounds.budget_usd is None or _SUITE_BUDGET in stopped:
        return bounds, ", once its suite's budget_usd is larger"
    limit = 2 * max(bounds.budget_usd, _total_spent(prepared, folder))
    if not limit:
        return replace(bounds, budget_usd=None), ", without a limit"
    limit = math.ceil(limit * 10_000) / 10_000
    return replace(bounds, budget_usd=limit), f", for up to ${limit:g} in all"


def _total_spent(prepared: PreparedRun, folder: StoredRun) -> float:

    every = (*superseded_rows(folder.path), *folder.rows().rows)
    rows = (row for row in every if not row.held_back_by)
    lost = (interrupted_cost_usd(folder.path / trial.folder) for trial in prepared.trials)
    return math.fsum((*(row.known_cost_usd for row in rows), *lost))


def _limit_options(bounds: EvalLimits) -> str:
    """The bounds of the run, as options."""
    told = (
        ("--workers", bounds.workers, None),
        ("--budget-usd", bounds.budget_usd, None),
        ("--timeout", bounds.timeout_s, 600.0),
        ("--keep-workspaces", bounds.keep, "failure"),
    )
    return "".join(
        f" {option} {value:g}" if isinstance(value, float) else f" {option} {value}"
        for option, value, usual in told
        if value != usual
    )


MAX_CASES: Final = 50  # --json has all of them


def show_dry_run(foreseen: DryRun, *, json: bool) -> None:
    if json:
        print_json(foreseen)
        return
    for warning in foreseen.warnings:
        print_notice(strip_controls(warning))
    targets = (
        (
            target.name,
            target.kind,
            str(target.to_make),
            str(target.at_once),
            ", ".join(target.fallbacks) or "-",
        )
        for target in foreseen.targets
    )
    show_table(("TARGET", "KIND", "TRIALS", "PARALLEL", "FALLBACKS"), targets)
    print()
    show_table(
        ("SUITE", "CASE", "TARGETS", "TRIALS", "GRADERS", "JUDGES", "WORKSPACE"),
        map(_case_row, foreseen.cases[:MAX_CASES]),
    )
    if len(foreseen.cases) > MAX_CASES:
        print(f"and {len(foreseen.cases) - MAX_CASES} more; --json has all of them")
    print()
    show_rows(_limit_rows(foreseen))
    print(f"{_trial_count(foreseen)}: nothing was started")


def _case_row(case: DryRunCase) -> tuple[str, ...]:
    return (
        case.suite,
        case.test_id
        + (f", {case.turns} turns" if case.turns > 1 else "")
        + (f", after {', '.join(case.after)}" if case.after else ""),
        ", ".join(case.targets),
        str(case.to_make),
        ", ".join(case.graders) or "-",
        ", ".join(case.judges) or "-",
        case.workspace or "-",
    )


def _limit_rows(foreseen: DryRun) -> list[tuple[str, str]]:
    judges = (f"{name} ({kind})" for name, kind in foreseen.judges.items())
    budgets = [f"${foreseen.budget_usd:g} for the run"] if foreseen.budget_usd is not None else []
    budgets += [f"${usd:g} for {suite}" for suite, usd in foreseen.budgets_usd.items()]
    free = ", ".join(foreseen.unconfined)
    return [
        ("judges", ", ".join(judges)),
        *([("not confined", f"{free}: `cli` commands run outside the sandbox")] if free else []),
        ("budget", ", ".join(budgets) or "none"),
        ("limit", f"{foreseen.timeout_s:g} s for an attempt"),
        ("folder", foreseen.out or f"a new folder in {RUNS_FOLDER}"),
    ]


def _trial_count(foreseen: DryRun) -> str:
    made = foreseen.trials - foreseen.to_make
    told = f"{foreseen.to_make} trial{'s' * (foreseen.to_make != 1)}"
    told += f" of {len(foreseen.cases)} case{'s' * (len(foreseen.cases) != 1)}"
    return f"{told}, {made} already made" if made else told


RUNS_FOLDER: Final = ".goent/evals"


def run(  # noqa: PLR0913 (the options of a command)
    suites: SuitesArgument,
    *,
    target: TargetsOption = None,
    targets: TargetsFileOption = None,
    ids: IdsOption = None,
    tags: TagsOption = None,
    exclude_tags: WithoutTagsOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", "-j", min=1, max=50, help="Attempts in parallel, for each target."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Trials of each case.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=parse_folder,
            help=f"The run's folder; default: a new one in {RUNS_FOLDER}.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    retry: Annotated[
        Literal["errors", "failed"] | None,
        typer.Option(help="Resume, re-running errored or failed trials."),
    ] = None,
    threshold: ThresholdOption = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=require_finite,
            help="Start no trial that is likely to exceed what is left.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, callback=require_finite, help="Seconds for an attempt.")
    ] = 600.0,
    keep_workspaces: Annotated[
        Literal["always", "failure", "never"],
        typer.Option(help="Which workspaces to keep for inspection."),
    ] = "failure",
    judge: JudgeOption = None,
    compat: CompatOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and start nothing.")
    ] = False,
    attended: Annotated[
        bool, typer.Option("--attended", hidden=True, help="End when standard input does.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Run each case on each target, grade the results, and keep everything.

    Exits 0 if all cases pass, 1 if one fails, 2 if a file is wrong, 3 if one has errors.
    """
    if attended:
        end_with_input()
    wanted = RunSelection(
        targets=tuple(target or ()),
        ids=tuple(ids or ()),
        tags=tuple(tags or ()),
        without_tags=tuple(exclude_tags or ()),
        trials=trials,
        threshold=threshold,
        judge=judge or "",
        compat=compat is not None,
    )
    home = find_project(Path.cwd())
    ask_before_work(json=json or attended or dry_run)
    prepared = prepare_checked_run(suites, os.environ, wanted, project=home, targets_file=targets)
    again = retry or ("none" if resume else None)
    if again and out is None:
        raise ConfigError("--resume and --retry need the run's folder: add --out")
    bounds = EvalLimits(
        workers=workers, budget_usd=budget_usd, timeout_s=timeout, keep=keep_workspaces
    )
    if dry_run:
        if out is not None:
            folder = StoredRun(out)
            folder.check_usable()
            prepared = prepare_in_folder(prepared, folder, again)
        show_dry_run(describe_run(prepared, bounds, out), json=json)
        return 0
    project = Project(home, dict(os.environ))
    own = target_secrets(prepared.specs.values())
    place = out or new_run_folder(project.folder)
    with StoredRun.open(place, lambda: (*project.secrets(), *own)) as folder:
        prepared = prepare_in_folder(prepared, folder, again)
        return run_with_progress(
            lambda app: app.run(prepared, folder, bounds),
            project,
            folder,
            json=json,
            next_steps=lambda ended: next_steps(ended, prepared, folder, bounds),
        )


def grade(  # noqa: PLR0913 (the options of a command)
    run: RunFolderArgument,
    *,
    suites: Annotated[
        list[Path] | None,
        typer.Option("--suite", metavar="FILE", help="Replaces the run's suites; repeatable."),
    ] = None,
    graders: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Replaces the graders of all cases: assertions: […], or only the list.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=parse_folder,
            help="Write here, and leave the run as it is.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=require_finite,
            help="The passing score; default: that of the run or its suites.",
        ),
    ] = None,
    judge: JudgeOption = None,
    compat: Annotated[
        Literal["agentv", "none"] | None,
        typer.Option(help="Grade exactly as AgentV 4 does, or not; default: as in the run."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Grade a stored run again, with its suites' current graders or with others.

    The old index is kept beside the new one; run.json records threshold and judge. Exits as `run` does.
    """
    source = run_folder_of(run).absolute()
    told = read_manifest(source)
    wanted = replace(
        told.wanted,
        threshold=told.wanted.threshold if threshold is None else threshold,
        judge=judge or told.wanted.judge,
        compat=told.wanted.compat if compat is None else compat == "agentv",
    )
    prepared = prepare_run(
        suites or [Path(path) for path in told.suites],
        os.environ,
        wanted,
        targets_file=Path(told.targets_file) if told.targets_file else None,
        running=False,
    )
    if graders:
        cases = {(trial.case.suite, trial.case.id): trial.case for trial in prepared.trials}
        read = load_graders(
            graders,
            os.environ,
            cases=cases.values(),
            targets=prepared.specs,
            compat=wanted.compat,
        )
        prepared = with_graders(prepared, read)
    project = Project(find_project(Path.cwd()), dict(os.environ))
    # Missing judges are reported before anything is written.
    check_judges(find_judges(prepared), prepared.specs, project.folder, os.environ)
    own = target_secrets(prepared.specs.values())
    place = (out or source).absolute()
    with StoredRun.open(place, lambda: (*project.secrets(), *own)) as folder:
        if out and folder.is_used and folder.path != source:
            raise ConfigError(f"{str(out)!r} already holds a run: name another --out")
        return run_with_progress(
            lambda app: app.grade(prepared, source, folder),
            project,
            folder,
            json=json,
            if_interrupted="the new grades are discarded; the earlier ones still count",
        )
