"""Who gets which task, and what is said about it. Pure: nothing is asked but the values."""

import pytest
from msgspec.structs import replace
from routing_ground import (
    ALL,
    DEEPSEEK,
    GLM,
    HAIKU,
    KIMI,
    SONNET,
    a_provider,
    a_task,
    costing,
    decided,
    settings,
)

from goent.domain.errors import NoRoute
from goent.domain.provider_condition import ProviderCondition
from goent.domain.settings import RoutingRule
from goent.domain.task_profile import COMPLEXITIES, Classification, Complexity
from goent.domain.types import Pin, Provider
from goent.routing.route_facts import RouteFacts

DOWN = ProviderCondition(state="down", until=3_600.0, reason="503")
NOON = 43_200.0

BULKY = a_provider("backup", "big-1", cost=2)
PLAIN = a_provider("plain", "plain-1", cost=1)


@pytest.mark.spec("P16")
@pytest.mark.parametrize("complexity", ["trivial", "simple"])
def test_a_small_task_goes_to_the_cheapest_fast_provider_by_cli(complexity: Complexity) -> None:
    flash = a_provider("flash", "glm-flash", cost=0.1)
    route = decided(a_task("fix", complexity), settings(providers=(*ALL, flash))).route
    assert (route.provider.name, route.method) == ("flash", "cli")
    assert f"a {complexity} task: the cheapest fast one" in route.reason
    assert "fix, " in route.reason and "tokens of context" in route.reason


@pytest.mark.spec("P16")
def test_a_question_that_needs_no_files_goes_by_api() -> None:
    route = decided(a_task("analyze", "simple"), facts=RouteFacts(needs_no_tools=True)).route
    assert (route.provider.name, route.method) == ("haiku", "api")


def test_a_small_task_whose_permissions_may_ask_gets_a_session_that_can() -> None:
    route = decided(a_task("fix", "simple"), facts=RouteFacts(may_ask=True)).route
    assert route.method == "acp"
    assert "by acp, because it may have to ask, and cli cannot" in route.reason


def test_with_one_provider_there_is_nothing_to_choose() -> None:
    route = decided(a_task("fix", "simple"), settings(providers=(GLM,))).route
    assert (route.provider.name, route.method) == ("glm", "acp")
    assert "by acp, because there is only one provider" in route.reason


def test_without_fast_ones_a_small_task_goes_to_the_cheapest() -> None:
    held = settings(providers=(GLM, SONNET, DEEPSEEK))
    prices = {p.name: p.price for p in (GLM, SONNET, DEEPSEEK) if p.price}
    route = decided(a_task("fix", "simple"), held, RouteFacts(prices=prices)).route
    assert route.provider == DEEPSEEK


@pytest.mark.spec("P17")
def test_much_to_read_goes_to_kimi_by_acp() -> None:
    route = decided(a_task("implement", "simple", tokens=50_001)).route
    assert (route.provider.name, route.method) == ("kimi", "acp")
    assert "50,001 tokens of context, above 50,000" in route.reason
    assert decided(a_task("implement", tokens=50_000)).route.provider == GLM


@pytest.mark.spec("P17")
def test_without_kimi_the_widest_window_that_fits_takes_it() -> None:
    wide = a_provider("wide", "wide-1", cost=9, window=900_000)
    held = settings(providers=(GLM, wide, DEEPSEEK))
    assert decided(a_task(tokens=120_000), held).route.provider == wide


@pytest.mark.spec("P17")
def test_what_fits_no_window_goes_to_the_widest_with_a_warning() -> None:
    wide = a_provider("wide", "wide-1", cost=9, window=1_500_000)
    decision = decided(a_task(tokens=2_000_000), settings(providers=(*ALL, wide)))
    assert decision.route.provider == wide
    assert "2,000,000 tokens of context fit no window" in decision.warnings[-1]
    poor = RouteFacts(
        forecasts=costing(**{p.name: 9.0 for p in ALL}), budget_usd=costing(x=1.0)["x"].p90_usd
    )
    both = decided(a_task(tokens=2_000_000), facts=poor).warnings[-1]
    assert "fit no window" in both and "budget_usd $1.00 is less" in both


@pytest.mark.spec("P18")
@pytest.mark.parametrize(
    ("providers", "chosen"), [(ALL, DEEPSEEK), ((GLM, KIMI, HAIKU, SONNET), SONNET)]
)
def test_refactoring_of_code_goes_to_deepseek_or_sonnet_by_acp(
    providers: tuple[Provider, ...], chosen: Provider
) -> None:
    route = decided(a_task("refactor", "complex"), settings(providers=providers)).route
    assert (route.provider, route.method) == (chosen, "acp")


def test_a_provider_is_believed_what_it_is_best_for() -> None:
    tester = a_provider("tester", "t-1", cost=5, best_for=("writing_tests",))
    held = settings(providers=(*ALL, tester))
    assert decided(a_task("test"), held).route.provider == tester
    assert decided(a_task("implement"), held).route.provider == GLM


def test_who_is_best_for_many_files_gets_them_where_many_are_named() -> None:
    bulky = a_provider("bulky", "b-1", cost=5, best_for=("mass_file_edits",))
    held = settings(providers=(*ALL, bulky))
    guessed = decided(a_task("analyze", files=9), held).route
    assert guessed.provider != bulky
    assert "marked as best for" not in guessed.reason
    known = decided(a_task("analyze", files=9, named=6), held).route
    assert known.provider == bulky
    assert "marked as best for many files, and 6 are named: bulky" in known.reason


def test_the_reason_tells_what_is_known_of_the_task_and_no_guess() -> None:
    sure = decided(a_task("fix", files=9)).route.reason
    assert "the task is fix, medium, 2,000 tokens of context" in sure
    assert "6 files named" in decided(a_task("fix", files=9, named=6)).route.reason
    doubtful = decided(replace(a_task("fix"), confidence=0.4)).route.reason
    assert "the task is probably fix, medium" in doubtful


@pytest.mark.spec("P19")
def test_a_pin_is_obeyed_whatever_rules_and_health_say() -> None:
    held = settings(RoutingRule(provider="kimi"))
    decision = decided(
        a_task("fix", "trivial"),
        held,
        RouteFacts(conditions={"glm": DOWN}),
        pin=Pin(provider="glm", method="serve"),
    )
    assert (decision.route.provider, decision.route.method) == (GLM, "serve")
    (warning,) = decision.warnings
    assert "'glm' was asked for, but: down until 01:00:00 UTC (503)" in warning
    assert "'deepseek' could take it" in warning


@pytest.mark.spec("P19")
@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        (Pin(provider="nope"), "unknown provider 'nope'; there are: glm"),
        (Pin(method="agent"), "method 'agent' is not available in this version; one of: acp"),
        (Pin(model="gpt-0"), "no provider offers model 'gpt-0'"),
    ],
)
def test_a_pin_that_cannot_be_obeyed_is_refused_with_the_reason(pin: Pin, reason: str) -> None:
    with pytest.raises(NoRoute) as refusal:
        _ = decided(pin=pin).route
    assert reason in str(refusal.value)


def test_a_pinned_method_holds_and_leaves_the_provider_to_the_policy() -> None:
    route = decided(a_task("fix", "simple"), pin=Pin(method="serve")).route
    assert (route.provider, route.method) == (HAIKU, "serve")
    ruled = settings(RoutingRule(method="cli", provider="kimi"))
    route = decided(held=ruled, pin=Pin(method="serve")).route
    assert (route.provider, route.method) == (KIMI, "serve")
    assert "by serve, as requested" in route.reason


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (a_task("fix", "trivial"), "haiku"),
        (a_task("implement"), "glm"),
        (a_task("implement", "simple", tokens=60_000), "kimi"),
        (a_task("refactor", "complex"), "deepseek"),
        (a_task("review", "complex"), "sonnet"),
    ],
)
def test_defaults_go_before_the_policy(task: Classification, name: str) -> None:
    written = {
        "implementation": "glm",
        "large_context": "kimi",
        "simple_tasks": "haiku",
        "review": "sonnet",
    }
    decision = decided(task, settings(defaults=written))
    assert decision.route.provider.name == name


def test_a_default_provider_that_was_written_down_goes_before_the_policy() -> None:
    held = settings(default="sonnet", chosen=True)
    assert decided(a_task("fix", "simple"), held).route.provider == SONNET
    assert decided(a_task("fix", "simple"), settings(default="sonnet")).route.provider == HAIKU
    too_long = decided(a_task(tokens=180_000), held)
    assert too_long.route.provider == KIMI, "its window does not hold the task"
    assert "default_provider was passed over: sonnet: its window" in too_long.warnings[0]


@pytest.mark.parametrize(
    ("providers", "default", "why"),
    [
        ((GLM, SONNET), "sonnet", "no default provider configured; using sonnet"),
        ((BULKY, PLAIN), None, "no default provider configured; using the cheapest, plain"),
        ((GLM, SONNET), None, "no default provider configured; using an all-rounder, sonnet"),
    ],
)
def test_without_a_configured_default_the_reason_says_which_provider_stands_in(
    providers: tuple[Provider, ...], default: str | None, why: str
) -> None:
    route = decided(held=settings(providers=providers, default=default)).route
    assert route.reason.startswith(f"policy (default): {why}; the task is")
    one = decided(a_task(tokens=1), settings(providers=providers, default=default)).route
    assert one.reason.endswith(" 1 token of context")


def test_an_agent_is_never_chosen_by_itself() -> None:
    agent = a_provider("own", "any", cost=0.001, method="agent", best_for=("simple", "fast"))
    held = settings(providers=(agent, SONNET))
    for complexity in COMPLEXITIES:
        assert decided(a_task("fix", complexity), held).route.provider == SONNET


def test_only_who_can_be_had_is_chosen_and_every_other_one_is_told_of() -> None:
    facts = RouteFacts(
        now=NOON,
        conditions={
            "haiku": ProviderCondition(state="limited", until=NOON + 90, reason="slow down"),
            "deepseek": ProviderCondition(state="down", until=NOON - 1),
        },
        missing_keys={"kimi": "K"},
        forecasts=costing(sonnet=2.0, glm=0.5, deepseek=0.6),
        budget_usd=costing(x=1.0)["x"].p90_usd,
    )
    decision = decided(a_task("fix", "simple"), facts=facts)
    assert decision.route.provider == GLM
    against = {c.provider.name: c.obstacle for c in decision.candidates}
    assert against == {
        "glm": "",
        "kimi": "no key: set K where go-ent or its client is started",
        "haiku": "limited until 12:01:30 UTC (slow down)",
        "sonnet": "may cost $2.00, above the budget of $1.00",
        "deepseek": "",  # its time is over: one call may try it
    }
    assert [route.provider for route in decision.alternatives] == [DEEPSEEK]


def test_nobody_left_is_a_refusal_that_names_each_and_until_when() -> None:
    until = ProviderCondition(state="limited", until=NOON + 60)
    facts = RouteFacts(now=NOON, conditions={p.name: until for p in ALL})
    with pytest.raises(NoRoute) as refusal:
        _ = decided(facts=facts).route
    for provider in ALL:
        assert f"{provider.name}: limited until 12:01:00 UTC" in str(refusal.value)


def test_a_budget_below_the_cheapest_warns() -> None:
    dear = costing(**{p.name: 1.0 + i for i, p in enumerate(ALL)})
    facts = RouteFacts(forecasts=dear, budget_usd=costing(x=0.5)["x"].p90_usd)
    decision = decided(facts=facts)
    assert decision.chosen_route
    assert (
        "budget_usd $0.5000 is less than the cheapest route may cost: glm, up to $1.00"
        in (decision.warnings[-1])
    )


def test_a_soft_budget_is_no_wall_where_the_cheap_ones_are_unwell() -> None:
    facts = RouteFacts(
        forecasts=costing(**{p.name: 2.0 for p in ALL if p is not GLM}, glm=0.1),
        conditions={"glm": DOWN},
        budget_usd=costing(x=0.5)["x"].p90_usd,
    )
    decision = decided(facts=facts)
    assert decision.chosen_route
    assert "no available provider stays within budget_usd $0.5000" in decision.warnings[-1]


def test_fallbacks_are_the_providers_own_or_the_next_best_of_the_policy() -> None:
    assert decided(a_task("implement")).route.fallbacks == (DEEPSEEK,)
    own_choice = decided(a_task("fix", "simple")).route
    assert own_choice.provider == HAIKU and len(own_choice.fallbacks) == 2
    ruled = decided(held=settings(RoutingRule(provider="haiku"))).route
    assert ruled.fallbacks == (), "who chose the provider chooses its stand-ins"
    assert decided(facts=RouteFacts(allow_fallback=False)).route.fallbacks == ()


def test_a_model_of_two_names_is_told_once_by_its_short_one() -> None:
    long = a_provider("anthropic/claude-haiku-4-5", HAIKU.model, cost=1, backend="anthropic")
    decision = decided(a_task("fix", "simple"), settings(providers=(long, *ALL)))
    assert decision.route.provider == HAIKU
    assert long not in [route.provider for route in decision.alternatives]
