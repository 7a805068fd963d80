"""Who is asked next: everyone once, then again with patience, and never without end."""

import pytest

from goent.domain.errors import ProviderDown, RateLimited
from goent.domain.types import Provider, Secret
from goent.upstream.cooldown import Cooldowns
from goent.upstream.course import Course, Target
from goent.upstream.tries import LONGEST_WAIT_S, Patience, Tries


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _target(name: str) -> Target:
    provider = Provider(name=name, backend=name, model="m")
    return Target(provider=provider, dialect="openai", base_url="http://x", key=Secret("k"))


A, B = _target("a"), _target("b")
BOTH = Course(targets=(A, B))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cooldowns(clock: Clock) -> Cooldowns:
    return Cooldowns(clock)


@pytest.mark.spec("P37")
def test_the_fallback_is_asked_at_once(cooldowns: Cooldowns) -> None:
    tries = Tries(BOTH, cooldowns, Patience())
    assert tries.first() == A
    cooldowns.failed(A, ProviderDown("503"))
    following = tries.after_failure()
    assert following
    assert (following.target, following.wait_s) == (B, 0)


@pytest.mark.spec("P38")
def test_a_provider_that_said_when_to_come_back_is_left_alone_until_then(
    cooldowns: Cooldowns, clock: Clock
) -> None:
    cooldowns.failed(A, RateLimited("later", retry_after_s=3600))
    assert Tries(BOTH, cooldowns, Patience()).first() == B
    clock.now += 3601
    assert Tries(BOTH, cooldowns, Patience()).first() == A


def test_who_served_again_is_asked_again(cooldowns: Cooldowns) -> None:
    cooldowns.failed(A, ProviderDown("503"))
    cooldowns.served(A)
    assert Tries(BOTH, cooldowns, Patience()).first() == A


def test_one_without_a_fallback_is_asked_again_with_growing_waits(cooldowns: Cooldowns) -> None:
    tries = Tries(Course(targets=(A,)), cooldowns, Patience(again=3))
    tries.first()
    waits: list[float] = []
    for _ in range(4):
        cooldowns.failed(A, ProviderDown("503"))
        if following := tries.after_failure():
            waits.append(following.wait_s)
    assert len(waits) == 3
    assert waits == sorted(waits)
    assert waits[0] > 0


def test_a_short_rate_limit_is_waited_for(cooldowns: Cooldowns) -> None:
    tries = Tries(Course(targets=(A,)), cooldowns, Patience())
    tries.first()
    cooldowns.failed(A, RateLimited("soon", retry_after_s=4))
    following = tries.after_failure()
    assert following
    assert 4 <= following.wait_s < 5


def test_a_long_rate_limit_is_told_and_not_waited_for(cooldowns: Cooldowns) -> None:
    tries = Tries(Course(targets=(A,)), cooldowns, Patience())
    tries.first()
    cooldowns.failed(A, RateLimited("later", retry_after_s=LONGEST_WAIT_S + 5))
    assert tries.after_failure() is None


def test_the_tries_of_a_call_are_bounded(cooldowns: Cooldowns) -> None:
    tries = Tries(BOTH, cooldowns, Patience(again=2))
    target = tries.first()
    asked = 1
    while True:
        cooldowns.failed(target, ProviderDown("503"))
        following = tries.after_failure()
        if following is None:
            break
        target, asked = following.target, asked + 1
    assert asked == 4
