"""Arguments, options and run folders that several commands share, and the trust question before work."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goent.cli.daemon_client import CommandError
from goent.cli.terminal import is_interactive
from goent.domain.verification import blank_commands

if TYPE_CHECKING:
    pass


def no_blank_commands(commands: list[str] | None) -> list[str] | None:
    """Refuses `--verify ""`, as an unset variable gives it: it would check nothing, and pass."""
    for _, reason in blank_commands(commands or ()):
        raise typer.BadParameter(reason)
    return commands


WorkerArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKER", help="A worker's id, the beginning of one, or 'last'.", show_default=False
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")
]


def require_positive(param: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what bounds nothing: 0, less, `nan` and `inf`."""
    if value is not None and not (math.isfinite(value) and value > 0):
        must = "be greater than 0" if math.isfinite(value) else "be a finite number"
        raise CommandError(f"{param.opts[0]}: {value:g} must {must}", 2)
    return value


VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also show how the task was classified, if that is sure."),
]
SwarmArgument = Annotated[
    str,
    typer.Argument(
        metavar="SWARM",
        help="A swarm's id, the beginning of one, its name, or 'last'.",
        show_default=False,
    ),
]
SwarmTasksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TASK]...", help="Only these, by id.", show_default=False),
]


def ask_before_work(cwd: Path | None = None, *, json: bool) -> None:
    """Ask whoever sits at the terminal about what is not trusted yet. Nobody else is kept waiting."""
    if json or not is_interactive():
        return
    from goent.cli.trust import ask_for_trust  # noqa: PLC0415 (it reads all settings)

    ask_for_trust(cwd)
