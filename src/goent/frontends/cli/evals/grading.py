"""`go-ent eval grade`: what do other graders say of what was done? Nothing is run again."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec.structs import replace

from goent.domain.errors import ConfigError
from goent.frontends.cli.evals.conducting import conduct
from goent.frontends.cli.evals.folders import Out, folder_of
from goent.frontends.cli.evals.options import Judge, finite, folder_named
from goent.frontends.cli.options import Json
from goent.project import find_project


def grade(  # noqa: PLR0913 (the options of a command)
    run: Out,
    *,
    suites: Annotated[
        list[Path] | None,
        typer.Option(
            "--suite", metavar="FILE", help="Instead of the suites that were run; repeatable."
        ),
    ] = None,
    graders: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Graders for all cases, instead of their own: assertions: […], or the bare list.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            parser=folder_named,
            help="Leave the run as it is, and write there.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="The score that passes; default: what the run was asked for, or its suites say.",
        ),
    ] = None,
    judge: Judge = None,
    compat: Annotated[
        Literal["agentv", "none"] | None,
        typer.Option(help="Judge exactly as AgentV 4 does, or not; default: as the run was."),
    ] = None,
    json: Json = False,
) -> int:
    """Score a stored run again, with its suites' graders as they are now, or with others.

    The index before is kept beside the new one, and run.json has the threshold and the judge. Exits as `run` does.
    """
    from goent.composition.live_project import Project  # noqa: PLC0415 (the same)
    from goent.evals.files import load_graders  # noqa: PLC0415 (other commands need none of it)
    from goent.evals.running.folder import Folder, read_manifest  # noqa: PLC0415 (the same)
    from goent.evals.running.judges import judges_of  # noqa: PLC0415 (the same)
    from goent.evals.running.preparing import graded_by, prepare  # noqa: PLC0415 (the same)
    from goent.evals.running.ready import check_judges  # noqa: PLC0415 (the same)
    from goent.evals.targets.settings import secrets_of  # noqa: PLC0415 (the same)

    source = folder_of(run).absolute()
    told = read_manifest(source)
    wanted = replace(
        told.wanted,
        threshold=told.wanted.threshold if threshold is None else threshold,
        judge=judge or told.wanted.judge,
        compat=told.wanted.compat if compat is None else compat == "agentv",
    )
    prepared = prepare(
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
        prepared = graded_by(prepared, read)
    project = Project(find_project(Path.cwd()), dict(os.environ))
    # Who is not there is told before anything is written.
    check_judges(judges_of(prepared), prepared.specs, project.folder, os.environ)
    own = secrets_of(prepared.specs.values())
    place = (out or source).absolute()
    with Folder.held(place, lambda: (*project.secrets(), *own)) as folder:
        if out and folder.is_used and folder.path != source:
            raise ConfigError(f"{str(out)!r} holds a run already: name another --out")
        return conduct(
            lambda app: app.grade(prepared, source, folder),
            project,
            folder,
            json=json,
            if_interrupted="the new grades are thrown away, and those from before still count",
        )
