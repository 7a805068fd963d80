"""How does one error come out of a task group as itself?"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def task_group() -> AsyncGenerator[TaskGroup]:
    """A task group whose body may raise: a single error is not wrapped in a group."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        match group.exceptions:
            case (error,):
                raise error from error.__cause__
            case _:
                raise
