"""A process that has no room for another directory, and its workers."""

from pathlib import Path

import anyio
import pytest
from opencode_script import SCRIPT
from opencode_stage import PATIENCE, Heard, Stage, processes, stage
from test_opencode_care import LAUNCH

from goent.domain.types import Prompt
from goent.drivers.opencode import slot
from goent.drivers.opencode.slot import Slot

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


class Worker:
    """As a slot sees it."""

    def __init__(self, busy_since: float | None = None) -> None:
        self.directory = Path("/project")
        self.busy_since = busy_since

    async def leave_if_idle(self) -> None:
        raise AssertionError("nobody asks it to")


async def test_a_slot_is_at_rest_when_nobody_works_and_nobody_is_about_to() -> None:
    place = Slot(lambda: LAUNCH, dedicated=False)
    place.users, worker = 1, Worker()
    assert not place.is_at_rest, "its session is being opened"
    place.tenants.add(worker)
    assert place.is_at_rest
    worker.busy_since = 0.0
    assert not place.is_at_rest


async def gone(pid: int) -> None:
    with anyio.fail_after(PATIENCE):
        while pid in processes("acp"):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


async def test_a_full_process_goes_when_another_is_there_and_its_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "DIRECTORIES", 2)
    second, third = tmp_path / "second", tmp_path / "third"
    second.mkdir()
    third.mkdir()

    async def hello(built: Stage, cwd: Path) -> str:
        heard = Heard()
        async with built.driver.open(built.spec(cwd)) as session:
            await session.prompt(Prompt(text="say hello"), heard.emit)
        return heard.text

    async with stage(SCRIPT, tmp_path) as built:
        before = processes("acp")
        async with built.driver.open(built.spec(built.settings.project)) as session:
            (first,) = processes("acp") - before
            heard = Heard()
            await session.prompt(Prompt(text="say hello"), heard.emit)
            assert await hello(built, second) == "Hello from glm-4."
            assert processes("acp") - before == {first}, "it stays while nobody needs another"
            assert await hello(built, third) == "Hello from glm-4."
            await gone(first)
            await session.prompt(Prompt(text="say hello"), heard.emit)
            assert heard.text == "Hello from glm-4." * 2
