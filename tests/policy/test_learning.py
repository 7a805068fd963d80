"""What outcomes teach: the right order for each class of tasks, and nothing where rules have spoken."""

import random
from collections.abc import Iterable, Iterator
from decimal import Decimal

import pytest
from msgspec.structs import replace
from routing_ground import a_provider, a_task, costing, decided, settings

from goent.domain.errors import (
    BudgetSpent,
    NothingSaid,
    ProviderDown,
    TurnTimeout,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.settings import RoutingRule, Settings
from goent.domain.task_profile import Classification, Complexity, Forecast, TaskSample, TaskType
from goent.domain.types import Evidence, Pin, Provider, Usage, WorkerState
from goent.routing.experience import (
    HALF_LIFE_S,
    MIN_WEIGHT,
    Experience,
    Outlook,
    TaskOutcome,
    outcome_of,
)
from goent.routing.route_facts import RouteFacts

NOW = 100 * HALF_LIFE_S
ANN = a_provider("ann", "ann-1", cost=1, best_for=("implementation", "testing"))
BEN = a_provider("ben", "ben-1", cost=1, best_for=("implementation", "testing"))
EQUALS = settings(providers=(ANN, BEN), default=None)
BUILD, TEST = a_task("implement", "medium"), a_task("test", "medium")


def a_sample(  # noqa: PLR0913 (a sample, short)
    provider: Provider,
    evidence: Evidence | None,
    *,
    kind: TaskType = "implement",
    complexity: Complexity = "medium",
    state: WorkerState | None = None,
    failure: type[WorkerError] | None = None,
    at: float = NOW,
) -> TaskSample:
    return TaskSample(
        at=at,
        provider=provider.name,
        backend=provider.backend,
        model=provider.model,
        method="acp",
        type=kind,
        complexity=complexity,
        size=10.0,
        cost_usd=Decimal("0.05"),
        usage=Usage(),
        seconds=30.0,
        state=state or ("failed" if evidence == "refuted" else "completed"),
        evidence=evidence,
        failure=failure.kind if failure else None,
    )


def simulated(seed: str, tasks: int) -> Iterator[TaskSample]:
    """Ann does nine in ten of what is to be built and half of the tests; Ben the reverse."""
    chance = random.Random(seed)
    for n in range(tasks):
        kind: TaskType = "implement" if n % 2 else "test"
        for provider in (ANN, BEN):
            good = chance.random() < (0.9 if (provider is ANN) == (kind == "implement") else 0.5)
            yield a_sample(provider, "verified" if good else "refuted", kind=kind)


def knowing(
    samples: Iterable[TaskSample], task: Classification, held: Settings = EQUALS
) -> RouteFacts:
    known = Experience(samples, NOW).outlooks(task.type, task.complexity)
    outlooks = {p.name: found for p in held.providers if (found := known.get((p.backend, p.model)))}
    return RouteFacts(outlooks=outlooks, forecasts=costing(ann=0.1, ben=0.1))


def chosen(samples: Iterable[TaskSample], task: Classification, held: Settings = EQUALS) -> str:
    return decided(task, held, knowing(samples, task, held)).route.provider.name


@pytest.mark.parametrize("seed", [f"story {n}" for n in range(20)])
def test_each_class_of_tasks_goes_to_who_is_good_at_it(seed: str) -> None:
    samples = list(simulated(seed, 120))
    assert (chosen(samples, BUILD), chosen(samples, TEST)) == ("ann", "ben")
    mirrored = settings(providers=(BEN, ANN), default=None)
    assert (chosen(samples, BUILD, mirrored), chosen(samples, TEST, mirrored)) == ("ann", "ben")


def test_with_outcomes_alone_the_right_order_is_found_soon_and_seldom_the_wrong_one() -> None:
    right = wrong = 0
    for seed in range(200):
        samples = list(simulated(str(seed), 80))
        right += chosen(samples, TEST) == "ben"
        wrong += chosen(samples, BUILD) != "ann"
    assert (right >= 196, wrong) == (True, 0), f"{right} of 200 right, {wrong} wrong"


def test_of_equals_the_order_seldom_changes() -> None:
    changed = 0
    for seed in range(200):
        draw = random.Random(seed)
        samples = [
            a_sample(p, "verified" if draw.random() < 0.8 else "refuted")
            for _ in range(25)
            for p in (ANN, BEN)
        ]
        changed += chosen(samples, BUILD) != "ann"
    assert changed <= 16, f"{changed} of 200"


@pytest.mark.parametrize(
    ("held", "pin"),
    [
        (settings(RoutingRule(provider="ben"), providers=(ANN, BEN), default=None), Pin()),
        (settings(providers=(ANN, BEN), defaults={"implementation": "ben"}), Pin()),
        (settings(providers=(ANN, BEN), default="ben", chosen=True), Pin()),
        (EQUALS, Pin(provider="ben")),
        (EQUALS, Pin(model="ben-1")),
    ],
)
def test_pins_rules_defaults_and_a_written_default_provider_win(held: Settings, pin: Pin) -> None:
    samples = [a_sample(ANN, "verified")] * 50 + [a_sample(BEN, "refuted")] * 50
    decision = decided(BUILD, held, knowing(samples, BUILD, held), pin)
    assert decision.route.provider == BEN
    assert "learning" not in {step.source for step in decision.steps}


def test_a_default_that_nobody_wrote_down_yields_to_clearly_better_outcomes() -> None:
    ann, ben = replace(ANN, best_for=()), replace(BEN, best_for=())
    held = settings(providers=(ann, ben), default="ben")
    samples = [a_sample(ann, "verified")] * 30 + [a_sample(ben, "refuted")] * 30
    assert chosen([], BUILD, held) == "ben"
    assert chosen(samples, BUILD, held) == "ann"


def test_without_outcomes_nothing_is_different_and_nothing_is_said() -> None:
    assert decided(BUILD, EQUALS, RouteFacts()) == decided(BUILD, EQUALS, knowing([], BUILD))


def test_few_outcomes_change_nothing_and_that_is_told() -> None:
    few = int(MIN_WEIGHT) - 1
    samples = [a_sample(BEN, "verified")] * 50 + [a_sample(ANN, "refuted")] * few
    decision = decided(BUILD, EQUALS, knowing(samples, BUILD))
    (step,) = [each for each in decision.steps if each.source == "learning"]
    assert (decision.route.provider, step.decided) == (ANN, False)
    assert step.why.startswith("too few outcomes to change anything: ann 0 of 7 good, too few")


def test_a_change_is_told_with_its_figures() -> None:
    samples = [a_sample(BEN, "verified")] * 20 + [a_sample(ANN, "refuted")] * 15
    decision = decided(BUILD, EQUALS, knowing(samples, BUILD))
    (step,) = [each for each in decision.steps if each.source == "learning"]
    assert (step.name, step.decided) == ("best_for", True)
    assert step.why.startswith("ben rather than ann: ben 20 of 20 good (chance ")
    assert "ann 0 of 15 good" in step.why and "a success for about $" in step.why
    assert decision.route.reason.startswith("policy (best_for), by outcomes: ben rather than ann")
    assert [p.name for p in decision.route.fallbacks] == ["ann"], "who fails is asked last"


def test_fallbacks_of_the_policys_choice_are_in_the_learned_order() -> None:
    cat = a_provider("cat", "cat-1", cost=0.5)
    held = settings(providers=(ANN, cat, replace(BEN, best_for=())), default=None)
    samples = [a_sample(BEN, "verified")] * 30 + [a_sample(cat, "refuted")] * 30
    assert [p.name for p in decided(BUILD, held, RouteFacts()).route.fallbacks] == ["cat", "ben"]
    told = decided(BUILD, held, knowing(samples, BUILD, held)).route
    assert (told.provider, [p.name for p in told.fallbacks]) == (ANN, ["ben", "cat"])


def test_who_was_given_the_hard_tasks_is_not_taken_for_bad() -> None:
    """Both do all that is simple and half of what is hard; Ann had the hard ones."""
    samples = [
        sample
        for n in range(40)
        for sample in (
            a_sample(ANN, "verified" if n % 2 else "refuted", complexity="high"),
            a_sample(BEN, "verified", complexity="simple"),
            a_sample(ANN, "verified", complexity="simple") if n % 8 == 0 else None,
            a_sample(BEN, "verified" if n % 16 else "refuted", complexity="high")
            if n % 8 == 0
            else None,
        )
        if sample
    ]
    assert chosen(samples, a_task("implement", "medium")) == "ann", "as without any outcome"


def test_other_complexities_and_types_teach_what_the_class_itself_does_not() -> None:
    near = [a_sample(BEN, "verified", complexity="high")] * 40
    near += [a_sample(ANN, "refuted", complexity="high")] * 40
    assert chosen(near, BUILD) == "ben"
    far = [replace(sample, type="fix") for sample in near]
    assert chosen(far, BUILD) == "ann", "of another type alone it is not enough"


def test_a_cheap_one_that_fails_is_dearer_than_a_dear_one_that_does_not() -> None:
    samples = [a_sample(ANN, "verified" if n % 10 else "refuted") for n in range(60)]
    samples += [a_sample(BEN, "verified" if n % 2 else "refuted") for n in range(60)]
    held = settings(providers=(BEN, ANN), default=None)
    facts = knowing(samples, BUILD, held)
    for usd, name in ((0.2, "ann"), (4.0, "ben")):
        dear = replace(facts, forecasts=costing(ann=usd, ben=0.1))
        assert decided(BUILD, held, dear).route.provider.name == name


def test_old_outcomes_fade() -> None:
    old = [a_sample(ANN, "refuted", at=NOW - 6 * HALF_LIFE_S)] * 200
    new = [a_sample(ANN, "verified")] * 20
    ((_, outlook),) = Experience([*old, *new], NOW).outlooks("implement", "medium").items()
    assert outlook.chance > 0.75
    assert outlook.weight == pytest.approx(20 + 200 / 64)


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (a_sample(ANN, "verified"), TaskOutcome(finished=True, claim_held=True)),
        (a_sample(ANN, "refuted"), TaskOutcome(finished=True, claim_held=False)),
        (a_sample(ANN, "claimed"), TaskOutcome(finished=True)),
        (a_sample(ANN, "refuted", state="completed"), TaskOutcome(finished=False)),
        (a_sample(ANN, None, state="failed", failure=NothingSaid), TaskOutcome(finished=False)),
        (a_sample(ANN, None, state="failed", failure=TurnTimeout), TaskOutcome(finished=False)),
        (a_sample(ANN, None, state="failed", failure=ProviderDown), None),
        (a_sample(ANN, None, state="failed", failure=WorkerCrashed), None),
        (a_sample(ANN, None, state="failed", failure=BudgetSpent), None),
        (a_sample(ANN, None, state="cancelled"), None),
        (a_sample(ANN, "refuted", state="cancelled"), None),
        (a_sample(ANN, None, state="failed"), None),
        (a_sample(ANN, None), None),
    ],
)
def test_only_what_tells_of_the_worker_is_an_outcome(
    sample: TaskSample, told: TaskOutcome | None
) -> None:
    assert outcome_of(sample) == told


def test_who_is_never_checked_is_no_better_for_it() -> None:
    """A claim says that the worker got through; whether it holds, the checked ones say."""
    samples = [a_sample(ANN, "verified" if n % 10 else "refuted") for n in range(60)]
    samples += [a_sample(BEN, "claimed")] * 60
    known = Experience(samples, NOW).outlooks("implement", "medium")
    ann, ben = known[ANN.backend, ANN.model], known[BEN.backend, BEN.model]
    assert ben.chance <= ann.chance + 0.02 and ben.low < ann.low
    assert chosen(samples, BUILD) == "ann"


@pytest.mark.parametrize(
    "samples",
    [
        [a_sample(ANN, "refuted")] * 2000 + [a_sample(BEN, "refuted")] * 2000,
        [a_sample(ANN, None, state="failed", failure=NothingSaid)] * 500,
        [a_sample(BEN, "verified")],
        [a_sample(ANN, "verified")] * 100_000 + [a_sample(BEN, "verified")] * 100_000,
        [a_sample(ANN, "refuted", at=at) for at in (-1e308, 1e308, float("inf"), float("nan"))] * 9,
        [a_sample(BEN, "verified", at=0.0)] * 50,
    ],
)
def test_hostile_outcomes_do_no_harm(samples: list[TaskSample]) -> None:
    assert chosen(samples, BUILD) == "ann"
    for outlook in Experience(samples, NOW).outlooks("implement", "medium").values():
        assert 0 < outlook.low <= outlook.chance <= outlook.high <= 1


def test_an_unknown_price_counts_for_nobody() -> None:
    samples = [a_sample(ANN, "verified")] * 40 + [a_sample(BEN, "verified")] * 40
    facts = knowing(samples, BUILD)
    free = Forecast(p50_usd=None, p90_usd=None, source="estimate")
    facts = replace(facts, forecasts={**costing(ann=9.0), "ben": free})
    assert decided(BUILD, EQUALS, facts).route.provider == ANN


def test_the_order_is_as_it_was_but_for_who_is_clearly_worse() -> None:
    names = "abcdef"
    providers = tuple(a_provider(n, f"{n}-1", cost=1, best_for=("implementation",)) for n in names)

    def outlook(low: float, high: float) -> Outlook:
        return Outlook(chance=(low + high) / 2, low=low, high=high, seen=20, good=1, weight=20)

    outlooks = {"b": outlook(0.2, 0.3), "d": outlook(0.5, 0.6), "e": outlook(0.25, 0.9)}
    outlooks["f"] = outlook(0.8, 0.9)
    decision = decided(
        BUILD, settings(providers=providers, default=None), RouteFacts(outlooks=outlooks)
    )
    order = [decision.route.provider, *(route.provider for route in decision.alternatives)]
    assert [p.name for p in order] == ["a", "f", "d", "b", "c", "e"]
