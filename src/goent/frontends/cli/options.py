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
