"""How do several work on one thing, so that the first error ends all of them and is told as itself?"""

from collections.abc import Awaitable, Callable

import anyio

from goent.domain.errors import GoentError

Work = Callable[[], Awaitable[None]]


async def together(works: list[Work]) -> None:
    """Raises the first `GoentError`."""
    errors: list[GoentError] = []
    async with anyio.create_task_group() as group:

        async def one(work: Work) -> None:
            try:
                await work()
            except GoentError as error:
                errors.append(error)
                group.cancel_scope.cancel()

        for work in works:
            group.start_soon(one, work)
    if errors:
        raise errors[0]
