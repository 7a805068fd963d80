"""Which calls are under way, and what is said about each when it is over?"""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio

from goent.domain.ports import CallBegun, CallMade
from goent.domain.types import Dialect, Value
from goent.llm.usage import UsageCounter

logger = logging.getLogger(__name__)

SETTLE_S = 2.0
REPORT_S = 10.0
HUNG_UP = 499  # what web servers note when the client left before there was a status

OnBegin = Callable[[CallBegun], Awaitable[None]]
OnCall = Callable[[CallMade], Awaitable[None]]


class Asked(Value, frozen=True, kw_only=True):
    """Who asked which model for what. Only a call that makes a model answer is `metered`."""

    worker: str
    session: str
    backend: str
    model: str
    dialect: Dialect
    stream: bool = False
    metered: bool = True


class Call:
    """One call under way: what has been seen of its answer so far. Reported exactly once.

    `owed` from when it goes out, unless the provider turns out not to bill it.
    """

    def __init__(self, asked: Asked, on_begin: OnBegin, on_call: OnCall) -> None:
        self.asked = asked
        self.owed = False
        self.scope = anyio.CancelScope()
        self.reported = anyio.Event()
        self.status = HUNG_UP
        self._counter: UsageCounter | None = None
        self._id = secrets.token_hex(8)
        self._on_begin = on_begin
        self._on_call = on_call
        self._began = time.monotonic()
        self._claimed = False

    async def begin(self) -> None:
        """Tell that the call goes out now."""
        asked = self.asked
        if asked.metered:
            begun = CallBegun(
                id=self._id, worker=asked.worker, backend=asked.backend, model=asked.model
            )
            try:
                await self._on_begin(begun)
            except Exception:
                logger.exception("a call of worker %r was not announced", asked.worker)
        self.owed = True

    def answered(self, status: int, *, stream: bool) -> None:
        """The answer begins."""
        self.status = status
        self._counter = UsageCounter(self.asked.dialect, stream=stream)

    @property
    def age(self) -> float:
        return time.monotonic() - self._began

    def feed(self, piece: bytes) -> None:
        if self._counter:
            self._counter.feed(piece)

    @property
    def ended(self) -> bool:
        """The stream has said its last word, though the connection may still be open."""
        return self._counter is not None and self._counter.ended

    @property
    def finished(self) -> bool:
        """The stream has told why it stops."""
        return self._counter is not None and self._counter.finished

    async def report(self, error: str = "") -> None:
        """Tell what the call took: the first time counts. Not stopped by a client that leaves."""
        if self._claimed:
            return
        self._claimed = True
        try:
            # Nobody to tell is no reason to break the answer: OpenCode would call again.
            with anyio.move_on_after(REPORT_S, shield=True):
                await self._tell(error)
        except Exception:
            logger.exception("a call of worker %r was not counted", self.asked.worker)
        finally:
            self.reported.set()

    async def _tell(self, error: str) -> None:
        if not self.asked.metered:
            return
        usage = self._counter.close() if self._counter else None
        await self._on_call(
            CallMade(
                id=self._id,
                worker=self.asked.worker,
                session=self.asked.session,
                backend=self.asked.backend,
                model=self.asked.model,
                status=self.status,
                usage=usage,
                whole=self._counter is not None and self._counter.whole,
                owed=self.owed,
                seconds=self.age,
                error=error or (self._counter.error if self._counter else ""),
            )
        )


class OpenCalls:
    """The calls that are under way."""

    def __init__(self) -> None:
        self._calls: set[Call] = set()

    @contextmanager
    def hold(self, call: Call) -> Generator[None]:
        self._calls.add(call)
        try:
            with call.scope:
                yield
        finally:
            self._calls.discard(call)

    async def settle(self, worker: str) -> None:
        """Return when every call of the worker has been reported, or after a bounded wait."""
        with anyio.move_on_after(SETTLE_S):
            while waiting := self._unreported(worker):
                await waiting.reported.wait()

    def _unreported(self, worker: str) -> Call | None:
        mine = (call for call in self._calls if call.asked.worker == worker)
        return next((call for call in mine if not call.reported.is_set()), None)

    def waiting(self, worker: str) -> float | None:
        """For how long the worker's oldest call has been under way; None if there is none."""
        ages = [call.age for call in self._calls if call.asked.worker == worker]
        return max(ages, default=None)

    def cancel_all(self) -> None:
        for call in self._calls:
            call.scope.cancel()
