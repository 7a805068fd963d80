"""Arguments and options that several commands share."""

from typing import Annotated

import typer

from goent.domain.verification import blank_commands


def no_blank_commands(commands: list[str] | None) -> list[str] | None:
    """Refuses `--verify ""`, as an unset variable gives it: it would check nothing, and pass."""
    for _, reason in blank_commands(commands or ()):
        raise typer.BadParameter(reason)
    return commands


Worker = Annotated[
    str,
    typer.Argument(
        metavar="WORKER", help="A worker's id, the beginning of one, or 'last'.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")]
Swarm = Annotated[
    str,
    typer.Argument(
        metavar="SWARM",
        help="A swarm's id, the beginning of one, its name, or 'last'.",
        show_default=False,
    ),
]
SwarmTasks = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TASK]...", help="Only these, by id.", show_default=False),
]
