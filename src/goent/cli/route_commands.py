"""The commands about where tasks go: `providers`, `recommend` and `routes`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from goent.cli.command_options import FilesOption, JsonOption, VerboseOption, require_positive
from goent.cli.daemon_client import CommandError, ask, open_daemon_client
from goent.cli.display import print_reply, show_table
from goent.cli.labels import call_count, duration, money, short_number
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
HEALTH_TEXTS = {
    "limited": "rate limited",
    "refused": "refusing its key",
    "no_credit": "out of credit",
}
HEALTH_REMEDIES = {
    "refused": "set another key, or run `go-ent providers reset` once it works again",
    "no_credit": "top up, then run `go-ent providers reset`",
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
    if context.invoked_subcommand is None:
        found = ask("provider_list", ProvidersRequest(healthy_only=healthy), ProviderList)
        print_reply(found, partial(show_providers, healthy=healthy), json=json)
    return 0


@providers_group.command()
def reset(
    name: Annotated[
        str | None, typer.Argument(help="A provider's name, or its backend's. Default: all.")
    ] = None,
    *,
    json: JsonOption = False,
) -> int:
    """Forget failures and rate limits of a provider, so that the next call tries it again."""
    forgotten = ask("provider_reset", ForgetRequest(provider=name), ForgetReply)
    words = f"forgot: {', '.join(forgotten.providers)}" if forgotten.providers else ""
    print_reply(forgotten, lambda _: print(words or "nothing to forget"), json=json)
    return 0


def show_providers(found: ProviderList, *, healthy: bool = False) -> None:
    if not found.providers:
        print(
            "no provider is usable now; `go-ent providers` says why"
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
    calls = f" ({call_count(p.calls)})" if p.calls else ""
    cost = "unknown" if p.cost_estimate is None else money(p.cost_estimate)
    return (
        f"{p.name} (default)" if p.default else p.name,
        f"{p.health}, {_time_left(p.cooldown_until)}" if p.cooldown_until else p.health,
        f"{p.backend}/{p.model}",
        p.method,
        short_number(p.context_limit) if p.context_limit else "-",
        _price_text(p),
        "$0" if p.cost_estimate == 0 else cost,
        f"{p.in_use}{calls}" if p.in_use or p.calls else "-",
    )


def _price_text(p: ProviderView) -> str:
    if p.price is None:
        return "unknown"
    if not (p.price.input or p.price.output):
        return "free"
    return f"${p.price.input:g} / ${p.price.output:g}"


def _health_lines(found: ProviderList) -> Iterator[str]:
    """Why, and until when, for each provider whose last call failed."""
    for p in found.providers:
        if not p.health_reason:
            continue
        if p.health in {"ready", "direct"}:  # its pause is over
            yield f"{p.name} failed last time, and the next call tries it again: {p.health_reason}"
            continue
        until = f" until {_local_time(p.cooldown_until)}" if p.cooldown_until else ""
        remedy = f"; {HEALTH_REMEDIES[p.health]}" if p.health in HEALTH_REMEDIES else ""
        state = HEALTH_TEXTS.get(p.health, p.health)
        yield f"{p.name} is {state}{until}: {p.health_reason}{remedy}"


def _time_left(until: str) -> str:
    left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
    return f"{duration(max(0.0, left))} left"


def _local_time(until: str) -> str:
    here, now = datetime.fromisoformat(until).astimezone(), datetime.now().astimezone()
    return f"{here:%H:%M:%S}" if here.date() == now.date() else f"{here:%Y-%m-%d %H:%M:%S}"


TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="What a worker would have to do.")
]
ContextTokensOption = Annotated[
    int | None, typer.Option(min=0, help="How much there is to read, if you know better.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--budget", metavar="USD", callback=require_positive, help="What it may cost."),
]


def recommend(
    task: TaskArgument,
    *,
    file: FilesOption = None,
    context_tokens: ContextTokensOption = None,
    budget: BudgetOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> int:
    """Recommend a provider for a task, with its cost, and whether to delegate it at all."""
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    found = ask("provider_recommend", request, RecommendReply)
    print_reply(found, partial(show_recommended, verbose=verbose), json=json)
    return 0


routes_group = typer.Typer(
    name="routes", help="Show which rules decide where tasks go; without a command, list them."
)


@routes_group.callback(invoke_without_command=True)
def rules(context: typer.Context, *, json: JsonOption = False) -> int:
    """List the rules in the order in which they are tried, and what comes after them."""
    if context.invoked_subcommand is None:
        print_reply(ask("routes_list", RulesRequest(), RuleList), show_rules, json=json)
    return 0


@routes_group.command()
def explain(
    task: TaskArgument,
    *,
    file: FilesOption = None,
    context_tokens: ContextTokensOption = None,
    budget: BudgetOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> int:
    """Show each rule, why it did or did not match a task, and which provider was chosen.

    Exits 1 if no provider can take the task now.
    """
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    found = ask("routes_explain", request, ExplainReply)
    print_reply(found, partial(show_explained, verbose=verbose), json=json)
    return 0 if found.provider else 1


@routes_group.command()
def learned(*, json: JsonOption = False) -> int:
    """Show what was learned about each provider from outcomes, and a backtest of it."""
    print_reply(ask("routes_learned", LearnedRequest(), LearnedReply), show_learned, json=json)
    return 0


@routes_group.command()
def replay(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A JSON object with 'text' a line; default: a sample."),
    ] = None,
    *,
    best: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER", help="Your best model; default: the most expensive."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Replay a day of tasks: what each would cost on the best model, and as routed."""
    try:
        tasks = read_day(file)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read the tasks of {str(file)!r}: {error}", 2) from error
    with open_daemon_client() as through:
        day = replay_day(tasks, best, through)
    print_reply(day, show_replay, json=json)
    return 0
