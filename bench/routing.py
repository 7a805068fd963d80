"""How long does a routing decision take, once the files have been counted?"""

import time
from decimal import Decimal
from pathlib import Path

import anyio
from bench.place import Place
from bench.table import Row

from goent.domain.provider_condition import ProviderCondition
from goent.domain.settings import Backend, RoutingRule, Settings
from goent.domain.task_profile import COMPLEXITIES, TASK_TYPES, Classification, Forecast
from goent.domain.types import Method, Pin, Price, Provider
from goent.routing.experience import Outlook
from goent.routing.route_decision import decide_route
from goent.routing.route_facts import RouteFacts

RULES = 100
PROVIDERS = 50
ROUNDS = 2_000
METHODS: tuple[Method, ...] = ("acp", "cli", "serve", "api")
TEXT = "Move the parser of dates into a module of its own, and keep every caller as it is. " * 20


async def run(_: Place) -> list[Row]:
    """CPU time of the deciding thread, so that a busy machine is not taken for a slow router."""
    p99 = await anyio.to_thread.run_sync(_p99)
    return [
        Row(
            measure=f"routing decision, p99, {RULES} rules and {PROVIDERS} providers",
            unit="ms",
            ours=p99 * 1000,
            at_most=1,
        )
    ]


def _p99() -> float:
    settings, facts = _settings(), _facts()
    tasks = [_task(n) for n in range(40)]
    taken: list[float] = []
    for n in range(ROUNDS):
        task = tasks[n % len(tasks)]
        began = time.thread_time()
        decision = decide_route(task, Pin(), settings, METHODS, facts)
        taken.append(time.thread_time() - began)
        assert decision.chosen_route
    return sorted(taken)[int(ROUNDS * 0.99)]


def _settings() -> Settings:
    """Rules of every kind, of which the last ones match."""
    providers = tuple(
        Provider(
            name=f"p{n}",
            backend=f"b{n % 10}",
            model=f"m{n}",
            context_limit=100_000 + 10_000 * n,
            price=Price(input=Decimal(n + 1), output=Decimal(4 * n + 4)),
            best_for=("tests",) if n % 7 == 0 else (),
        )
        for n in range(PROVIDERS)
    )
    rules = tuple(
        RoutingRule(
            id=f"r{n}",
            types=(TASK_TYPES[n % len(TASK_TYPES)],),
            complexity=(COMPLEXITIES[n % len(COMPLEXITIES)],),
            min_files=50 + n,
            keywords=(f"word{n}", "parser"),
            provider=f"p{n % PROVIDERS}",
        )
        for n in range(RULES)
    )
    return Settings(
        project=Path("/project"),
        providers=providers,
        backends={p.backend: Backend(id=p.backend) for p in providers},
        default_provider="p3",
        rules=rules,
    )


def _facts() -> RouteFacts:
    names = [f"p{n}" for n in range(PROVIDERS)]
    return RouteFacts(
        text=TEXT,
        now=1_000.0,
        conditions={
            name: ProviderCondition(state="limited" if n % 9 == 0 else "healthy", until=2_000.0)
            for n, name in enumerate(names)
        },
        missing_keys=dict.fromkeys(names[::11], "KEY"),
        forecasts={
            name: Forecast(
                p50_usd=Decimal(n) / 100, p90_usd=Decimal(n) / 50, source="estimate", seconds=30.0
            )
            for n, name in enumerate(names)
        },
        outlooks={
            name: Outlook(
                chance=0.3 + n / 100,
                low=0.2 + n / 100,
                high=0.4 + n / 100,
                seen=20,
                good=10,
                weight=20.0,
            )
            for n, name in enumerate(names)
        },
        budget_usd=Decimal(1),
    )


def _task(n: int) -> Classification:
    return Classification(
        type=TASK_TYPES[n % len(TASK_TYPES)],
        confidence=0.9,
        complexity=COMPLEXITIES[n % len(COMPLEXITIES)],
        files=n,
        size=10.0 * n,
        context_tokens=2_000 * n,
    )
