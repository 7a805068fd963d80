"""Task groups that raise a single error as itself."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

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


One = TypeVar("One")
Other = TypeVar("Other")


async def run_both(
    one: Callable[[], Awaitable[One]], other: Callable[[], Awaitable[Other]]
) -> tuple[One, Other]:
    """Both answers. If one fails, the other is ended and the failure raised as it is."""
    ones: list[One] = []
    others: list[Other] = []

    async def ask_other() -> None:
        others.append(await other())

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(ask_other)
            ones.append(await one())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return ones[0], others[0]
