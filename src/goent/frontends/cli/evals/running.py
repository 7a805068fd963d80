"""`go-ent eval run`: how do these targets do on these suites?"""

import os
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from goent.domain.errors import ConfigError
from goent.frontends.cli.evals.advising import next_steps
from goent.frontends.cli.evals.attended import end_with_input
from goent.frontends.cli.evals.conducting import conduct
from goent.frontends.cli.evals.foretelling import foretell
from goent.frontends.cli.evals.options import (
    Compat,
    Ids,
    Judge,
    Suites,
    Tags,
    TargetNames,
    TargetsFile,
    Threshold,
    WithoutTags,
    finite,
    folder_named,
)
from goent.frontends.cli.options import Json
from goent.frontends.cli.project import ask_before_work
from goent.project import find_project

RUNS: Final = ".goent/evals"


def run(  # noqa: PLR0913 (the options of a command)
    suites: Suites,
    *,
    target: TargetNames = None,
    targets: TargetsFile = None,
    ids: Ids = None,
    tags: Tags = None,
    exclude_tags: WithoutTags = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-j", min=1, max=50, help="Attempts at once, for each target."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, max=1000, help="How often each case is tried.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=folder_named,
            help=f"Where it is kept; default: a new folder in {RUNS}.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    retry: Annotated[
        Literal["errors", "failed"] | None,
        typer.Option(help="Go on, and make again what could not be judged, or what did not pass."),
    ] = None,
    threshold: Threshold = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="Begin no trial that is likely to cost more than is left.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, callback=finite, help="Seconds for an attempt.")
    ] = 600.0,
    keep_workspaces: Annotated[
        Literal["always", "failure", "never"],
        typer.Option(help="Which workspaces stay, to look at."),
    ] = "failure",
    judge: Judge = None,
    compat: Compat = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be run, and start nothing.")
    ] = False,
    attended: Annotated[
        bool, typer.Option("--attended", hidden=True, help="End when standard input does.")
    ] = False,
    json: Json = False,
) -> int:
    """Give each case to each target, grade what it did, and keep all of it.

    Exits 0 if all pass, 1 if one does not, 2 if a file is wrong, 3 if one could not be judged.
    """
    from goent.composition.live_project import Project  # noqa: PLC0415 (the same)
    from goent.evals.running.evaluate import Bounds  # noqa: PLC0415 (other commands need none of it)
    from goent.evals.running.folder import Folder  # noqa: PLC0415 (the same)
    from goent.evals.running.foreseen import foresee  # noqa: PLC0415 (the same)
    from goent.evals.running.places import new_folder  # noqa: PLC0415 (the same)
    from goent.evals.running.plan import Wanted  # noqa: PLC0415 (the same)
    from goent.evals.running.preparing import taken_up  # noqa: PLC0415 (the same)
    from goent.evals.running.ready import ready  # noqa: PLC0415 (the same)
    from goent.evals.targets.settings import secrets_of  # noqa: PLC0415 (the same)

    if attended:
        end_with_input()
    wanted = Wanted(
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
    prepared = ready(suites, os.environ, wanted, project=home, targets_file=targets)
    again = retry or ("none" if resume else None)
    if again and out is None:
        raise ConfigError("--resume and --retry go on with a run: name its folder by --out")
    bounds = Bounds(workers=workers, budget_usd=budget_usd, timeout_s=timeout, keep=keep_workspaces)
    if dry_run:
        if out is not None:
            folder = Folder(out)
            folder.check()
            prepared = taken_up(prepared, folder, again)
        foretell(foresee(prepared, bounds, out), json=json)
        return 0
    project = Project(home, dict(os.environ))
    own = secrets_of(prepared.specs.values())
    place = out or new_folder(project.folder)
    with Folder.held(place, lambda: (*project.secrets(), *own)) as folder:
        prepared = taken_up(prepared, folder, again)
        return conduct(
            lambda app: app.run(prepared, folder, bounds),
            project,
            folder,
            json=json,
            next_steps=lambda ended: next_steps(ended, prepared, folder, bounds),
        )
