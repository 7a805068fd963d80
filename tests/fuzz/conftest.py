from collections.abc import AsyncGenerator

import pytest
from fuzzed_daemon import FuzzedDaemon, a_fuzzed_daemon


@pytest.fixture(scope="package")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[FuzzedDaemon]:
    """One for all: what one test did to it, the next one would notice."""
    async with a_fuzzed_daemon(tmp_path_factory.mktemp("fuzz")) as daemon:
        yield daemon
