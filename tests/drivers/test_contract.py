"""What every method of running a worker promises, whichever program does the work.

The tests are the same for all; `contract_stage` says how another method is put under them.
"""

import logging
from collections.abc import Mapping

import anyio
import pytest
from contract_stage import FAILURES, HUGE, KEY, SPENT, STAGES, Stage, World, of_its_own
from found import files_below, holding
from scripted_project import assert_grammar

from goent.domain.events import TextDelta, TurnEnded, UsageReported, WorkerClosed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", params=STAGES, ids=lambda stage: stage.method)
def stage(request: pytest.FixtureRequest) -> Stage:
    assert isinstance(request.param, Stage)
    return request.param


@pytest.fixture(scope="module")
async def failing(world: World, stage: Stage) -> Mapping[str, str]:
    """All workers that are to fail, at once: some programs take seconds to start."""
    starts = stage.process and not stage.stays  # a program for each worker
    limit = {"hang": 20.0 if starts else 3.0}
    return {
        task: await world.spawn(
            stage.method, task, timeout_s=limit.get(task), model=of_its_own(task, stage.method)
        )
        for task in FAILURES
    }


@pytest.mark.spec("P07")
async def test_a_turn_is_told_and_counted_to_the_token_and_ends_once(
    world: World, stage: Stage
) -> None:
    before = world.models.billed("moonshot")
    worker = await world.spawn(stage.method, "say hello")
    result = await world.ended(worker)
    assert result.failure is None
    assert (result.state, result.text) == ("completed", "Hello from glm-4.")
    assert before + result.usage == world.models.billed("moonshot")
    assert result.usage == SPENT
    await world.close(worker)
    events = await world.events(worker)
    assert_grammar(events)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hello from glm-4."
    assert [type(e) for e in events if isinstance(e, TurnEnded | WorkerClosed)] == [
        TurnEnded,
        WorkerClosed,
    ]
    assert [e.source for e in events if isinstance(e, UsageReported)] == ["gateway"]
    await world.nothing_left()


async def test_the_providers_key_is_nowhere_but_at_the_provider(
    world: World, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    worker = await world.spawn(stage.method, f"look at {stage.method}")
    await world.models.at_gate(f"look-{stage.method}", timeout=120)
    processes = world.processes()
    assert processes or not stage.process
    for arguments, environ in processes.values():
        assert not [entry for entry in (*arguments, *environ) if KEY in entry]
    world.models.open_gate(f"look-{stage.method}")
    assert (await world.ended(worker)).state == "completed"
    assert {call.key for call in world.models.calls if call.provider == "moonshot"} == {KEY}
    await world.close(worker)
    files = files_below(world.folder)
    assert [path for path in files if path.name.startswith("journal")]
    assert holding(KEY, files) == []
    assert KEY not in caplog.text


@pytest.mark.parametrize("task", FAILURES)
async def test_a_failure_says_its_kind_and_ends_the_turn_once(
    world: World, stage: Stage, failing: Mapping[str, str], task: str
) -> None:
    worker = failing[task]
    result = await world.ended(worker)
    assert result.failure and (result.state, result.failure.kind) == ("failed", FAILURES[task])
    await world.close(worker)
    assert_grammar(await world.events(worker))
    assert KEY not in result.failure.message
    assert stage.method == (await world.status(worker)).method


async def test_a_piece_of_ten_megabytes_arrives(world: World, stage: Stage) -> None:
    result = await world.run(stage.method, "say much")
    told = (e.text for e in await world.events(result.worker_id) if isinstance(e, TextDelta))
    length = sum(map(len, told))
    if stage.method == "cli" and result.failure:  # `opencode run` may exit before all has left it
        assert "in the middle of a line" in result.failure.message
        assert 0 < length < HUGE, "what was said is kept"
    else:
        assert (result.failure, length) == (None, HUGE)
    await world.close(result.worker_id)


async def test_cancel_in_mid_turn_hangs_up_at_once(world: World, stage: Stage) -> None:
    worker = await world.spawn(stage.method, f"shut out {stage.method}")
    await world.models.at_gate(f"shut-{stage.method}", timeout=120)
    with anyio.fail_after(15):
        await world.close(worker)
    assert (await world.status(worker)).state == "cancelled"
    task = f"shut out {stage.method}"
    await world.models.wait_for(lambda call: call.case == task and call.disconnected)
    assert_grammar(await world.events(worker))
    await world.nothing_left()


async def test_cancel_ends_what_the_worker_has_started(world: World, stage: Stage) -> None:
    if stage.tools:
        worker = await world.spawn(stage.method, f"sleep in {stage.shell}")
        with anyio.fail_after(120):
            while not any("311" in args for args, _ in world.processes().values()):  # noqa: ASYNC110 (a process announces nothing)
                await anyio.sleep(0.1)
        await world.close(worker)
        assert (await world.status(worker)).state == "cancelled"
    await world.nothing_left()
