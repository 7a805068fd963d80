"""Providers as a user may have them, and tasks as a classification tells them."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from goent.domain.settings import Backend, RoutingRule, Settings
from goent.domain.task_profile import Classification, Complexity, Forecast, TaskType
from goent.domain.types import Method, Pin, Price, Provider
from goent.routing.route_decision import RouteDecision, decide_route
from goent.routing.route_facts import RouteFacts

METHODS: tuple[Method, ...] = ("acp", "cli", "serve", "api")


def a_provider(  # noqa: PLR0913 (a provider, short)
    name: str,
    model: str,
    *,
    cost: float,
    window: int = 200_000,
    backend: str = "",
    method: Method = "acp",
    best_for: tuple[str, ...] = (),
    fallbacks: tuple[str, ...] = (),
) -> Provider:
    return Provider(
        name=name,
        backend=backend or f"{name}-backend",
        model=model,
        method=method,
        context_limit=window,
        best_for=best_for,
        price=Price(input=Decimal(str(cost)), output=Decimal(str(4 * cost))),
        fallbacks=fallbacks,
    )


GLM = a_provider("glm", "glm-4", cost=0.6, backend="moonshot", fallbacks=("deepseek",))
KIMI = a_provider("kimi", "kimi-k2", cost=1, backend="moonshot", window=1_000_000)
HAIKU = a_provider("haiku", "claude-haiku-4-5", cost=1, backend="anthropic")
SONNET = a_provider("sonnet", "claude-sonnet-5", cost=3, backend="anthropic")
DEEPSEEK = a_provider("deepseek", "deepseek-coder", cost=0.3, backend="deepseek", window=128_000)
ALL = (GLM, KIMI, HAIKU, SONNET, DEEPSEEK)


def settings(
    *rules: RoutingRule,
    providers: tuple[Provider, ...] = ALL,
    default: str | None = "glm",
    chosen: bool = False,
    defaults: Mapping[str, str] | None = None,
) -> Settings:
    return Settings(
        project=Path("/project"),
        providers=providers,
        backends={p.backend: Backend(id=p.backend, base_url="https://x/v1") for p in providers},
        default_provider=default,
        default_chosen=chosen,
        defaults=defaults or {},
        rules=rules,
    )


def a_task(
    kind: TaskType = "implement",
    complexity: Complexity = "medium",
    *,
    files: int = 2,
    named: int = 0,
    tokens: int = 2_000,
    size: float = 60.0,
) -> Classification:
    return Classification(
        type=kind,
        confidence=0.9,
        complexity=complexity,
        files=files,
        named=named,
        size=size,
        context_tokens=tokens,
    )


def decided(
    task: Classification | None = None,
    held: Settings | None = None,
    facts: RouteFacts | None = None,
    pin: Pin | None = None,
) -> RouteDecision:
    return decide_route(
        task or a_task(), pin or Pin(), held or settings(), METHODS, facts or RouteFacts()
    )


def costing(**dollars: float) -> dict[str, Forecast]:
    return {
        name: Forecast(p50_usd=Decimal(str(usd / 2)), p90_usd=Decimal(str(usd)), source="estimate")
        for name, usd in dollars.items()
    }
