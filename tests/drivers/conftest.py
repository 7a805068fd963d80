from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from opencode_script import SCRIPT
from opencode_stage import Stage, stage


@pytest.fixture(scope="package")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """One OpenCode process for all tests of this folder: a start takes seconds."""
    async with stage(SCRIPT, tmp_path_factory.mktemp("opencode")) as built:
        yield built


@pytest.fixture
def project(shared: Stage) -> Path:
    """The one directory that the shared process has booted; booting another takes seconds."""
    return shared.settings.project
