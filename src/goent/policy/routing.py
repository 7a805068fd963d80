"""Which provider gets the task, by which method, why, and why not another?

A pin is obeyed or refused. Then the first rule that matches and whose provider can be had, then
`defaults`, then the default provider that somebody wrote down, then the policy of `preferences`.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from goent.domain.errors import NoRoute
from goent.domain.settings import Settings
from goent.domain.tasks import Classification
from goent.domain.types import Method, Pin, Route
from goent.policy.decisions import Decision, Step, above_budget, candidates_for
from goent.policy.facts import Facts, obstacle, trouble, usd
from goent.policy.pins import choose, fallbacks_of
from goent.policy.search import Search
from goent.policy.tiers import TIERS, provider_of, tier, tier_reason


def decide(
    task: Classification,
    pin: Pin,
    settings: Settings,
    methods: Sequence[Method],
    facts: Facts,
) -> Decision:
    """Pure, and always an answer: a task that nobody can take has a `refusal`."""
    if pin.method == "agent" in methods and not pin.provider and pin.model in (None, *TIERS):
        return _tiered(task, pin, settings, facts)
    if pin.provider or pin.model:
        return _pinned(task, pin, settings, methods, facts)
    if pin.method and pin.method not in methods:
        return Decision(refusal=_no_method(pin.method, methods))
    first = Search(task, pin, settings, methods, facts).decision()
    if first.chosen:
        return first
    for eased, warning in _concessions(task, settings, facts):
        decision = Search(task, pin, settings, methods, eased).decision()
        if decision.chosen:
            return replace(decision, warnings=(*decision.warnings, warning))
    return first


def _concessions(
    task: Classification, settings: Settings, facts: Facts
) -> Iterator[tuple[Facts, str]]:
    """What is a warning rather than a wall, where it would leave nobody."""
    if facts.avoid:
        again = f"nobody else can take it now: {', '.join(facts.avoid)} may have it again"
        yield replace(facts, avoid=()), again
    cramped = (
        f"{task.context_tokens:,} tokens fit nobody's window: the widest was taken, and what there "
        "is to read has to be read in parts"
    )
    yield replace(facts, cramped=True), cramped
    if facts.budget_usd is not None and not facts.hard:
        kept = f"nobody who can be had now keeps the budget_usd of {usd(facts.budget_usd)}"
        above = above_budget(facts, settings) or kept
        yield replace(facts, budget_usd=None), above
        yield replace(facts, budget_usd=None, cramped=True), f"{cramped}; {above}"


def _pinned(
    task: Classification, pin: Pin, settings: Settings, methods: Sequence[Method], facts: Facts
) -> Decision:
    try:
        route = choose(pin, settings, methods, allow_fallback=facts.allow_fallback)
    except NoRoute as error:
        step = Step(source="pin", name="pin", decided=False, why=str(error))
        return Decision(refusal=str(error), steps=(step,))
    return Decision(
        chosen=route,
        steps=(Step(source="pin", name="pin", decided=True, why=route.reason),),
        candidates=tuple(candidates_for(task, settings, facts)),
        warnings=tuple(_insisting(route, task, settings, facts)),
    )


def _tiered(task: Classification, pin: Pin, settings: Settings, facts: Facts) -> Decision:
    """go-ent's own agent: the tier that was asked for, or the one that fits the task."""
    candidates = tuple(candidates_for(task, settings, facts))
    held, why = settings, "asked for"
    if pin.model is None:
        why = tier_reason(task)
        fitting = tuple(c.provider for c in candidates if not c.obstacle)
        held = replace(settings, providers=fitting) if fitting else settings
    try:
        provider, which = provider_of(pin.model or tier(task), held, facts.prices)
    except NoRoute as error:
        step = Step(source="policy", name="tier", decided=False, why=str(error))
        return Decision(refusal=str(error), steps=(step,), candidates=candidates)
    moves = facts.allow_fallback
    if moves is None:
        moves = settings.failover_pinned or pin.model is None
    route = Route(
        provider=provider,
        method="agent",
        reason=f"{why}: {which}",
        fallbacks=fallbacks_of(provider, settings) if moves else (),
    )
    return Decision(
        chosen=route,
        steps=(Step(source="policy", name="tier", decided=True, why=route.reason),),
        candidates=candidates,
        warnings=tuple(_insisting(route, task, settings, facts)),
    )


def _insisting(
    route: Route, task: Classification, settings: Settings, facts: Facts
) -> Iterator[str]:
    """A pin is obeyed although something speaks against it; then that is told."""
    against = trouble(route.provider, task, facts)
    if not against:
        return
    others = [
        p
        for p in fallbacks_of(route.provider, settings) or settings.providers
        if p.name != route.provider.name and not obstacle(p, task, facts)
    ]
    instead = f"; {others[0].name!r} could take it" if others else ""
    moving = " and will, if it fails" if route.fallbacks else ""
    yield f"provider {route.provider.name!r} was asked for, but: {against}{instead}{moving}"


def _no_method(method: Method, methods: Sequence[Method]) -> str:
    return f"method {method!r} is not available in this version; one of: {', '.join(methods)}"
