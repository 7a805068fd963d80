from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from contract_stage import World, contract_world
from opencode_script import SCRIPT
from opencode_stage import Stage, stage


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """One OpenCode process for all tests of a file: a start takes seconds."""
    async with stage(SCRIPT, tmp_path_factory.mktemp("opencode")) as built:
        yield built


@pytest.fixture(scope="module", autouse=True)
def everywhere(soon_asked_again: None) -> None:
    """Models fail in every file here."""


@pytest.fixture
def project(shared: Stage) -> Path:
    """The one directory that the shared process has booted; booting another takes seconds."""
    return shared.settings.project


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    """One go-ent with all methods; a method's program starts with its first worker."""
    async with contract_world(tmp_path_factory.mktemp("contract")) as built:
        yield built
