from collections.abc import AsyncGenerator

import pytest
from gateway_world import World, open_world


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with open_world() as world:
        yield world
