"""What is made once, for all who need it?"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

from goent.domain.errors import GoentError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """By key. Who comes while it is being made waits; what has failed has failed for all."""

    def __init__(self) -> None:
        self._made: dict[K, V | GoentError] = {}
        self._making: dict[K, anyio.Lock] = {}

    async def get(self, key: K, make: Callable[[], Awaitable[V]]) -> V:
        async with self._making.setdefault(key, anyio.Lock()):
            if key not in self._made:
                try:
                    self._made[key] = await make()
                except GoentError as error:
                    self._made[key] = error
            made = self._made[key]
        if isinstance(made, GoentError):
            raise made.with_traceback(None)  # it is raised often, and would grow
        return made
