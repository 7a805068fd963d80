"""`go-ent providers`: which models are there, how are they, and how is one asked again?"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from goent.domain.provider_replies import Forgotten, ProviderList, ProviderView
from goent.domain.requests import ForgetRequest, ProvidersRequest
from goent.frontends.cli.client import daemon
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean
from goent.frontends.cli.show import print_json, show_table
from goent.frontends.cli.words import count, duration, money

HEADS = ("PROVIDER", "HEALTH", "MODEL", "METHOD", "CONTEXT", "PRICE IN/OUT", "A TASK", "IN USE")
REMEDIES = {
    "refused": "set another key, or `go-ent providers reset` once it is mended",
    "no_credit": "top up, then `go-ent providers reset`",
}


def providers(
    context: typer.Context,
    *,
    healthy: Annotated[
        bool, typer.Option("--healthy", help="Leave out what cannot be used now.")
    ] = False,
    json: Json = False,
) -> int:
    """List the models that workers can run on, with price and health."""
    if context.invoked_subcommand:
        return 0
    with daemon() as through:
        request = ProvidersRequest(healthy_only=healthy)
        found = through.call("provider_list", request, ProviderList)
    if json:
        print_json(found)
    else:
        show_providers(found, healthy=healthy)
    return 0


def reset(
    name: Annotated[
        str | None, typer.Argument(help="A provider's name, or its backend's. Default: all.")
    ] = None,
    *,
    json: Json = False,
) -> int:
    """Forget that a provider failed or was rate limited: the next call asks it again."""
    with daemon() as through:
        request = ForgetRequest(provider=name)
        forgotten = through.call("provider_reset", request, Forgotten)
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
    show_table(HEADS, map(_row, found.providers))
    for line in (*_troubles(found), *found.warnings):
        print(clean(line))
    if any(p.health == "no_key" for p in found.providers):
        print("no_key: `go-ent doctor` names the variable to set")


def _row(p: ProviderView) -> tuple[str, ...]:
    calls = f" ({p.calls} calls)" if p.calls else ""
    return (
        f"{p.name} (default)" if p.default else p.name,
        f"{p.health}, {_left(p.cooldown_until)}" if p.cooldown_until else p.health,
        f"{p.backend}/{p.model}",
        p.method,
        count(p.context_limit) if p.context_limit else "-",
        _price(p),
        "unknown"
        if p.cost_estimate is None
        else money(p.cost_estimate)
        if p.cost_estimate
        else "$0",
        f"{p.in_use}{calls}" if p.in_use or p.calls else "-",
    )


def _price(p: ProviderView) -> str:
    if p.price is None:
        return "unknown"
    if not (p.price.input or p.price.output):
        return "free"
    return f"${p.price.input:g} / ${p.price.output:g}"


def _troubles(found: ProviderList) -> Iterator[str]:
    """Why, and until when, for each that is not well."""
    for p in found.providers:
        if p.health_reason:
            until = f" until {_moment(p.cooldown_until)}" if p.cooldown_until else ""
            remedy = f"; {REMEDIES[p.health]}" if p.health in REMEDIES else ""
            yield f"{p.name} is {p.health}{until}: {p.health_reason}{remedy}"


def _left(until: str) -> str:
    left = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
    return f"{duration(max(0.0, left))} left"


def _moment(until: str) -> str:
    """By the clock of whoever reads it."""
    here, now = datetime.fromisoformat(until).astimezone(), datetime.now().astimezone()
    return f"{here:%H:%M:%S}" if here.date() == now.date() else f"{here:%Y-%m-%d %H:%M:%S}"
