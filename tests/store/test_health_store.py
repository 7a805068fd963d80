"""What one daemon learns of a provider, the others know, and the next one too."""

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from goent.domain.errors import OutOfCredit, ProviderDown, RateLimited
from goent.domain.provider_condition import HealthKey
from goent.domain.settings import Backend
from goent.domain.types import Provider
from goent.providers.provider_health import (
    BreakerBounds,
    CircuitBreakers,
    account_id,
    repair_record,
)
from goent.providers.track_record import SqliteHealths, read_health

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

GLM = Provider(name="glm", backend="moonshot", model="glm-4")
START = 1_800_000_000.0


class Clock:
    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


Daemons = Callable[..., AbstractAsyncContextManager[CircuitBreakers]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def a_daemon(tmp_path: Path, clock: Clock) -> Daemons:
    @asynccontextmanager
    async def open_(key: str = "k") -> AsyncGenerator[CircuitBreakers]:
        async with SqliteHealths.open(
            tmp_path / "health.db", mend=repair_record, clock=clock
        ) as kept:
            backend = Backend(id="moonshot", base_url="http://x", key_env="KEY")
            whose = partial(account_id, backend)
            yield CircuitBreakers(
                kept,
                account=lambda _: whose({"KEY": key}),
                bounds=lambda: BreakerBounds(failures=2, first_pause_s=5),
                clock=clock,
            )

    return open_


async def known(healths: CircuitBreakers, state: str) -> None:
    """Until the file was looked at again."""
    with anyio.fail_after(20):
        while healths.condition(GLM).state != state:  # noqa: ASYNC110 (the file announces nothing)
            await anyio.sleep(0.02)


@pytest.mark.spec("P38")
async def test_a_rate_limit_outlives_the_daemon(a_daemon: Daemons, clock: Clock) -> None:
    async with a_daemon() as healths:
        error = RateLimited("slow down", retry_after_s=3600)
        await healths.record_failure(GLM, error, began=clock.now)
    clock.now += 1800
    async with a_daemon() as healths:
        seen = healths.condition(GLM)
        assert (seen.state, seen.until) == ("limited", START + 3600)
        assert not await healths.try_admit(GLM)
        clock.now += 1801
        assert await healths.try_admit(GLM)


@pytest.mark.spec("P36", "P38")
async def test_another_daemon_hears_of_it_soon(a_daemon: Daemons, clock: Clock) -> None:
    async with a_daemon() as one, a_daemon() as other:
        assert other.condition(GLM).state == "unknown"
        await one.record_failure(GLM, RateLimited("slow down", retry_after_s=60), began=clock.now)
        await known(other, "limited")
        assert await one.forget(GLM)
        await known(other, "unknown")
        assert not await one.forget(GLM)


async def test_of_two_daemons_one_tries_it_out(a_daemon: Daemons, clock: Clock) -> None:
    async with a_daemon() as one, a_daemon() as other:
        for _ in range(2):
            await one.record_failure(GLM, ProviderDown("503"), began=clock.now)
        await known(other, "down")
        clock.now += 6
        admitted: list[bool] = []

        async def try_it(healths: CircuitBreakers) -> None:
            admitted.append(await healths.try_admit(GLM))

        async with anyio.create_task_group() as group:
            for healths in (one, other) * 10:
                group.start_soon(try_it, healths)
        assert sorted(admitted) == [False] * 19 + [True]
        assert one.calls_in_flight(GLM) + other.calls_in_flight(GLM) == 1
        await (one if one.calls_in_flight(GLM) else other).record_success(GLM, began=clock.now)
        await known(one, "healthy")
        await known(other, "healthy")
        assert await one.try_admit(GLM) and await other.try_admit(GLM)


async def test_a_trial_that_was_given_up_is_free_for_the_next(
    a_daemon: Daemons, clock: Clock
) -> None:
    async with a_daemon() as healths:
        for _ in range(2):
            await healths.record_failure(GLM, ProviderDown("503"), began=clock.now)
        clock.now += 6
        assert await healths.try_admit(GLM)
        assert not await healths.try_admit(GLM)
        await healths.release(GLM)
        assert await healths.try_admit(GLM)


async def test_another_key_starts_anew_and_the_file_holds_neither(
    a_daemon: Daemons, clock: Clock, tmp_path: Path
) -> None:
    async with a_daemon(key="sk-empty-account") as healths:
        await healths.record_failure(GLM, OutOfCredit("empty"), began=clock.now)
        assert healths.condition(GLM).state == "no_credit"
    async with a_daemon(key="sk-full-account") as healths:
        assert healths.condition(GLM).state == "unknown"
    for file in tmp_path.iterdir():
        assert b"-account" not in file.read_bytes()


async def test_only_what_changes_something_is_written(
    a_daemon: Daemons, clock: Clock, tmp_path: Path
) -> None:
    async with a_daemon() as healths:
        await healths.record_success(GLM, began=START)
        before = (tmp_path / "health.db-wal").stat()
        for _ in range(20):
            clock.now += 1
            assert await healths.try_admit(GLM)
            await healths.record_success(GLM, began=START)
        after = (tmp_path / "health.db-wal").stat()
        assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


async def test_a_clock_that_was_set_back_makes_no_wait_longer(
    a_daemon: Daemons, clock: Clock
) -> None:
    async with a_daemon() as healths:
        error = RateLimited("slow down", retry_after_s=60)
        await healths.record_failure(GLM, error, began=clock.now)
    clock.now -= 30 * 24 * 3600
    async with a_daemon() as healths:
        assert healths.condition(GLM).until == clock.now + 60


async def test_a_damaged_file_is_put_aside_and_calls_go_on(
    a_daemon: Daemons, tmp_path: Path
) -> None:
    (tmp_path / "health.db").write_bytes(b"no database at all" * 100)
    async with a_daemon() as healths:
        assert await healths.try_admit(GLM)
        await healths.record_success(GLM, began=START)
    assert list(tmp_path.glob("health.db.corrupt-*"))


OTHER_PROCESS = """
import sys, time
from pathlib import Path
import anyio
from goent.domain.errors import RateLimited
from goent.domain.types import Provider
from goent.providers.provider_health import repair_record
from goent.providers.track_record import SqliteHealths
from goent.providers.provider_health import CircuitBreakers

async def main():
    async with SqliteHealths.open(Path(sys.argv[1]), mend=repair_record) as kept:
        provider = Provider(name="glm", backend="moonshot", model="glm-4")
        error = RateLimited("told elsewhere", retry_after_s=3600)
        await CircuitBreakers(kept).record_failure(provider, error, began=time.time())

anyio.run(main)
"""


@pytest.mark.spec("P36", "P38")
async def test_what_another_process_learns_is_known_here(tmp_path: Path) -> None:
    path = tmp_path / "health.db"
    async with SqliteHealths.open(path, mend=repair_record) as kept:
        healths = CircuitBreakers(kept)
        assert healths.condition(GLM).state == "unknown"
        await anyio.run_process([sys.executable, "-c", OTHER_PROCESS, str(path)], env=os.environ)
        await known(healths, "limited")
        assert "told elsewhere" in healths.condition(GLM).reason
    assert read_health(path)[HealthKey("moonshot", "glm-4", "")].state == "limited"
    assert read_health(tmp_path / "none.db") == {}
