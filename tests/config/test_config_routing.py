"""Both historic shapes of `routing.yaml`."""

import pytest
from ground import Ground

from goent.domain.settings import RoutingRule

FLAT = """
routing_rules:
  - match: {type: lint, complexity: trivial}
    method: cli
    provider: anthropic
    model: claude-3-haiku
  - match: {type: [Feature, bugfix, implement], files: ">3", context_tokens: ">50000"}
    provider: anthropic
  - match: {keywords: [rename, "move to"]}
    method: acp
  - match: {default: true}
    method: cli
"""

NESTED = """
rules:
  - {id: last, match: {default: true}, action: {method: cli}}
  - id: cheap
    priority: 10
    match: {complexity: [trivial, simple], max_cost: 0.05, file_count: 3, context_size: ">=50000"}
    action: {method: api, provider: anthropic, model: claude-haiku-4-5}
  - {id: first, priority: 950, match: {type: refactor}, action: {model: kimi-k2}}
  - {id: cheap-too, priority: 10, match: {type: test}, action: {method: cli}}
"""


def test_the_flat_shape_keeps_the_order_of_the_file(ground: Ground) -> None:
    ground.write(".goent/routing.yaml", FLAT)
    assert ground.load().rules == (
        RoutingRule(
            types=("format",),
            complexity=("trivial",),
            method="cli",
            provider="anthropic",
            model="claude-3-haiku",
        ),
        RoutingRule(
            types=("implement", "fix"), min_files=4, min_context=50_001, provider="anthropic"
        ),
        RoutingRule(keywords=("rename", "move to"), method="acp"),
        RoutingRule(method="cli"),
    )


def test_the_nested_shape_goes_by_priority_and_then_by_file(ground: Ground) -> None:
    ground.write(".goent/routing.yaml", NESTED)
    rules = ground.load().rules
    assert [rule.id for rule in rules] == ["first", "cheap", "cheap-too", "last"]
    assert rules[1] == RoutingRule(
        id="cheap",
        priority=10,
        complexity=("trivial", "simple"),
        min_files=3,
        min_context=50_000,
        max_cost=0.05,
        method="api",
        provider="anthropic",
        model="claude-haiku-4-5",
    )


def test_the_projects_rules_replace_the_users_whatever_their_shapes(ground: Ground) -> None:
    ground.write("~/.config/go-ent/routing.yaml", FLAT)
    assert len(ground.load().rules) == 4
    ground.write(".goent/routing.yaml", "rules: [{match: {default: true}, action: {method: acp}}]")
    assert ground.load().rules == (RoutingRule(method="acp"),)


@pytest.mark.parametrize("provider", ["glm", "moonshot", "gemini", "zai", "deepseek/deepseek-v4"])
def test_a_rule_names_an_entry_a_backend_an_agent_or_a_model(ground: Ground, provider: str) -> None:
    ground.write(
        ".goent/providers.yaml",
        "providers:\n"
        "  glm: {provider: moonshot, model: glm-4, fallbacks: [deepseek/deepseek-v4]}\n",
    )
    ground.write(".goent/config.yaml", "agents: {gemini: {command: [gemini, --acp]}}")
    rules = f"routing_rules: [{{match: {{default: true}}, provider: {provider}}}]"
    ground.write(".goent/routing.yaml", rules)
    assert ground.load(DEEPSEEK_API_KEY="k").rules[0].provider == provider


def test_a_model_that_only_a_rule_names_becomes_a_provider(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "providers: {glm: {provider: moonshot, model: glm-4}}")
    ground.write(
        ".goent/routing.yaml",
        "routing_rules:\n"
        "  - {match: {type: test}, provider: moonshot, model: kimi-k2}\n"
        "  - {match: {default: true}, provider: glm, model: glm-5}\n",
    )
    names = [provider.name for provider in ground.load().providers]
    assert names == ["glm", "moonshot/kimi-k2", "moonshot/glm-5"]


@pytest.mark.spec("P20")
def test_two_rules_with_one_id_are_a_mistake_that_names_both_places(ground: Ground) -> None:
    ground.write(
        ".goent/routing.yaml",
        "rules:\n"
        "  - {id: a, match: {type: fix}, action: {method: acp}}\n"
        "  - {id: b, match: {type: test}, action: {method: acp}}\n"
        "  - {id: a, priority: 9, match: {type: review}, action: {method: acp}}\n",
    )
    (mistake,) = ground.mistakes()
    assert mistake == (
        ".goent/routing.yaml:4: rules[2].id: 'a' is also the id of another rule "
        "(.goent/routing.yaml:2: rules[0])"
    )


@pytest.mark.parametrize(
    ("earlier", "later", "covered"),
    [
        ("default: true", "type: fix", True),
        ("type: [fix, test]", "type: fix", True),
        ("type: fix", "type: [fix, test]", False),
        ("files: 3", 'files: ">5"', True),
        ('files: ">5"', "files: 3", False),
        ("type: fix", "{type: fix, context_tokens: 9, keywords: [x]}", True),
        ("keywords: [x, y]", "keywords: [y]", True),
        ("keywords: [y]", "keywords: [x, y]", False),
        ("{type: fix, max_cost: 1}", "type: fix", False),
        ("type: fix", "default: true", False),
    ],
)
def test_a_rule_that_can_never_match_is_told_of(
    ground: Ground, earlier: str, later: str, covered: bool
) -> None:
    first, second = (m if m.startswith("{") else f"{{{m}}}" for m in (earlier, later))
    ground.write(
        ".goent/routing.yaml",
        f"routing_rules:\n  - {{id: one, match: {first}, method: acp}}\n"
        f"  - {{match: {second}, method: cli}}\n",
    )
    warning = (
        ".goent/routing.yaml:3: routing_rules[1]: can never match: rule 'one' at line 2 comes before "
        "it and matches all that it does; change their order, or remove one"
    )
    assert ground.load().warnings == ((warning,) if covered else ())


def test_defaults_may_name_a_type_of_task_by_either_name(ground: Ground) -> None:
    ground.write(
        ".goent/providers.yaml",
        "providers:\n  a: {provider: x, model: m}\n  b: {provider: x, model: n}\n"
        "defaults: {bugfix: a, review: b, implementation: b}\n",
    )
    assert ground.load().defaults == {"fix": "a", "review": "b", "implementation": "b"}
    assert ground.load().written == ("a", "b")
