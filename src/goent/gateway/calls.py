"""Which calls are under way, and whose?"""

import time
from collections.abc import Generator
from contextlib import contextmanager

import anyio

SETTLE_S = 2.0


class OpenCall:
    """One call under way; cancelling its scope ends it."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.scope = anyio.CancelScope()
        self.counted = anyio.Event()  # nothing more will be told about it
        self._began = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._began


class OpenCalls:
    """The calls that are under way."""

    def __init__(self) -> None:
        self._calls: set[OpenCall] = set()

    @contextmanager
    def hold(self, worker: str) -> Generator[OpenCall]:
        call = OpenCall(worker)
        self._calls.add(call)
        try:
            with call.scope:
                yield call
        finally:
            self._calls.discard(call)
            call.counted.set()

    async def settle(self, worker: str) -> None:
        """Return when every call of the worker has been counted, or after a bounded wait."""
        with anyio.move_on_after(SETTLE_S):
            while waiting := self._uncounted(worker):
                await waiting.counted.wait()

    def _uncounted(self, worker: str) -> OpenCall | None:
        mine = (call for call in self._calls if call.worker == worker)
        return next((call for call in mine if not call.counted.is_set()), None)

    def waiting(self, worker: str) -> float | None:
        """For how long the worker's oldest call has been under way; None if there is none."""
        ages = [call.age for call in self._calls if call.worker == worker]
        return max(ages, default=None)

    def cancel_all(self) -> None:
        for call in self._calls:
            call.scope.cancel()
