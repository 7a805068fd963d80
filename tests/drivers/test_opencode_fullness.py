"""A process that has no room for another directory, and its workers."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec
import pytest
from opencode_script import SCRIPT
from opencode_stage import PATIENCE, Heard, Stage, processes, stage
from test_opencode_care import LAUNCH

from goent.domain.errors import ProtocolError
from goent.domain.types import Prompt
from goent.opencode import process_pool
from goent.opencode.process_pool import ProcessSlot
from goent.opencode.server_api import OpenCodeClient
from goent.testing.script import Script, case, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
HELLO = Prompt(text="say hello")
BOUNDS = ((20, 1), (1, 2))  # the most directories of a process, and how many processes there are
MOONSHOT = SCRIPT.providers["moonshot"]
GATED = tuple(
    case(f"wait at gate {most}", say("I waited.").having(gate=f"gate {most}")) for most, _ in BOUNDS
)
A, B = Path("/a"), Path("/b")


class Worker:
    """As a slot sees it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.busy_since: float | None = None

    async def leave_if_idle(self) -> None:
        raise AssertionError("nobody asks it to")


def test_a_directory_rests_when_nobody_works_there_and_nobody_is_about_to() -> None:
    place, worker = ProcessSlot(lambda: LAUNCH, dedicated=False), Worker(A)
    place.claim(A)
    assert place.idle_directory is None, "its session is being opened"
    place.tenants.add(worker)
    assert place.idle_directory == A
    worker.busy_since = 0.0
    assert place.idle_directory is None


def test_the_directory_that_nobody_needs_is_put_away_before_a_worker_has_to_leave() -> None:
    place = ProcessSlot(lambda: LAUNCH, dedicated=False)
    for directory in (A, B):
        place.claim(directory)
        place.tenants.add(Worker(directory))
    assert place.idle_directory == A, "the one that was asked for longest ago"
    place.claim(A)
    place.release(A)
    assert place.idle_directory == B
    place.tenants = {worker for worker in place.tenants if worker.directory == B}
    place.release(A)
    assert place.idle_directory == A, "nobody is there"


class Crowded(NamedTuple):
    """A stage whose process has room for one directory, and two more directories."""

    stage: Stage
    acp: Callable[[], set[int]]
    second: Path
    third: Path


@pytest.fixture(scope="module")
async def stage_of_all(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """One process for all tests here; each leaves one that works to the next."""
    moonshot = msgspec.structs.replace(MOONSHOT, cases=(*GATED, *MOONSHOT.cases))
    script = Script(providers={**SCRIPT.providers, "moonshot": moonshot})
    async with stage(script, tmp_path_factory.mktemp("fullness")) as built:
        yield built


@pytest.fixture
async def crowded(
    stage_of_all: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Crowded]:
    monkeypatch.setattr(process_pool, "MAX_SHARED_DIRECTORIES", 1)
    folder = stage_of_all.settings.project / tmp_path.name
    second, third = folder / "second", folder / "third"
    second.mkdir(parents=True)
    third.mkdir()
    yield Crowded(stage_of_all, lambda: processes("acp"), second, third)
    with anyio.fail_after(PATIENCE):
        while len(processes("acp")) > 1:  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


async def hello(built: Stage, cwd: Path) -> str:
    heard = Heard()
    async with built.driver.open(built.spec(cwd)) as session:
        await session.prompt(HELLO, heard.emit)
    return heard.text


async def test_a_full_process_puts_directories_away_and_their_workers_go_on_in_it(
    crowded: Crowded,
) -> None:
    built, acp, second, third = crowded
    async with built.driver.open(built.spec(built.settings.project)) as session:
        heard = Heard()
        await session.prompt(HELLO, heard.emit)
        (first,) = acp()
        assert await hello(built, second) == "Hello from glm-4."
        assert await hello(built, third) == "Hello from glm-4."
        await session.prompt(HELLO, heard.emit)
        assert heard.text == "Hello from glm-4." * 2, "all of it came, and once"
        assert acp() == {first}
    request = built.models.calls[-1].request
    assert request
    assert sum("say hello" in str(message) for message in request.messages) == 2, (
        "it is the same session"
    )


@pytest.mark.parametrize(("most", "expected"), BOUNDS)
async def test_where_all_are_at_work_a_light_process_takes_more_up_to_a_bound(
    crowded: Crowded, monkeypatch: pytest.MonkeyPatch, most: int, expected: int
) -> None:
    monkeypatch.setattr(process_pool, "MAX_DIRECTORIES", most)
    built, gate = crowded.stage, f"gate {most}"
    async with (
        built.driver.open(built.spec(built.settings.project)) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(session.prompt, Prompt(text=f"wait at {gate}"), Heard().emit)
        await built.models.at_gate(gate, timeout=PATIENCE)
        assert await hello(built, crowded.second) == "Hello from glm-4."
        assert len(crowded.acp()) == expected
        built.models.open_gate(gate)


async def test_a_process_that_does_not_put_away_gets_no_further_work(
    crowded: Crowded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: OpenCodeClient, directory: str) -> None:
        raise ProtocolError(f"OpenCode's server keeps {directory}")

    built = crowded.stage
    assert await hello(built, built.settings.project) == "Hello from glm-4."
    monkeypatch.setattr(OpenCodeClient, "dispose", refuse)
    (first,) = crowded.acp()
    assert await hello(built, crowded.second) == "Hello from glm-4."
    with anyio.fail_after(PATIENCE):
        while first in crowded.acp():  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)
