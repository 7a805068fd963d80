"""What would go-ent do with a task, why, and what else could be done? Nothing is begun."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path

from anyio import to_thread

from goent.core.intake import existing_files
from goent.core.lookback import look_back
from goent.core.router import Asked, Routed, Router
from goent.domain.errors import RequestError
from goent.domain.forecasts import Forecast
from goent.domain.learned import Learned
from goent.domain.provider_replies import (
    CandidateView,
    Explained,
    Option,
    Recommended,
    RuleList,
    RuleView,
    StepView,
    TaskView,
)
from goent.domain.replies import Estimate
from goent.domain.requests import RecommendRequest
from goent.domain.settings import Settings
from goent.domain.tasks import Classification
from goent.domain.types import Route, rounded_usd
from goent.policy.advice import advise
from goent.policy.facts import usd
from goent.policy.rules import conditions, label

TOLD = 8  # features that are shown


class Recommending:
    """Answers before a task is handed over."""

    def __init__(self, router: Router, settings: Callable[[], Settings]) -> None:
        self._router = router
        self._settings = settings

    async def recommend(self, request: RecommendRequest, base: Path) -> Recommended:
        routed = await self._routed(request, base)
        route, others = routed.decision.route, routed.decision.alternatives
        return Recommended(
            provider=route.provider.name,
            model=route.provider.model,
            method=route.method,
            rationale=_rationale(route),
            features=task_view(routed.task),
            estimate=estimate(routed.forecast),
            alternatives=tuple([await self._option(routed, each) for each in others]),
            advice=tuple(advise(routed.task, request.files, route.method, routed.forecast)),
            warnings=(*self.notices, *routed.decision.warnings, *_dear(routed, request.budget_usd)),
        )

    async def explain(self, request: RecommendRequest, base: Path) -> Explained:
        routed = await self._routed(request, base)
        decision = routed.decision
        route = decision.chosen
        return Explained(
            provider=route.provider.name if route else None,
            model=route.provider.model if route else None,
            method=route.method if route else None,
            reason=route.reason if route else decision.refusal,
            fallbacks=tuple(p.name for p in route.fallbacks) if route else (),
            features=task_view(routed.task),
            estimate=estimate(routed.forecast) if route else Estimate(),
            steps=tuple(
                StepView(source=s.source, name=s.name, decided=s.decided, why=s.why)
                for s in decision.steps
            ),
            candidates=tuple(
                CandidateView(
                    provider=c.provider.name,
                    obstacle=c.obstacle,
                    estimate=estimate(routed.forecasts[c.provider.name]),
                )
                for c in decision.candidates
            ),
            warnings=(*self.notices, *decision.warnings),
        )

    async def learned(self) -> Learned:
        return await to_thread.run_sync(look_back, await self._router.known())

    @property
    def notices(self) -> tuple[str, ...]:
        """What is wrong with the rules as they are written now."""
        return self._router.notices()

    def rules(self) -> RuleList:
        settings = self._settings()
        return RuleList(
            rules=tuple(
                RuleView(
                    name=label(rule, number),
                    conditions=conditions(rule),
                    provider=rule.provider,
                    model=rule.model,
                    method=rule.method,
                )
                for number, rule in enumerate(settings.rules, 1)
            ),
            defaults=dict(settings.defaults),
            default_provider=settings.default_provider if settings.default_chosen else None,
            warnings=(*self.notices, *settings.warnings),
        )

    async def _routed(self, request: RecommendRequest, base: Path) -> Routed:
        if not request.task.strip():
            raise RequestError("the task is empty: say what the worker would have to do")
        budget = request.budget_usd
        asked = Asked(
            text=request.task,
            cwd=base,
            files=existing_files(request.files, base),
            context_tokens=request.context_tokens,
            budget_usd=None if budget is None else Decimal(str(budget)),
        )
        return await self._router.route(asked)

    async def _option(self, routed: Routed, route: Route) -> Option:
        forecast = await self._router.forecast(routed.task, route.provider, route.method)
        return Option(
            provider=route.provider.name,
            model=route.provider.model,
            method=route.method,
            estimate=estimate(forecast),
        )


def _dear(routed: Routed, budget: float | None) -> Iterable[str]:
    most = routed.forecast.p90_usd
    if budget is not None and most is not None and most > Decimal(str(budget)):
        name = routed.decision.route.provider.name
        yield f"{name} may cost up to {usd(most)}, above the budget_usd of ${budget:g}"


def _rationale(route: Route) -> str:
    if route.method != "cli":
        return route.reason
    return f"{route.reason}. By cli nobody can be asked: pass permissions auto, or it goes by acp"


def estimate(forecast: Forecast) -> Estimate:
    low, high = rounded_usd(forecast.p50_usd), rounded_usd(forecast.p90_usd)
    return Estimate(
        cost_usd=None if low is None or high is None else (low, high),
        seconds=forecast.seconds,
        source=forecast.source,
        samples=forecast.samples,
    )


def task_view(task: Classification) -> TaskView:
    return TaskView(
        type=task.type,
        confidence=task.confidence,
        complexity=task.complexity,
        files=task.files,
        size=task.size,
        context_tokens=task.context_tokens,
        signs=tuple(_signs(task)),
    )


def _signs(task: Classification) -> Iterable[str]:
    for feature in task.features[:TOLD]:
        yield f"{feature.of}: {feature.name} ({feature.weight:+.2g})"
