"""Two questions to git at once, neither of which needs the other's answer."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

One = TypeVar("One")
Other = TypeVar("Other")


async def together(
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
