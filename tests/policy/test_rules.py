"""The rules of `routing.yaml`, in order: first match, and why the others did not."""

import pytest
from msgspec.structs import replace
from routing_ground import DEEPSEEK, GLM, KIMI, a_task, costing, decided, settings

from goent.domain.provider_condition import ProviderCondition
from goent.domain.settings import RoutingRule
from goent.domain.types import Provider
from goent.routing.route_facts import RouteFacts

LIMITED = ProviderCondition(state="limited", until=3_600.0)


@pytest.mark.spec("P20")
def test_the_first_rule_that_matches_decides() -> None:
    held = settings(
        RoutingRule(id="docs", types=("documentation",), provider="haiku"),
        RoutingRule(id="big", min_files=3, provider="kimi", method="serve"),
        RoutingRule(id="all", provider="sonnet"),
    )
    decision = decided(a_task("fix", named=4), held)
    assert (decision.route.provider, decision.route.method) == (KIMI, "serve")
    assert decision.route.reason.startswith("rule 'big': matches (3 files or more): kimi")
    told = {step.name: (step.decided, step.why) for step in decision.steps}
    assert told["rule 'docs'"] == (False, "the type is fix, not documentation")
    assert told["rule 'big'"][0] is True
    assert told["rule 'all'"] == (False, "an earlier rule has decided")


@pytest.mark.spec("P20")
@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (RoutingRule(types=("test", "fix")), "the type is implement, not test or fix"),
        (RoutingRule(complexity=("high",)), "the complexity is medium, not high"),
        (RoutingRule(min_files=3), "it names no files, not 3 or more"),
        (RoutingRule(min_context=50_000), "2,000 tokens of context, not 50,000 or more"),
        (RoutingRule(keywords=("lint", "tidy up")), "it contains none of 'lint', 'tidy up'"),
        (
            RoutingRule(max_cost=0.05, provider="kimi"),
            "passed over: kimi is passed over (kimi may cost $0.1000, above its max_cost of $0.0500)",
        ),
        (
            RoutingRule(max_cost=0.05, provider="haiku"),
            "passed over: haiku is passed over (the cost of haiku is unknown, so max_cost cannot be checked)",
        ),
        (
            RoutingRule(method="agent", provider="kimi"),
            "passed over: the method 'agent' is not available in this version",
        ),
    ],
)
def test_a_rule_that_does_not_match_says_why(rule: RoutingRule, why: str) -> None:
    named = rule if rule.provider else replace(rule, provider="kimi")
    facts = RouteFacts(text="Build a splinter", forecasts=costing(kimi=0.1))
    decision = decided(a_task("implement"), settings(named), facts)
    assert decision.steps[0].why == why
    assert decision.route.provider == GLM


def test_a_guessed_number_of_files_matches_no_rule() -> None:
    held = settings(RoutingRule(min_files=3, provider="kimi"))
    assert decided(a_task(files=9), held).route.provider == GLM
    assert decided(a_task(files=9, named=3), held).route.provider == KIMI
    told = decided(a_task(files=9, named=1), held).steps[0].why
    assert told == "it names 1 file, not 3 or more"


def test_keywords_are_whole_words_in_any_case() -> None:
    held = settings(RoutingRule(keywords=("Tidy up", "lint"), provider="kimi"))
    for text in ("Please tidy UP here", "run the lint, then stop"):
        assert decided(held=held, facts=RouteFacts(text=text)).route.provider == KIMI
    assert decided(held=held, facts=RouteFacts(text="flint")).route.provider == GLM


@pytest.mark.spec("P20")
def test_a_rule_whose_provider_is_unwell_goes_to_its_fallback_and_says_so() -> None:
    decision = decided(
        held=settings(RoutingRule(id="a", provider="glm", method="cli")),
        facts=RouteFacts(conditions={"glm": LIMITED}),
    )
    assert (decision.route.provider, decision.route.method) == (DEEPSEEK, "cli")
    assert "glm is passed over (limited until 01:00:00 UTC)" in decision.route.reason
    assert decision.warnings


@pytest.mark.spec("P20")
def test_without_a_fallback_the_next_rule_that_matches_decides() -> None:
    held = settings(
        RoutingRule(id="a", provider="haiku"),
        RoutingRule(id="b", types=("fix",), provider="sonnet"),
        RoutingRule(id="c", provider="kimi"),
    )
    decision = decided(held=held, facts=RouteFacts(conditions={"haiku": LIMITED}))
    assert decision.route.provider == KIMI
    assert "rule 'a' was passed over: haiku is passed over (limited until" in decision.warnings[0]


def test_a_backend_stands_for_its_models_and_the_first_that_can_be_had_is_taken() -> None:
    held = settings(RoutingRule(provider="moonshot"))
    assert decided(held=held).route.provider == GLM
    assert decided(a_task(tokens=300_000), held).route.provider == KIMI


def test_a_rule_with_a_method_alone_leaves_the_provider_to_the_policy() -> None:
    held = settings(RoutingRule(types=("refactor",), method="serve"))
    route = decided(a_task("refactor", "complex"), held).route
    assert (route.provider, route.method) == (DEEPSEEK, "serve")


def test_a_rule_about_a_backend_that_is_not_here_is_passed_over() -> None:
    decision = decided(held=settings(RoutingRule(provider="zai"), RoutingRule(provider="kimi")))
    assert decision.route.provider == KIMI
    assert "rule 1 was passed over: unknown provider 'zai'" in decision.warnings[0]


def test_a_rule_may_name_a_model_that_nobody_listed() -> None:
    held = settings(RoutingRule(provider="moonshot", model="new-one"))
    assert decided(held=held).route.provider == Provider(
        name="moonshot/new-one", backend="moonshot", model="new-one"
    )
