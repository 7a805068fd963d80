"""Arguments and options that several commands share."""

from typing import Annotated

import typer

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
