"""Replays finished tasks with what had been learned before each, and compares the choices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from goent.domain.replies import Instead, LearnedLine, LearnedReply, Lookback
from goent.domain.settings import Settings
from goent.domain.task_profile import Classification, Forecast, TaskSample
from goent.domain.types import Price, Provider, Value, rounded_usd
from goent.routing.experience import (
    MIN_WEIGHT,
    Experience,
    ModelKey,
    Outlook,
    TaskClass,
    outcome_of,
)
from goent.routing.forecast import MEDIAN, PastTasks, forecast_task, quantile
from goent.routing.preferences import ExpenseRanking
from goent.routing.route_facts import RouteFacts

REPLAY_LIMIT = 500  # tasks
CHANGES_LIMIT = 8  # changed choices that are shown


class RoutingKnowledge(Value, frozen=True, kw_only=True):
    """What the router knows. Prices are by the provider's name."""

    settings: Settings
    samples: Sequence[TaskSample]
    past: PastTasks
    prices: Mapping[str, Price]
    now: float


class _PastChoice(Value, frozen=True, kw_only=True):
    """A finished task: the provider it had, and the one that learning would have chosen."""

    kind: TaskClass
    chosen: Provider
    learned: Provider


def run_backtest(known: RoutingKnowledge) -> LearnedReply:
    """Takes up to half a second, so not for the event loop."""
    samples = sorted((s for s in known.samples if outcome_of(s)), key=lambda sample: sample.at)
    experience = Experience(samples, known.now)
    replay = _Replay(known, samples)
    lines = tuple(sorted(_learned_lines(known, samples, experience), key=_line_order))
    lookback = replay.summary(experience)
    return LearnedReply(
        learning=known.settings.learning,
        outcomes=len(samples),
        left_out=len(known.samples) - len(samples),
        classes=lines,
        lookback=lookback,
        notes=tuple(_notes(known.settings, lines, lookback)),
    )


def _learned_lines(
    known: RoutingKnowledge, samples: Sequence[TaskSample], experience: Experience
) -> Iterator[LearnedLine]:
    names = {model: provider.name for model, provider in _by_model(known.settings).items()}
    for (model, kind), outcomes in experience.seen().items():
        outlook = experience.outlooks(*kind)[model]
        own = [s for s in samples if _model(s) == model and (s.type, s.complexity) == kind]
        costs = sorted(s.cost_usd for s in own if s.cost_usd is not None)
        yield LearnedLine(
            type=kind[0],
            complexity=kind[1],
            provider=names.get(model, "/".join(model)),
            verified=sum(each.claim_held is True for each in outcomes),
            refuted=sum(each.claim_held is False for each in outcomes),
            claimed=sum(each.finished and each.claim_held is None for each in outcomes),
            failed=sum(not each.finished for each in outcomes),
            chance=round(outlook.chance, 3),
            low=round(outlook.low, 3),
            high=round(outlook.high, 3),
            enough=outlook.enough,
            cost_usd=rounded_usd(quantile(costs, MEDIAN)) if costs else None,
            seconds=quantile(sorted(s.seconds for s in own), MEDIAN),
            graded=outlook.graded,
        )


def _line_order(line: LearnedLine) -> tuple[str, str, float, str]:
    return line.type, line.complexity, -line.chance, line.provider


class _Replay:
    """Replays each task with what was known before it began, at today's prices."""

    def __init__(self, known: RoutingKnowledge, samples: Sequence[TaskSample]) -> None:
        self._known = known
        self._providers = _by_model(known.settings)
        self._forecasts: dict[TaskClass, dict[str, Forecast]] = {}
        self._choices = tuple(self._replayed(samples))

    def summary(self, experience: Experience) -> Lookback:
        chosen = [self._figures(c.kind, c.chosen, experience) for c in self._choices]
        learned = [self._figures(c.kind, c.learned, experience) for c in self._choices]
        pairs = [
            (one, other)
            for (_, one), (_, other) in zip(chosen, learned, strict=True)
            if one is not None and other is not None
        ]
        return Lookback(
            tasks=len(self._choices),
            agreed=sum(c.chosen is c.learned for c in self._choices),
            chosen_chance=_mean(chance for chance, _ in chosen),
            learned_chance=_mean(chance for chance, _ in learned),
            priced=len(pairs),
            chosen_usd=round(sum(one for one, _ in pairs), 6) if pairs else None,
            learned_usd=round(sum(other for _, other in pairs), 6) if pairs else None,
            instead=tuple(_changed_choices(self._choices)),
        )

    def _replayed(self, samples: Sequence[TaskSample]) -> Iterator[_PastChoice]:
        then = Experience(now=self._known.now)
        for left, sample in zip(range(len(samples), 0, -1), samples, strict=True):
            chosen = self._providers.get(_model(sample))
            if chosen and left <= REPLAY_LIMIT:
                then.set_time(sample.at)
                learned = self._would_choose(sample, chosen, then)
                yield _PastChoice(
                    kind=(sample.type, sample.complexity), chosen=chosen, learned=learned
                )
            then.add(sample)

    def _would_choose(self, sample: TaskSample, chosen: Provider, then: Experience) -> Provider:
        outlooks = then.outlooks(sample.type, sample.complexity)
        known = {self._providers[m].name: o for m, o in outlooks.items() if m in self._providers}
        able = [p for p in self._providers.values() if p.name in known and p is not chosen]
        order = (chosen, *able)
        forecasts = {p.name: self._forecast(sample, p) for p in order}
        return ExpenseRanking(order, RouteFacts(outlooks=known, forecasts=forecasts)).reordered(
            order
        )[0]

    def _forecast(self, sample: TaskSample, provider: Provider) -> Forecast:
        found = self._forecasts.setdefault((sample.type, sample.complexity), {})
        if provider.name not in found:
            task = Classification(
                type=sample.type,
                confidence=1.0,
                complexity=sample.complexity,
                files=0,
                size=sample.size,
                context_tokens=0,
            )
            price = self._known.prices.get(provider.name)
            found[provider.name] = forecast_task(
                task, provider, "acp", price=price, past=self._known.past
            )
        return found[provider.name]

    def _figures(
        self, kind: TaskClass, provider: Provider, experience: Experience
    ) -> tuple[float, float | None]:
        outlook: Outlook = experience.outlooks(*kind)[provider.backend, provider.model]
        return outlook.chance, rounded_usd(self._forecasts[kind][provider.name].p50_usd)


def _changed_choices(choices: Iterable[_PastChoice]) -> Iterator[Instead]:
    counted = Counter(
        (c.kind, c.chosen.name, c.learned.name) for c in choices if c.chosen is not c.learned
    )
    for (kind, chosen, instead), tasks in counted.most_common(CHANGES_LIMIT):
        yield Instead(type=kind[0], complexity=kind[1], chosen=chosen, instead=instead, tasks=tasks)


def _notes(settings: Settings, lines: Sequence[LearnedLine], found: Lookback) -> Iterator[str]:
    if not settings.learning:
        yield "learning is off (`learning: off` in config.yaml), so this changes nothing"
    if not lines:
        yield "no outcomes yet: finished tasks give some, best of all with verify commands"
        return
    if not any(line.verified + line.refuted for line in lines):
        yield "no outcome was verified: with verify commands, outcomes say more than claims"
    able = {(line.type, line.provider) for line in lines if line.enough}
    if len(able) == len({type_ for type_, _ in able}):
        yield (
            f"nothing could change yet: that takes {MIN_WEIGHT:g} outcomes of a type, with at least "
            "two providers"
        )
    elif found.tasks > found.agreed:
        yield (
            "both estimates use the same outcomes as the choice, so expect a little less. Pins and "
            "rules are not in the history: where they decided, they still would"
        )


def _by_model(settings: Settings) -> dict[ModelKey, Provider]:
    """Each model once, by its shortest name."""
    found: dict[ModelKey, Provider] = {}
    for provider in sorted(settings.providers, key=lambda p: ("/" in p.name, len(p.name))):
        found.setdefault((provider.backend, provider.model), provider)
    return found


def _model(sample: TaskSample) -> ModelKey:
    return sample.backend, sample.model


def _mean(chances: Iterable[float]) -> float | None:
    found = list(chances)
    return round(fmean(found), 3) if found else None
