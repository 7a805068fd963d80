"""Models that a local server has and no file names: free, often small, and nobody's choice but a person's."""

from msgspec.structs import replace
from routing_ground import DEEPSEEK, GLM, a_provider, a_task, decided, settings

from goent.domain.settings import RoutingRule
from goent.domain.types import Pin
from goent.routing.pins import provider_for_tier

TINY = replace(a_provider("ollama/tiny", "tiny", cost=0, backend="ollama"), listed=True)
BOTH = (GLM, DEEPSEEK, TINY)


def test_go_ent_does_not_choose_one_by_itself_however_cheap() -> None:
    decision = decided(a_task("format", "trivial"), settings(providers=BOTH))
    assert decision.route.provider == DEEPSEEK
    assert TINY not in [route.provider for route in decision.alternatives]
    assert TINY not in decision.route.fallbacks


def test_a_pin_and_a_rule_may() -> None:
    held = settings(RoutingRule(provider="ollama/tiny"), providers=BOTH)
    assert decided(a_task(), held).route.provider == TINY
    pinned = decided(a_task(), settings(providers=BOTH), pin=Pin(provider="ollama/tiny"))
    assert pinned.route.provider == TINY


def test_with_nothing_else_a_task_is_refused_with_the_reason() -> None:
    refusal = decided(a_task(), settings(providers=(TINY,), default=None)).refusal
    assert "ollama/tiny: only a pin or a rule sends a task to" in refusal


def test_the_own_agent_takes_one_only_where_nothing_else_is_there() -> None:
    assert provider_for_tier("haiku", settings(providers=BOTH, default=None))[0] == DEEPSEEK
    assert provider_for_tier("haiku", settings(providers=(TINY,), default=None))[0] == TINY
    assert provider_for_tier("ollama/tiny", settings(providers=BOTH))[0] == TINY
