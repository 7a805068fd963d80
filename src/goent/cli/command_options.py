"""Arguments and options that several commands share, and the trust question before work."""

import math
from pathlib import Path
from typing import Annotated

import typer

from goent.cli.daemon_client import CommandError
from goent.cli.terminal import is_interactive
from goent.domain.verification import blank_commands


def no_blank_commands(commands: list[str] | None) -> list[str] | None:
    """Refuse `--verify ""`, the value of an unset variable: it would check nothing, and pass."""
    for _, reason in blank_commands(commands or ()):
        raise typer.BadParameter(reason)
    return commands


def require_positive(param: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what bounds nothing: 0, less, `nan` and `inf`."""
    if value is not None and not (math.isfinite(value) and value > 0):
        bound = "more than 0" if math.isfinite(value) else "a finite number"
        raise CommandError(f"{param.opts[0]}: must be {bound}, not {value:g}", 2)
    return value


WorkerArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKER", help="A worker's id, a prefix of one, or 'last'.", show_default=False
    ),
]
FilesOption = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="A file that the task is about; may be repeated."),
]
WaitTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", help="Give up after this long (default: never).", min=0
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON.")]


VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also show how the task was classified, if that is sure."),
]
SwarmArgument = Annotated[
    str,
    typer.Argument(
        metavar="SWARM",
        help="A swarm's id, a prefix of one, its name, or 'last'.",
        show_default=False,
    ),
]
SwarmTasksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TASK]...", help="Only these tasks, by id.", show_default=False),
]


def ask_before_work(cwd: Path | None = None, *, json: bool) -> None:
    """Ask at a terminal about what is not trusted yet; without one, ask nothing."""
    if json or not is_interactive():
        return
    from goent.cli.trust import ask_for_trust  # noqa: PLC0415 (it reads all settings)

    ask_for_trust(cwd)
