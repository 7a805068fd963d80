"""How many tokens will a call take, and how far is that from what the model counts?

Every so often a call whose count is known teaches the next estimate.
"""

import re

import msgspec
from anyio import to_thread
from msgspec import Struct

from goent.domain.calls import Calibrations, CallSize
from goent.domain.types import Usage
from goent.llm.estimate import estimate_tokens
from goent.upstream.course import Order, Target

MOST_LEARNED = 200_000  # bytes of a request that is worth estimating only to learn
EVERY = 8  # calls of a model from which one is learned
LIKELY_OUTPUT = 4096  # tokens: programs ask for leave to take ten times what answers take
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

    async def size(self, order: Order, target: Target) -> CallSize:
        """As this model is likely to count it."""
        provider = target.provider
        estimated = await to_thread.run_sync(_prompt_tokens, order.body)
        return CallSize(
            input=self._calibrations.corrected(provider.backend, provider.model, estimated),
            output=_most_output(order.body),
        )

    async def learn(self, order: Order, target: Target, usage: Usage) -> None:
        key = (target.provider.backend, target.provider.model)
        before = self._calls.get(key, 0)
        self._calls[key] = before + 1
        if before % EVERY or len(order.body) > MOST_LEARNED:
            return
        estimated = await to_thread.run_sync(_prompt_tokens, order.body)
        actual = usage.input + usage.cache_read + usage.cache_write
        await self._calibrations.learn(*key, estimated=estimated, actual=actual)


class _Asked(Struct):
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


def _most_output(body: bytes) -> int:
    try:
        asked = msgspec.json.decode(body, type=_Asked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LIKELY_OUTPUT  # whatever it is, the provider is the one to complain
    most = asked.max_completion_tokens or asked.max_tokens or LIKELY_OUTPUT
    return min(max(most, 0), LIKELY_OUTPUT)


def _prompt_tokens(body: bytes) -> int:
    return estimate_tokens(_BINARY.sub("", body.decode(errors="replace")))
