"""One world per module: a cold OpenCode costs seconds, so tests share it where they can."""

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"
