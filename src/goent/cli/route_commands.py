"""Commands about where tasks go: providers, recommend and routes, and what they print."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from goent.cli.command_options import FilesOption, JsonOption, VerboseOption, require_positive
from goent.cli.daemon_client import CommandError, DaemonClient, ask, open_daemon_client
from goent.cli.display import print_reply, show_table
from goent.cli.labels import (
    call_count,
    duration,
    expected_change,
    money,
    route_reason,
    short_number,
    token_words,
)
from goent.cli.terminal import strip_controls
from goent.domain.replies import (
    CandidateView,
    Estimate,
    ExplainReply,
    ForgetReply,
    LearnedLine,
    LearnedReply,
    Lookback,
    ProviderList,
    ProviderView,
    RecommendReply,
    RuleList,
    TaskView,
)
from goent.domain.requests import (
    ForgetRequest,
    LearnedRequest,
    ProvidersRequest,
    RecommendRequest,
    RulesRequest,
)
from goent.domain.task_profile import MIN_CONFIDENCE
from goent.domain.types import Method, Value


def show_recommended(found: RecommendReply, *, verbose: bool) -> None:
    print(strip_controls(f"{found.provider} ({found.model}) by {found.method}"))
    print(strip_controls(f"  why       {route_reason(found.rationale, verbose=verbose)}"))
    _show_task(found.features, verbose=verbose)
    print(f"  estimate  {estimate_text(found.estimate)}")
    for advice in found.advice:
        print(strip_controls(f"  advice    {advice}"))
    _show_warnings(found.warnings)
    if found.alternatives:
        print()
        rows = [
            (o.provider, o.model, o.method, estimate_text(o.estimate)) for o in found.alternatives
        ]
        show_table(("ELSE", "MODEL", "METHOD", "ESTIMATE"), rows)


def show_explained(found: ExplainReply, *, verbose: bool) -> None:
    head = f"{found.provider} ({found.model}) by {found.method}" if found.provider else "nobody"
    print(strip_controls(head))
    print(strip_controls(f"  why       {route_reason(found.reason, verbose=verbose)}"))
    _show_task(found.features, verbose=verbose)
    if found.provider:
        print(f"  estimate  {estimate_text(found.estimate)}")
        print(strip_controls(f"  fallbacks {', '.join(found.fallbacks) or 'none'}"))
    _show_warnings(found.warnings)
    print()
    steps = [("▶" if s.decided else " ", s.source, s.name, s.why) for s in found.steps]
    show_table(("", "ASKED", "NAME", "ANSWER"), steps)
    print()
    rows = [
        (c.provider, c.obstacle or "can take it", estimate_text(c.estimate))
        for c in found.candidates
    ]
    show_table(("PROVIDER", "NOW", "ESTIMATE"), rows)


def show_rules(found: RuleList) -> None:
    if found.rules:
        rows = [
            (
                rule.name,
                rule.conditions,
                rule.provider or "-",
                rule.model or "-",
                rule.method or "-",
            )
            for rule in found.rules
        ]
        show_table(("RULE", "MATCHES", "PROVIDER", "MODEL", "METHOD"), rows)
    else:
        print("no rules; .goent/routing.yaml holds them")
    for role, provider in found.defaults.items():
        print(strip_controls(f"then defaults.{role}: {provider}"))
    if found.default_provider:
        print(strip_controls(f"then default_provider: {found.default_provider}"))
    print('then the built-in policy; `go-ent routes explain "a task"` shows all of it at work')
    _show_warnings(found.warnings)


def estimate_text(estimate: Estimate) -> str:
    """`$0.0100 to $0.0500, about 40s (history of 12)`."""
    cost = "price unknown"
    if estimate.cost_usd is not None:
        low, high = estimate.cost_usd
        cost = f"{money(low)} to {money(high)}"
    time = f", about {duration(estimate.seconds)}" if estimate.seconds is not None else ""
    basis = f" (history of {estimate.samples})" if estimate.source == "history" else " (estimate)"
    return f"{cost}{time}{basis}"


def _show_task(task: TaskView, *, verbose: bool) -> None:
    """What the task was taken for, if that is more than a guess."""
    if not verbose or task.confidence < MIN_CONFIDENCE:
        return
    print(
        f"  task      {task.type} ({task.confidence:.0%} sure), {task.complexity}, "
        f"{expected_change(task.type, task.size, task.files)}, "
        f"{token_words(task.context_tokens)} to read"
    )


def _show_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(strip_controls(f"  warning   {warning}"))


def show_learned(found: LearnedReply) -> None:
    told = "1 outcome" if found.outcomes == 1 else f"{found.outcomes} outcomes"
    print(f"{told}; {_task_count(found.left_out)} tell nothing of a worker")
    if found.classes:
        print()
        heads = (
            "TASKS",
            "PROVIDER",
            "VERIFIED",
            "REFUTED",
            "CLAIMED",
            "FAILED",
            "IN EVALS",
            "CHANCE",
        )
        show_table((*heads, "COST", "TIME"), map(_learned_row, found.classes))
        print()
        _show_backtest(found.lookback)
    for note in found.notes:
        print(strip_controls(f"note: {note}"))


def _learned_row(line: LearnedLine) -> tuple[str, ...]:
    chance = f"{line.chance:.0%} ({line.low:.0%} to {line.high:.0%})"
    return (
        f"{line.type}, {line.complexity}",
        line.provider,
        *map(str, (line.verified, line.refuted, line.claimed, line.failed, line.graded)),
        chance if line.enough else f"{chance}, too few",
        money(line.cost_usd),
        duration(line.seconds) if line.seconds is not None else "-",
    )


def _show_backtest(found: Lookback) -> None:
    if not found.tasks:
        print("none of these tasks was done by a provider that you have now")
        return
    print(f"of {_task_count(found.tasks)}, {found.agreed} would have gone where they went")
    for each in found.instead:
        where = f"{each.instead} instead of {each.chosen}"
        print(
            strip_controls(
                f"  {_task_count(each.tasks)} of {each.type}, {each.complexity}: {where}"
            )
        )
    if found.agreed < found.tasks and found.chosen_chance is not None:
        print(
            f"estimated: {found.learned_chance:.0%} good instead of {found.chosen_chance:.0%}, "
            f"{money(found.learned_usd)} instead of {money(found.chosen_usd)} "
            f"(the {found.priced} with known prices)"
        )


def _task_count(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


SAMPLE_FILE = "day.jsonl"
TASK_WIDTH = 44  # characters of a task that are shown


class DayTask(Value, frozen=True, kw_only=True):
    """One line of the file; other keys are left alone."""

    text: str
    context_tokens: int | None = None


class ReplayedTask(Value, frozen=True, kw_only=True):
    """A task: where the router sends it, and what half of such tasks cost there and at the best."""

    text: str
    type: str
    complexity: str
    provider: str | None
    method: Method | None
    router_usd: float | None
    best_usd: float | None


class DayReplay(Value, frozen=True, kw_only=True):
    """Sums are over the tasks of which both costs are known."""

    best: str
    tasks: tuple[ReplayedTask, ...]
    router_usd: float
    best_usd: float
    unknown: int


def read_day(file: Path | None) -> tuple[DayTask, ...]:
    """Raises a ValueError that names the line."""
    packaged = files("goent.cli").joinpath("samples", SAMPLE_FILE)
    lines = (file or packaged).read_text(encoding="utf-8").splitlines()
    return tuple(_decode_tasks(lines))


def _decode_tasks(lines: Sequence[str]) -> Iterator[DayTask]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=DayTask)
        except msgspec.MsgspecError as error:
            raise ValueError(f"line {number}: {error}") from None


def replay_day(tasks: Sequence[DayTask], best: str | None, through: DaemonClient) -> DayReplay:
    if not tasks:
        raise CommandError("there is no task in the file: a JSON object with 'text' a line", 2)
    explained = [
        through.call(
            "routes_explain",
            RecommendRequest(task=task.text, context_tokens=task.context_tokens),
            ExplainReply,
        )
        for task in tasks
    ]
    best = best or _most_expensive(explained)
    played = tuple(_replay_task(t, e, best) for t, e in zip(tasks, explained, strict=True))
    known = [p for p in played if p.router_usd is not None and p.best_usd is not None]
    return DayReplay(
        best=best,
        tasks=played,
        router_usd=round(sum(p.router_usd or 0.0 for p in known), 6),
        best_usd=round(sum(p.best_usd or 0.0 for p in known), 6),
        unknown=len(played) - len(known),
    )


def _most_expensive(explained: Sequence[ExplainReply]) -> str:
    """Of those that could take the first task: price is the only sign of quality there is."""
    able = [c for c in explained[0].candidates if not c.obstacle and c.estimate.cost_usd]
    if not able:
        raise CommandError("no provider with a known price can be had: see `go-ent providers`", 2)
    return max(able, key=lambda c: c.estimate.cost_usd or (0.0, 0.0)).provider


def _replay_task(task: DayTask, explained: ExplainReply, best: str) -> ReplayedTask:
    at_best = next((c for c in explained.candidates if c.provider == best), None)
    if at_best is None:
        names = ", ".join(c.provider for c in explained.candidates)
        raise CommandError(f"there is no provider {best!r}; there are: {names}", 2)
    return ReplayedTask(
        text=task.text,
        type=explained.features.type,
        complexity=explained.features.complexity,
        provider=explained.provider,
        method=explained.method,
        router_usd=_median_cost(explained),
        best_usd=_median_cost(at_best),
    )


def _median_cost(what: ExplainReply | CandidateView) -> float | None:
    return what.estimate.cost_usd[0] if what.estimate.cost_usd else None


def show_replay(day: DayReplay) -> None:
    rows = [
        (
            task.text if len(task.text) <= TASK_WIDTH else task.text[: TASK_WIDTH - 1] + "…",
            f"{task.type}, {task.complexity}",
            f"{task.provider} by {task.method}" if task.provider else "nobody",
            money(task.router_usd),
            money(task.best_usd),
        )
        for task in day.tasks
    ]
    rows.append(("total", "", "", money(day.router_usd), money(day.best_usd)))
    show_table(("TASK", "IS", "ROUTER", "COST", strip_controls(f"ALWAYS {day.best}")), rows)
    if day.best_usd:
        share = 1 - day.router_usd / day.best_usd
        print(f"the router saves {share:.0%} of {money(day.best_usd)}")
    if day.unknown:
        print(f"{day.unknown} tasks are in no sum: a price is unknown, or nobody can take them")


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
