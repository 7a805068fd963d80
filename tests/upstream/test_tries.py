"""Who is asked next: everyone once, then again with patience, and never without end."""

import pytest

from goent.domain.errors import AuthRefused, OutOfCredit, ProviderDown, RateLimited, WorkerError
from goent.domain.types import Provider, Secret
from goent.providers.call_plan import (
    MAX_RETRY_WAIT_S,
    MAX_TRIAL_WAIT_S,
    AttemptSchedule,
    CallPlan,
    CallTarget,
    RetrySettings,
)
from goent.providers.provider_health import CircuitBreakers

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _target(name: str) -> CallTarget:
    provider = Provider(name=name, backend=name, model="m")
    return CallTarget(provider=provider, dialect="openai", base_url="http://x", key=Secret("k"))


A, B = _target("a"), _target("b")
BOTH = CallPlan(targets=(A, B))
ALONE = CallPlan(targets=(A,))


class Asking:
    """The tries of calls, at a time that the test sets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.healths = CircuitBreakers(clock=self.clock)

    def tries(
        self, course: CallPlan = BOTH, patience: RetrySettings | None = None
    ) -> AttemptSchedule:
        return AttemptSchedule(course, self.healths, patience or RetrySettings(), self.clock)

    async def fails(self, target: CallTarget, error: WorkerError) -> None:
        await self.healths.record_failure(target.provider, error, began=self.clock.now)

    def first(self, course: CallPlan = BOTH) -> CallTarget | None:
        following = self.tries(course).next_attempt()
        return following.target if following and not following.wait_s else None


@pytest.fixture
def asking() -> Asking:
    return Asking()


@pytest.mark.spec("P37")
async def test_the_fallback_is_asked_at_once(asking: Asking) -> None:
    tries = asking.tries()
    first = tries.next_attempt()
    assert first and first.target == A
    await asking.fails(A, ProviderDown("503"))
    following = tries.next_attempt()
    assert following
    assert (following.target, following.wait_s) == (B, 0)


@pytest.mark.spec("P38")
async def test_a_provider_that_said_when_to_come_back_is_left_alone_until_then(
    asking: Asking,
) -> None:
    await asking.fails(A, RateLimited("later", retry_after_s=3600))
    assert asking.first() == B
    asking.clock.now += 3601
    assert asking.first() == A


async def test_who_served_again_is_asked_again(asking: Asking) -> None:
    await asking.fails(A, ProviderDown("503"))
    assert asking.first() == B
    await asking.healths.record_success(A.provider, began=asking.clock.now)
    assert asking.first() == A


async def test_who_failed_once_is_asked_again_after_a_moment(asking: Asking) -> None:
    await asking.fails(A, ProviderDown("503"))
    asking.clock.now += 6
    assert asking.first() == A


async def test_one_without_a_fallback_is_asked_again_with_growing_waits(asking: Asking) -> None:
    tries = asking.tries(ALONE, RetrySettings(retries=3))
    tries.next_attempt()
    waits: list[float] = []
    for _ in range(4):
        await asking.fails(A, ProviderDown("503"))
        if following := tries.next_attempt():
            waits.append(following.wait_s)
            asking.clock.now += following.wait_s
    assert len(waits) == 3
    assert waits == sorted(waits)
    assert waits[0] > 0


async def test_a_short_rate_limit_is_waited_for(asking: Asking) -> None:
    tries = asking.tries(ALONE)
    tries.next_attempt()
    await asking.fails(A, RateLimited("soon", retry_after_s=4))
    following = tries.next_attempt()
    assert following
    assert 4 <= following.wait_s < 5


async def test_a_long_rate_limit_is_told_and_not_waited_for(asking: Asking) -> None:
    tries = asking.tries(ALONE)
    tries.next_attempt()
    await asking.fails(A, RateLimited("later", retry_after_s=MAX_RETRY_WAIT_S + 5))
    assert tries.next_attempt() is None
    assert asking.tries(ALONE).next_attempt() is None, "nor is it asked by the next call"


async def test_one_that_another_call_tries_out_is_waited_for_within_bounds(asking: Asking) -> None:
    for _ in range(3):
        await asking.fails(A, ProviderDown("503"))
    asking.clock.now += 6
    assert await asking.healths.try_admit(A.provider), "the trial"
    assert asking.first() == B, "whoever has another one does not wait"
    tries = asking.tries(ALONE, RetrySettings(retries=0))
    waits: list[float] = []
    while following := tries.next_attempt():
        assert following.silent == bool(waits), "it is told once"
        waits.append(following.wait_s)
        asking.clock.now += following.wait_s
    assert MAX_TRIAL_WAIT_S <= sum(waits) < MAX_TRIAL_WAIT_S + 2


@pytest.mark.parametrize("error", [AuthRefused("who?"), OutOfCredit("empty")])
async def test_an_account_that_was_refused_is_tried_only_where_nobody_else_is(
    asking: Asking, error: WorkerError
) -> None:
    await asking.fails(A, error)
    assert asking.first() == B
    following = asking.tries(ALONE).next_attempt()
    assert following and following.force, "it may have been mended, and only a call can tell"


async def test_the_tries_of_a_call_are_bounded(asking: Asking) -> None:
    tries = asking.tries(BOTH, RetrySettings(retries=2))
    asked = 0
    while following := tries.next_attempt():
        asking.clock.now += following.wait_s
        await asking.fails(following.target, ProviderDown("503"))
        asked += 1
    assert asked == 4
