"""When does a task go to an agent? Pure: nothing is asked but the values."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from routing_ground import ALL, DEEPSEEK, GLM, HAIKU, KIMI, SONNET, a_task, settings

from goent.domain.errors import NoRoute
from goent.domain.provider_condition import ProviderCondition
from goent.domain.settings import AgentSettings, RoutingRule, Settings
from goent.domain.task_profile import Classification
from goent.domain.types import Method, Pin, Provider
from goent.routing.route_decision import RouteDecision, decide_route
from goent.routing.route_facts import RouteFacts

METHODS: tuple[Method, ...] = ("acp", "cli", "serve", "api", "agent")
GEMINI = Provider(name="gemini", backend="gemini", model="pro", method="agent")
FLASH = Provider(name="gemini/flash", backend="gemini", model="flash", method="agent")
AGENTS: Mapping[str, AgentSettings] = {
    "gemini": AgentSettings(command=("gemini",), models=("pro", "flash"))
}
SIMPLE = a_task("fix", "simple", named=1)


def held(*rules: RoutingRule, providers: tuple[Provider, ...] = ALL) -> Settings:
    made = settings(*rules, providers=(*providers, GEMINI, FLASH))
    backends = {name: b for name, b in made.backends.items() if name != "gemini"}
    return replace(made, agents=AGENTS, backends=backends)


def decided(
    task: Classification, pin: Pin, where: Settings | None = None, facts: RouteFacts | None = None
) -> RouteDecision:
    return decide_route(task, pin, where or held(), METHODS, facts or RouteFacts())


@pytest.mark.parametrize(
    ("pin", "model"),
    [
        (Pin(provider="gemini"), "pro"),
        (Pin(provider="gemini", model="flash"), "flash"),
        (Pin(model="gemini/flash"), "flash"),
        (Pin(model="gemini/pro"), "pro"),
        (Pin(provider="gemini", model="next"), "next"),
        (Pin(provider="gemini", method="agent"), "pro"),
    ],
)
def test_a_pin_on_an_agent_goes_to_it(pin: Pin, model: str) -> None:
    route = decided(a_task(), pin).route
    assert (route.provider.backend, route.provider.model, route.method) == (
        "gemini",
        model,
        "agent",
    )


def test_an_agent_can_be_had_by_no_other_method() -> None:
    with pytest.raises(NoRoute, match="runs only by the method 'agent'"):
        _ = decided(a_task(), Pin(provider="gemini", method="cli")).route


def test_any_provider_by_the_method_agent_is_go_ents_own_agent_on_it() -> None:
    route = decided(a_task(), Pin(provider="glm", method="agent")).route
    assert (route.provider, route.method) == (GLM, "agent")


def test_a_rule_may_send_tasks_to_an_agent_and_nobody_else_does() -> None:
    rule = RoutingRule(types=("fix",), provider="gemini")
    assert decided(SIMPLE, Pin(), held(rule)).route.provider == GEMINI
    assert decided(SIMPLE, Pin(), held(rule)).route.method == "agent"
    assert decided(SIMPLE, Pin()).route.provider == HAIKU
    by_cli = decided(SIMPLE, Pin(method="cli"), held(rule))
    assert by_cli.route.provider == HAIKU, "a method that was asked for is not bent"
    assert "it is an agent of its own, and the requested method is 'cli'" in by_cli.warnings[0]


def test_a_rule_or_a_name_may_mean_go_ents_own_agent() -> None:
    own = replace(SONNET, name="mine", method="agent")
    rule = RoutingRule(provider="mine")
    route = decided(SIMPLE, Pin(), held(rule, providers=(own, GLM))).route
    assert (route.provider, route.method) == (own, "agent")
    assert decided(SIMPLE, Pin(provider="mine")).refusal
    pinned = decided(SIMPLE, Pin(provider="mine"), held(providers=(own, GLM))).route
    assert pinned.method == "agent"


def test_with_nothing_but_agents_an_unpinned_task_is_refused_with_the_reason() -> None:
    refusal = decided(SIMPLE, Pin(), held(providers=())).refusal
    assert "gemini: only a pin or a rule sends a task to an agent" in refusal


@pytest.mark.spec("A19")
def test_without_a_model_a_simple_task_gets_haiku_and_the_reason_says_so() -> None:
    route = decided(SIMPLE, Pin(method="agent")).route
    assert (route.provider, route.method) == (HAIKU, "agent")
    assert route.reason == ("haiku, because the task is simple: the provider named 'haiku'")


@pytest.mark.spec("A20")
@pytest.mark.parametrize("task", [a_task("fix", "simple", named=3), a_task("fix", "high", named=1)])
def test_without_a_model_several_files_or_complex_logic_get_sonnet(task: Classification) -> None:
    assert decided(task, Pin(method="agent")).route.provider == SONNET


def test_a_tier_that_was_asked_for_is_a_pin() -> None:
    facts = RouteFacts(conditions={"sonnet": ProviderCondition(state="down", until=9e9)}, now=1.0)
    decision = decided(SIMPLE, Pin(method="agent", model="sonnet"), facts=facts)
    assert decision.route.provider == SONNET
    assert decision.route.reason.startswith("asked for")
    assert "was asked for, but: down" in decision.warnings[0]


def test_a_tier_by_itself_goes_to_who_can_be_had() -> None:
    facts = RouteFacts(
        missing_keys={"haiku": "K"},
        prices={p.name: p.price for p in (GLM, KIMI, DEEPSEEK) if p.price},
    )
    route = decided(SIMPLE, Pin(method="agent"), facts=facts).route
    assert route.provider == DEEPSEEK
    assert "the cheapest, deepseek, because no provider has a haiku" in route.reason


def test_only_a_tier_that_nobody_asked_for_may_move() -> None:
    moving = replace(HAIKU, fallbacks=("glm",))
    where = held(providers=(moving, GLM))
    assert decided(SIMPLE, Pin(method="agent"), where).route.fallbacks == (GLM,)
    asked = Pin(method="agent", model="haiku")
    assert decided(SIMPLE, asked, where).route.fallbacks == ()
    allowed = decided(SIMPLE, asked, where, RouteFacts(allow_fallback=True)).route
    assert allowed.fallbacks == (GLM,)


def test_without_any_model_the_own_agent_is_refused_with_the_remedy() -> None:
    decision = decided(SIMPLE, Pin(method="agent"), held(providers=()))
    assert "go-ent init" in decision.refusal
