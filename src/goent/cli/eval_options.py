"""Arguments and options of the `go-ent eval` commands, and the folders of runs that they read."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from goent.cli.terminal import print_notice
from goent.domain.errors import RequestError
from goent.evals.eval_results import Rows, read_rows
from goent.evals.reports.report_text import left_out_text
from goent.evals.runner.run_folder import RunManifest, current_rows, read_manifest
from goent.evals.runner.run_locations import RUNS_FOLDER, stored_runs
from goent.system.project_folders import find_project


def require_finite(value: float | None) -> float | None:
    """Refuse `nan` and `inf`, which bound nothing."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value!r} must be a finite number.")
    return value


def parse_folder(path: str) -> Path:
    """Refuse the value of an unset variable: it does not mean the current folder."""
    if not path:
        raise typer.BadParameter("'' is not a folder; name one, or leave the option out.")
    return Path(path)


SuitesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="SUITE...",
        help="Suite files (*.yaml, *.jsonl), or folders with *.eval.yaml.",
        show_default=False,
    ),
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", metavar="NAME", help="Replaces the suites' targets; repeatable."
    ),
]
TargetsFileOption = Annotated[
    Path | None,
    typer.Option(
        "--targets",
        metavar="FILE",
        help="Replaces the .goent/targets.yaml nearest to each suite.",
        show_default=False,
    ),
]
IdsOption = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="PATTERN", help="Only cases with matching ids; repeatable."),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", metavar="TAG", help="Only cases with this tag; repeated: with all of them."
    ),
]
WithoutTagsOption = Annotated[
    list[str] | None,
    typer.Option("--exclude-tag", metavar="TAG", help="No cases with this tag; repeatable."),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        callback=require_finite,
        help="The passing score; default: the case's, the suite's, or 0.8.",
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The default judge: a target, or provider/model."),
]
CompatOption = Annotated[
    Literal["agentv"] | None,
    typer.Option(help="Grade exactly as AgentV 4 does, quirks included."),
]

INDEX_FILE = "index.jsonl"
RunFolderArgument = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="A run's folder.", show_default=False),
]

NewestRunArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[OUT]", help="A run's folder; default: the newest run's."),
]


def newest_run() -> Path:
    """The project's newest run, named on stderr. Raises `RequestError` if there is none."""
    runs = stored_runs(find_project(Path.cwd()))
    if not runs:
        raise RequestError(
            f"no runs in {RUNS_FOLDER}: name a run's folder, or start one with `go-ent eval run SUITE`"
        )
    print_notice(f"the newest run: {runs[0]}")
    return runs[0]


def run_folder_of(out: Path) -> Path:
    return out.parent if out.name == INDEX_FILE else out


def manifest_of(folder: Path) -> RunManifest | None:
    """The run's manifest; None if the folder has none."""
    try:
        return read_manifest(folder)
    except RequestError:
        return None


def rows_of(out: Path) -> Rows:
    """The run's rows. Damaged lines are reported on stderr and do not count."""
    manifest = manifest_of(run_folder_of(out))
    if manifest and manifest.ended is None and not (run_folder_of(out) / INDEX_FILE).exists():
        raise RequestError(
            f"no trial has ended yet in {str(run_folder_of(out))!r}; resume the run with "
            f"`go-ent eval run SUITE --out {run_folder_of(out)} --resume`"
        )
    found = current_rows(read_rows(run_folder_of(out) / INDEX_FILE), run_folder_of(out))
    if found.damaged:
        numbers = ", ".join(map(str, found.damaged[:10]))
        more = f" and {len(found.damaged) - 10} more" if len(found.damaged) > 10 else ""  # noqa: PLR2004 (as above)
        where, verb = ("line", "it does") if len(found.damaged) == 1 else ("lines", "they do")
        index = run_folder_of(out) / INDEX_FILE
        print_notice(f"{index}: no row in {where} {numbers}{more}; {verb} not count")
    if found.dropped:
        print_notice(left_out_text(found.dropped))
    return found
