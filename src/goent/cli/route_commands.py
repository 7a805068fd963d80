"""Commands about where tasks go: classify, providers, recommend and routes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from goent.cli.command_options import JsonOption, VerboseOption, require_positive
from goent.cli.daemon_client import CommandError, open_daemon_client
from goent.cli.display import print_json, show_table
from goent.cli.labels import duration, money, short_number
from goent.cli.route_display import (
    read_day,
    replay_day,
    show_explained,
    show_learned,
    show_recommended,
    show_replay,
    show_rules,
)
from goent.cli.terminal import strip_controls
from goent.domain.replies import (
    ExplainReply,
    ForgetReply,
    LearnedReply,
    ProviderList,
    ProviderView,
    RecommendReply,
    RuleList,
)
from goent.domain.requests import (
    ForgetRequest,
    LearnedRequest,
    ProvidersRequest,
    RecommendRequest,
    RulesRequest,
)

PROVIDER_HEADS = (
    "PROVIDER",
    "HEALTH",
    "MODEL",
    "METHOD",
    "CONTEXT",
    "PRICE IN/OUT",
    "A TASK",
    "IN USE",
)
WELL = ("ready", "direct")
HEALTH_REMEDIES = {
    "refused": "set another key, or `go-ent providers reset` once it is mended",
    "no_credit": "top up, then `go-ent providers reset`",
}


providers_group = typer.Typer(name="providers")


@providers_group.callback(invoke_without_command=True)
def providers(
    context: typer.Context,
    *,
    healthy: Annotated[
        bool, typer.Option("--healthy", help="Leave out what cannot be used now.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """List the models that workers can run on, with price and health."""
    if context.invoked_subcommand:
        return 0
    with open_daemon_client() as through:
        request = ProvidersRequest(healthy_only=healthy)
        found = through.call("provider_list", request, ProviderList)
    if json:
        print_json(found)
    else:
        show_providers(found, healthy=healthy)
    return 0


@providers_group.command()
def reset(
    name: Annotated[
        str | None, typer.Argument(help="A provider's name, or its backend's. Default: all.")
    ] = None,
    *,
    json: JsonOption = False,
) -> int:
    """Forget that a provider failed or was rate limited: the next call asks it again."""
    with open_daemon_client() as through:
        request = ForgetRequest(provider=name)
        forgotten = through.call("provider_reset", request, ForgetReply)
    if json:
        print_json(forgotten)
    else:
        print(
            f"forgot: {', '.join(forgotten.providers)}"
            if forgotten.providers
            else "nothing to forget"
        )
    return 0


def show_providers(found: ProviderList, *, healthy: bool = False) -> None:
    if not found.providers:
        print(
            "no provider can be used now; `go-ent providers` says why"
            if healthy
            else "no providers; `go-ent doctor` says how to get one"
        )
        return
    show_table(PROVIDER_HEADS, map(_provider_row, found.providers))
    for line in (*_health_lines(found), *found.warnings):
        print(strip_controls(line))
    if any(p.health == "no_key" for p in found.providers):
        print("no_key: `go-ent doctor` names the variable to set")


def _provider_row(p: ProviderView) -> tuple[str, ...]:
    calls = f" ({p.calls} calls)" if p.calls else ""
    return (
        f"{p.name} (default)" if p.default else p.name,
        f"{p.health}, {_time_left(p.cooldown_until)}" if p.cooldown_until else p.health,
        f"{p.backend}/{p.model}",
        p.method,
        short_number(p.context_limit) if p.context_limit else "-",
        _price_text(p),
        "unknown"
        if p.cost_estimate is None
        else money(p.cost_estimate)
        if p.cost_estimate
        else "$0",
        f"{p.in_use}{calls}" if p.in_use or p.calls else "-",
    )


def _price_text(p: ProviderView) -> str:
    if p.price is None:
        return "unknown"
    if not (p.price.input or p.price.output):
        return "free"
    return f"${p.price.input:g} / ${p.price.output:g}"


def _health_lines(found: ProviderList) -> Iterator[str]:
    """Why, and until when, for each that is not well."""
    for p in found.providers:
        if p.health_reason:
            if p.health in WELL:
                yield f"{p.name} is {p.health}; its last error: {p.health_reason}"
                continue
            until = f" until {_local_time(p.cooldown_until)}" if p.cooldown_until else ""
            remedy = f"; {HEALTH_REMEDIES[p.health]}" if p.health in HEALTH_REMEDIES else ""
            yield f"{p.name} is {p.health}{until}: {p.health_reason}{remedy}"


def _time_left(until: str) -> str:
    left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
    return f"{duration(max(0.0, left))} left"


def _local_time(until: str) -> str:
    """By the clock of whoever reads it."""
    here, now = datetime.fromisoformat(until).astimezone(), datetime.now().astimezone()
    return f"{here:%H:%M:%S}" if here.date() == now.date() else f"{here:%Y-%m-%d %H:%M:%S}"


TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="What a worker would have to do.")
]
TaskFilesOption = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="A file it is about; may be repeated."),
]
ContextTokensOption = Annotated[
    int | None, typer.Option(min=0, help="What there is to read, if you know better.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--budget", metavar="USD", callback=require_positive, help="What it may cost."),
]

routes_group = typer.Typer(
    name="routes", help="Show which rules decide where tasks go; without a command, list them."
)


def recommend(
    task: TaskArgument,
    *,
    file: TaskFilesOption = None,
    context_tokens: ContextTokensOption = None,
    budget: BudgetOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> int:
    """Recommend a provider for a task, with its cost, and whether to delegate it at all."""
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    with open_daemon_client() as through:
        found = through.call("provider_recommend", request, RecommendReply)
    if json:
        print_json(found)
        return 0

    show_recommended(found, verbose=verbose)
    return 0


@routes_group.callback(invoke_without_command=True)
def rules(context: typer.Context, *, json: JsonOption = False) -> int:
    """List the rules in the order in which they are asked, and what comes after them."""
    if context.invoked_subcommand is not None:
        return 0
    with open_daemon_client() as through:
        found = through.call("routes_list", RulesRequest(), RuleList)
    if json:
        print_json(found)
        return 0

    show_rules(found)
    return 0


@routes_group.command()
def explain(
    task: TaskArgument,
    *,
    file: TaskFilesOption = None,
    context_tokens: ContextTokensOption = None,
    budget: BudgetOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> int:
    """Show each rule and why it did or did not match a task, and what followed.

    Exits 1 if nobody can take the task now.
    """
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    with open_daemon_client() as through:
        found = through.call("routes_explain", request, ExplainReply)
    if json:
        print_json(found)
    else:
        show_explained(found, verbose=verbose)
    return 0 if found.provider else 1


@routes_group.command()
def learned(*, json: JsonOption = False) -> int:
    """Show what outcomes have taught of each provider, and what they would have chosen so far."""
    with open_daemon_client() as through:
        found = through.call("routes_learned", LearnedRequest(), LearnedReply)
    if json:
        print_json(found)
        return 0

    show_learned(found)
    return 0


@routes_group.command()
def replay(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A JSON object with 'text' a line; default: a sample."),
    ] = None,
    *,
    best: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="Your best model; default: the dearest.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Replay a day of tasks: what each would cost on the best model, and by the router."""
    try:
        tasks = read_day(file)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the tasks of {str(file)!r}: {error}", 2) from error
    with open_daemon_client() as through:
        day = replay_day(tasks, best, through)
    if json:
        print_json(day)
    else:
        show_replay(day)
    return 0
