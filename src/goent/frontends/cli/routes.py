"""The commands about where tasks go: `recommend`, and `routes` with all that is behind it."""

from pathlib import Path
from typing import Annotated

import typer

from goent.domain.learned import Learned, LearnedRequest
from goent.domain.provider_replies import Explained, Recommended, RuleList
from goent.domain.requests import RecommendRequest, RulesRequest
from goent.frontends.cli.client import Trouble, daemon
from goent.frontends.cli.options import Json
from goent.frontends.cli.show import print_json

Task = Annotated[str, typer.Argument(metavar="TASK", help="What a worker would have to do.")]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="A file it is about; may be repeated."),
]
Tokens = Annotated[
    int | None, typer.Option(min=0, help="What there is to read, if you know better.")
]
Budget = Annotated[
    float | None, typer.Option("--budget", metavar="USD", min=0.000001, help="What it may cost.")
]

routes = typer.Typer(help="Which rules decide where tasks go; without a command, list them.")


def recommend(
    task: Task,
    *,
    file: Files = None,
    context_tokens: Tokens = None,
    budget: Budget = None,
    json: Json = False,
) -> int:
    """Say who should get a task, at what cost, and whether to hand it over at all."""
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    with daemon() as through:
        found = through.call("provider_recommend", request, Recommended)
    if json:
        print_json(found)
        return 0
    from goent.frontends.cli.ways import show_recommended  # noqa: PLC0415 (only what is drawn)

    show_recommended(found)
    return 0


@routes.callback(invoke_without_command=True)
def rules(context: typer.Context, *, json: Json = False) -> int:
    """List the rules in the order in which they are asked, and what comes after them."""
    if context.invoked_subcommand is not None:
        return 0
    with daemon() as through:
        found = through.call("routes_list", RulesRequest(), RuleList)
    if json:
        print_json(found)
        return 0
    from goent.frontends.cli.ways import show_rules  # noqa: PLC0415 (the same)

    show_rules(found)
    return 0


@routes.command()
def explain(
    task: Task,
    *,
    file: Files = None,
    context_tokens: Tokens = None,
    budget: Budget = None,
    json: Json = False,
) -> int:
    """Show each rule and why it did or did not match a task, and what followed.

    Exits 1 if nobody can take the task now.
    """
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    with daemon() as through:
        found = through.call("routes_explain", request, Explained)
    if json:
        print_json(found)
    else:
        from goent.frontends.cli.ways import show_explained  # noqa: PLC0415 (the same)

        show_explained(found)
    return 0 if found.provider else 1


@routes.command()
def learned(*, json: Json = False) -> int:
    """Show what outcomes have taught of each provider, and what they would have chosen so far."""
    with daemon() as through:
        found = through.call("routes_learned", LearnedRequest(), Learned)
    if json:
        print_json(found)
        return 0
    from goent.frontends.cli.learned import show_learned  # noqa: PLC0415 (the same)

    show_learned(found)
    return 0


@routes.command()
def replay(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A JSON object with 'text' a line; default: a sample."),
    ] = None,
    *,
    best: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="Your best model; default: the dearest.")
    ] = None,
    json: Json = False,
) -> int:
    """Replay a day of tasks: what each would cost on the best model, and by the router."""
    from goent.frontends.cli.replay import replayed, show_replay, tasks_of  # noqa: PLC0415 (only here)

    try:
        tasks = tasks_of(file)
    except (OSError, ValueError) as error:
        raise Trouble(f"cannot read the tasks of {str(file)!r}: {error}", 2) from error
    with daemon() as through:
        day = replayed(tasks, best, through)
    if json:
        print_json(day)
    else:
        show_replay(day)
    return 0
