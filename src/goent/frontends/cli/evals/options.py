"""Which suites, which of their cases, by whom, and who judges? The options that several commands have."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer


def finite(value: float | None) -> float | None:
    """A number that can be compared: `nan` is below no limit, and `inf` is none."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value!r} is no number to go by; give a finite one.")
    return value


def folder_named(path: str) -> Path:
    """An empty variable in somebody's script means no folder, and least of all the one where it runs."""
    if not path:
        raise typer.BadParameter("'' is no folder; name one, or leave the option out.")
    return Path(path)


Suites = Annotated[
    list[Path],
    typer.Argument(
        metavar="SUITE...",
        help="Files of cases (*.yaml, *.jsonl), or folders that hold *.eval.yaml.",
        show_default=False,
    ),
]
TargetNames = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="NAME", help="Instead of the suites' own; repeatable."),
]
TargetsFile = Annotated[
    Path | None,
    typer.Option(
        "--targets",
        metavar="FILE",
        help="Instead of the .goent/targets.yaml nearest to each suite.",
        show_default=False,
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="PATTERN", help="Only cases with such ids; repeatable."),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only cases with this tag; repeated: with all."),
]
WithoutTags = Annotated[
    list[str] | None,
    typer.Option("--exclude-tag", metavar="TAG", help="No case with this tag; repeatable."),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        callback=finite,
        help="The score that passes; default: the case's or the suite's, or 0.8.",
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Who judges where nobody else is named: a target, or provider/model."
    ),
]
Compat = Annotated[
    Literal["agentv"] | None,
    typer.Option(help="Judge exactly as AgentV 4 does, its oddities included."),
]
