"""Commands about where tasks go: classify, providers, recommend and routes."""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer

from goent.cli.command_options import JsonOption
from goent.cli.daemon_client import CommandError, open_daemon_client
from goent.cli.display import print_json, show_table
from goent.cli.labels import duration, expected_change, money, short_number
from goent.cli.terminal import print_notice, strip_controls
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
from goent.domain.task_profile import Classification, TaskText
from goent.domain.types import Value

MAX_LINE: Final = 64 * 1024 * 1024
PROGRESS_EVERY_S: Final = 2.0
BAD_LINES: Final = 1

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def classify(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="What to do, whole; '-' reads it from stdin."),
    ] = None,
    *,
    jsonl: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Many tasks: a JSON object with 'text' on each line, '-' for stdin. Each comes "
            "back with type, complexity and size.",
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="A file it is about; may be repeated."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Tell a task's type, complexity and size, and what in it says so. Nothing is started."""
    if (task is None) == (jsonl is None):
        raise CommandError("say what to classify: a TASK, or --jsonl FILE for many", 2)
    if jsonl is not None and file:
        raise CommandError("--file goes with one TASK; with --jsonl name the files in the text", 2)
    if jsonl is not None:
        with _open_lines(jsonl) as lines:
            return _classify_lines(lines)
    words = sys.stdin.read() if task == "-" else task or ""
    if not words.strip():
        raise CommandError("the task is empty: say what is to be done", 2)
    told = _classify_task(TaskText(text=words, files=tuple(file or ())))
    if json:
        print_json(told)
    else:
        _show_classification(told)
    return 0


def _classify_task(task: TaskText) -> Classification:
    from goent.routing.classification import (  # noqa: PLC0415 (only this command needs it)
        classify,
        count_context,
    )
    from goent.routing.task_features import load_weights  # noqa: PLC0415 (the same)

    return classify(task, weights=load_weights(), context=count_context(task, Path.cwd()))


def _show_classification(told: Classification) -> None:
    much = expected_change(told.type, told.size, told.files)
    print(f"{told.type} ({told.confidence:.0%} sure) · {told.complexity}")
    print(f"{much} · {told.context_tokens:,} tokens to read")
    for of, title in (("type", f"why {told.type}:"), ("size", "why this size:")):
        shares = [feature for feature in told.features if feature.of == of]
        if shares:
            print(f"\n{title}")
        for feature in shares:
            print(f"  {feature.weight:+.2f}  {strip_controls(feature.name)}")


class _LineMistake(Value, frozen=True, kw_only=True):
    """The answer to a line that is no task."""

    line: int
    error: str


def _classify_lines(lines: BinaryIO) -> int:
    """A line out for each line in, in order, while they come; exit code 1 if one was bad."""
    bad = done = 0
    told = time.monotonic()
    for number, line in _numbered_lines(lines):
        try:
            answer = _classify_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError) as error:
            bad += 1
            answer = _encode(_LineMistake(line=number, error=_mistake_text(error)))
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
        done += 1
        if time.monotonic() - told > PROGRESS_EVERY_S:
            told = time.monotonic()
            print_notice(f"{done} tasks classified")
    if bad:
        print_notice(f"{bad} of {done} lines are no tasks; each is answered with its number")
    return BAD_LINES if bad else 0


def _numbered_lines(lines: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that say something. One without end is cut, and then read as a mistake."""
    number = 0
    while line := lines.readline(MAX_LINE):
        number += 1
        whole = line.endswith(b"\n") or len(line) < MAX_LINE
        while not whole and (rest := lines.readline(MAX_LINE)):
            whole = rest.endswith(b"\n")
        if line.strip():
            yield number, line


def _classify_line(line: bytes) -> bytes:
    """The same object with what was found; its own `type` is a label, and is not looked at."""
    from goent.routing.classification import classify  # noqa: PLC0415 (only this command needs it)
    from goent.routing.task_features import load_weights  # noqa: PLC0415 (the same)

    given = _decode_object(line)
    if "text" not in given:
        raise LookupError("it has no 'text'")
    told = classify(TaskText(text=_decode_text(given["text"])), weights=load_weights())
    found = {
        "type": told.type,
        "complexity": told.complexity,
        "size": told.size,
        "confidence": told.confidence,
        "context_tokens": told.context_tokens,
    }
    return _encode({**given, **found})


def _mistake_text(error: Exception) -> str:
    said = error.args[0] if error.args else type(error).__name__
    return f'{said}; a line is an object such as {{"text": "fix the login page"}}'


@contextmanager
def _open_lines(name: str) -> Generator[BinaryIO]:
    with ExitStack() as held:
        try:
            lines = sys.stdin.buffer if name == "-" else held.enter_context(Path(name).open("rb"))
        except OSError as error:
            raise CommandError(f"cannot read {name!r}: {error.strerror}", 2) from error
        yield lines


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
    float | None, typer.Option("--budget", metavar="USD", min=0.000001, help="What it may cost.")
]

routes = typer.Typer(help="Which rules decide where tasks go; without a command, list them.")


def recommend(
    task: TaskArgument,
    *,
    file: TaskFilesOption = None,
    context_tokens: ContextTokensOption = None,
    budget: BudgetOption = None,
    json: JsonOption = False,
) -> int:
    """Say who should get a task, at what cost, and whether to hand it over at all."""
    request = RecommendRequest(
        task=task, files=tuple(file or ()), context_tokens=context_tokens, budget_usd=budget
    )
    with open_daemon_client() as through:
        found = through.call("provider_recommend", request, RecommendReply)
    if json:
        print_json(found)
        return 0
    from goent.cli.route_display import show_recommended  # noqa: PLC0415 (only what is drawn)

    show_recommended(found)
    return 0


@routes.callback(invoke_without_command=True)
def rules(context: typer.Context, *, json: JsonOption = False) -> int:
    """List the rules in the order in which they are asked, and what comes after them."""
    if context.invoked_subcommand is not None:
        return 0
    with open_daemon_client() as through:
        found = through.call("routes_list", RulesRequest(), RuleList)
    if json:
        print_json(found)
        return 0
    from goent.cli.route_display import show_rules  # noqa: PLC0415 (the same)

    show_rules(found)
    return 0


@routes.command()
def explain(
    task: TaskArgument,
    *,
    file: TaskFilesOption = None,
    context_tokens: ContextTokensOption = None,
    budget: BudgetOption = None,
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
        from goent.cli.route_display import show_explained  # noqa: PLC0415 (the same)

        show_explained(found)
    return 0 if found.provider else 1


@routes.command()
def learned(*, json: JsonOption = False) -> int:
    """Show what outcomes have taught of each provider, and what they would have chosen so far."""
    with open_daemon_client() as through:
        found = through.call("routes_learned", LearnedRequest(), LearnedReply)
    if json:
        print_json(found)
        return 0
    from goent.cli.route_display import show_learned  # noqa: PLC0415 (the same)

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
    json: JsonOption = False,
) -> int:
    """Replay a day of tasks: what each would cost on the best model, and by the router."""
    from goent.cli.route_display import read_day, replay_day, show_replay  # noqa: PLC0415 (only here)

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
