"""How do a recommendation, an explanation and the rules look to a person?"""

from collections.abc import Iterable

from goent.domain.provider_replies import Explained, Recommended, RuleList, TaskView
from goent.domain.replies import Estimate
from goent.frontends.cli.screen import clean
from goent.frontends.cli.show import show_table
from goent.frontends.cli.words import duration, extent, money


def show_recommended(found: Recommended) -> None:
    print(clean(f"{found.provider} ({found.model}) by {found.method}"))
    print(clean(f"  why       {found.rationale}"))
    _show_task(found.features)
    print(f"  estimate  {said(found.estimate)}")
    for advice in found.advice:
        print(clean(f"  advice    {advice}"))
    _show_warnings(found.warnings)
    if found.alternatives:
        print()
        rows = [(o.provider, o.model, o.method, said(o.estimate)) for o in found.alternatives]
        show_table(("ELSE", "MODEL", "METHOD", "ESTIMATE"), rows)


def show_explained(found: Explained) -> None:
    head = f"{found.provider} ({found.model}) by {found.method}" if found.provider else "nobody"
    print(clean(head))
    print(clean(f"  why       {found.reason}"))
    _show_task(found.features)
    if found.provider:
        print(f"  estimate  {said(found.estimate)}")
        print(clean(f"  fallbacks {', '.join(found.fallbacks) or 'none'}"))
    _show_warnings(found.warnings)
    print()
    steps = [("▶" if s.decided else " ", s.source, s.name, s.why) for s in found.steps]
    show_table(("", "ASKED", "NAME", "ANSWER"), steps)
    print()
    rows = [(c.provider, c.obstacle or "can take it", said(c.estimate)) for c in found.candidates]
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
        print(clean(f"then defaults.{role}: {provider}"))
    if found.default_provider:
        print(clean(f"then default_provider: {found.default_provider}"))
    print('then the built-in policy; `go-ent routes explain "a task"` shows all of it at work')
    _show_warnings(found.warnings)


def said(estimate: Estimate) -> str:
    """`$0.0100 to $0.0500, about 40s (history of 12)`."""
    cost = "price unknown"
    if estimate.cost_usd is not None:
        low, high = estimate.cost_usd
        cost = f"{money(low)} to {money(high)}"
    time = f", about {duration(estimate.seconds)}" if estimate.seconds is not None else ""
    basis = f" (history of {estimate.samples})" if estimate.source == "history" else " (estimate)"
    return f"{cost}{time}{basis}"


def _show_task(task: TaskView) -> None:
    print(
        f"  task      {task.type} ({task.confidence:.0%} sure), {task.complexity}, "
        f"{extent(task.type, task.size, task.files)}, "
        f"{task.context_tokens:,} tokens to read"
    )


def _show_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(clean(f"  warning   {warning}"))
