from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from contract_stage import World, contract_world
from opencode_script import SCRIPT
from opencode_stage import Stage, stage

from goent.upstream import tries


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """One OpenCode process for all tests of a file: a start takes seconds."""
    async with stage(SCRIPT, tmp_path_factory.mktemp("opencode")) as built:
        yield built


@pytest.fixture(scope="module", autouse=True)
def soon_asked_again() -> Generator[None]:
    """A provider that has failed is asked as often as ever, within a second or so."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(tries, "GROWTH", 0.1)
        yield


@pytest.fixture
def project(shared: Stage) -> Path:
    """The one directory that the shared process has booted; booting another takes seconds."""
    return shared.settings.project


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    """One go-ent with all methods; a method's program starts with its first worker."""
    async with contract_world(tmp_path_factory.mktemp("contract")) as built:
        yield built
