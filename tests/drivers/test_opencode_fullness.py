"""A process that has no room for another directory, and its workers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from opencode_script import SCRIPT
from opencode_stage import PATIENCE, Heard, Stage, processes, stage
from test_opencode_care import LAUNCH

from goent.domain.errors import ProtocolError
from goent.domain.types import Prompt
from goent.drivers.opencode import slot
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.slot import Slot

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
HELLO = Prompt(text="say hello")
A, B = Path("/a"), Path("/b")


class Worker:
    """As a slot sees it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.busy_since: float | None = None

    async def leave_if_idle(self) -> None:
        raise AssertionError("nobody asks it to")


def test_a_directory_rests_when_nobody_works_there_and_nobody_is_about_to() -> None:
    place, worker = Slot(lambda: LAUNCH, dedicated=False), Worker(A)
    place.claim(A)
    assert place.resting is None, "its session is being opened"
    place.tenants.add(worker)
    assert place.resting == A
    worker.busy_since = 0.0
    assert place.resting is None


def test_the_directory_that_nobody_needs_is_put_away_before_a_worker_has_to_leave() -> None:
    place = Slot(lambda: LAUNCH, dedicated=False)
    for directory in (A, B):
        place.claim(directory)
        place.tenants.add(Worker(directory))
    assert place.resting == A, "the one that was asked for longest ago"
    place.claim(A)
    place.release(A)
    assert place.resting == B
    place.tenants = {worker for worker in place.tenants if worker.directory == B}
    place.release(A)
    assert place.resting == A, "nobody is there"


@asynccontextmanager
async def crowded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, most: int = 20
) -> AsyncGenerator[tuple[Stage, Path, Path]]:
    """Room for one directory, and more in need; two more directories."""
    monkeypatch.setattr(slot, "DIRECTORIES", 1)
    monkeypatch.setattr(slot, "MOST_DIRECTORIES", most)
    second, third = tmp_path / "second", tmp_path / "third"
    second.mkdir()
    third.mkdir()
    async with stage(SCRIPT, tmp_path) as built:
        yield built, second, third


async def hello(built: Stage, cwd: Path) -> str:
    heard = Heard()
    async with built.driver.open(built.spec(cwd)) as session:
        await session.prompt(HELLO, heard.emit)
    return heard.text


async def test_a_full_process_puts_directories_away_and_their_workers_go_on_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = processes("acp")
    async with crowded(tmp_path, monkeypatch) as (built, second, third):
        async with built.driver.open(built.spec(built.settings.project)) as session:
            heard = Heard()
            await session.prompt(HELLO, heard.emit)
            (first,) = processes("acp") - before
            assert await hello(built, second) == "Hello from glm-4."
            assert await hello(built, third) == "Hello from glm-4."
            await session.prompt(HELLO, heard.emit)
            assert heard.text == "Hello from glm-4." * 2, "all of it came, and once"
            assert processes("acp") - before == {first}
        request = built.models.calls[-1].request
        assert request
        assert sum("say hello" in str(message) for message in request.messages) == 2, (
            "it is the same session"
        )


@pytest.mark.parametrize(("most", "expected"), [(20, 1), (1, 2)])
async def test_where_all_are_at_work_a_light_process_takes_more_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, expected: int
) -> None:
    before = processes("acp")
    async with (
        crowded(tmp_path, monkeypatch, most=most) as (built, second, _),
        built.driver.open(built.spec(built.settings.project)) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(session.prompt, Prompt(text="wait at the gate"), Heard().emit)
        await built.models.at_gate("door", timeout=PATIENCE)
        assert await hello(built, second) == "Hello from glm-4."
        assert len(processes("acp") - before) == expected
        built.models.open_gate("door")


async def test_a_process_that_does_not_put_away_gets_no_further_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Client, directory: str) -> None:
        raise ProtocolError(f"OpenCode's server keeps {directory}")

    monkeypatch.setattr(Client, "dispose", refuse)
    before = processes("acp")
    async with crowded(tmp_path, monkeypatch) as (built, second, _):
        assert await hello(built, built.settings.project) == "Hello from glm-4."
        (first,) = processes("acp") - before
        assert await hello(built, second) == "Hello from glm-4."
        with anyio.fail_after(PATIENCE):
            while first in processes("acp"):  # noqa: ASYNC110 (a process announces nothing)
                await anyio.sleep(0.05)
