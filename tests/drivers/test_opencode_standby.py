"""A process in reserve: when there is one, what it takes over, and when it goes."""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from msgspec.structs import replace
from opencode_stage import PATIENCE, Heard, Stage, processes, stage

from goent.domain.settings import StandbyMode
from goent.domain.types import Prompt
from goent.opencode import process_pool
from goent.opencode.process_care import (
    MAX_LOAD,
    MIN_FREE_BYTES,
    CarePolicy,
    MachineLoad,
    is_reserve_wanted,
    read_machine,
)
from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

WORK = (
    case("was interrupted", say("I went on.")),
    case("say hello", say("Hello.")),
    *(
        case(f"wait at {gate}", say("I waited.").having(gate=gate))
        for gate in ("the first gate", "the second gate")
    ),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(*WORK, models=("glm-4", "kimi-k2"), key="sk-moon"),
        "deepseek": openai(*WORK, models=("deepseek-coder",), key="sk-deep"),
        "local": openai(*WORK, models=("small",)),
    }
)
ROOMY = MachineLoad(load=MAX_LOAD, memory=MIN_FREE_BYTES)


@pytest.mark.parametrize(
    ("choice", "longest", "machine", "is_wanted"),
    [
        ("auto", 60, ROOMY, True),
        ("auto", 59, ROOMY, False),
        ("auto", 60, replace(ROOMY, load=MAX_LOAD + 0.01), False),
        ("auto", 60, replace(ROOMY, memory=MIN_FREE_BYTES - 1), False),
        ("always", 0, MachineLoad(load=9, memory=0), True),
        ("never", 3600, ROOMY, False),
    ],
)
async def test_a_reserve_is_for_long_turns_on_a_machine_with_room(
    choice: StandbyMode, longest: float, machine: MachineLoad, *, is_wanted: bool
) -> None:
    assert (
        is_reserve_wanted(choice, longest, steady=CarePolicy().reserve_after_s, machine=machine)
        is is_wanted
    )


async def test_the_machine_is_read() -> None:
    found = read_machine()
    assert found.load >= 0
    assert found.memory > 1024**2


class Reserving(NamedTuple):
    """A stage that keeps a reserve whenever a turn runs, and its OpenCode processes."""

    stage: Stage
    acp: Callable[[], set[int]]


@asynccontextmanager
async def a_reserving_stage(folder: Path) -> AsyncGenerator[Reserving]:
    others = processes("acp")
    async with stage(SCRIPT, folder) as built:
        built.use(opencode=replace(built.settings.opencode, standby="always"))
        built.care = CarePolicy(interval=0.1, reserve_linger_s=0.2)
        yield Reserving(built, lambda: processes("acp") - others)


@pytest.fixture(scope="module")
async def reserving(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Reserving]:
    async with a_reserving_stage(tmp_path_factory.mktemp("standby")) as built:
        yield built


async def until(true: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE):
        while not true():  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.02)


async def test_a_reserve_that_nobody_needed_is_ended_and_the_process_that_worked_stays(
    reserving: Reserving,
) -> None:
    built, acp = reserving
    async with built.driver.open(built.spec(built.settings.project)) as session:
        working = acp()
        assert len(working) == 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, Prompt(text="wait at the first gate"), Heard().emit)
            await built.models.at_gate("the first gate", timeout=PATIENCE)
            await until(lambda: working < acp())
            built.models.open_gate("the first gate")
        await until(lambda: acp() == working)


@pytest.mark.spec("P02", "P29")
async def test_a_lost_process_is_replaced_by_the_one_in_reserve(reserving: Reserving) -> None:
    built, acp = reserving
    async with built.driver.open(built.spec(built.settings.project)) as session:
        heard, (first,), reserve = Heard(), acp(), set[int]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, Prompt(text="wait at the second gate"), heard.emit)
            await built.models.at_gate("the second gate", timeout=PATIENCE)
            await until(lambda: len(acp()) == 2)
            reserve |= acp() - {first}
            built.care = CarePolicy(interval=60)  # from now on, no further one is begun
            os.kill(first, signal.SIGKILL)
        assert heard.text == "I went on."
        assert acp() == reserve
        assert [call.case for call in built.models.calls][-1] == "was interrupted"
        again = Heard()
        await session.prompt(Prompt(text="say hello"), again.emit)
        assert (again.text, acp()) == ("Hello.", reserve)


async def test_a_directory_for_which_there_is_no_room_goes_to_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "MAX_SHARED_DIRECTORIES", 2)
    async with a_reserving_stage(tmp_path) as (built, acp):
        project = built.settings.project
        second, third = project / "second", project / "third"
        second.mkdir()
        third.mkdir()
        async with (
            built.driver.open(built.spec(project)) as session,
            built.driver.open(built.spec(second)),
            anyio.create_task_group() as tasks,
        ):
            (first,) = acp()
            tasks.start_soon(session.prompt, Prompt(text="wait at the first gate"), Heard().emit)
            await until(lambda: len(acp()) == 2)
            built.care = CarePolicy(interval=60)
            (reserve,) = acp() - {first}
            async with built.driver.open(built.spec(third)) as elsewhere:
                heard = Heard()
                await elsewhere.prompt(Prompt(text="say hello"), heard.emit)
                assert (heard.text, acp()) == ("Hello.", {first, reserve})
            built.models.open_gate("the first gate")
