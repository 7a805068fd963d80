"""How far is our estimate of a prompt's tokens from what the model counts?

Every so often a call whose count is known teaches the next estimate.
"""

import re

from anyio import to_thread

from goent.domain.ports import Calibrations
from goent.domain.types import Usage
from goent.llm.estimate import estimate_tokens
from goent.upstream.course import Order, Target

MOST_LEARNED = 200_000  # bytes of a request that is worth estimating only to learn
EVERY = 8  # calls of a model from which one is learned
_BINARY = re.compile(r"[A-Za-z0-9+/=]{2000,}")  # pictures are not paid for by the letter


class Uncalibrated:
    """The port `Calibrations` that learns nothing."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        del backend, model
        return estimated

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None: ...


class Gauge:
    """Learns from the calls of one upstream."""

    def __init__(self, calibrations: Calibrations | None = None) -> None:
        self._calibrations = calibrations or Uncalibrated()
        self._calls: dict[tuple[str, str], int] = {}

    async def learn(self, order: Order, target: Target, usage: Usage) -> None:
        key = (target.provider.backend, target.provider.model)
        before = self._calls.get(key, 0)
        self._calls[key] = before + 1
        if before % EVERY or len(order.body) > MOST_LEARNED:
            return
        estimated = await to_thread.run_sync(_prompt_tokens, order.body)
        actual = usage.input + usage.cache_read + usage.cache_write
        await self._calibrations.learn(*key, estimated=estimated, actual=actual)


def _prompt_tokens(body: bytes) -> int:
    return estimate_tokens(_BINARY.sub("", body.decode(errors="replace")))
