"""What is told about a try: when it begins, and once when it is over, before the asker sees the end.

The asker's program ends its turn with the last bytes, and whoever waits for the turn then reads the
figures. So the figures go first.
"""

import logging
import random
import secrets

import anyio

from goent.domain.calls import CallBegun, CallMade, CallSize, CallWitness, Hindrance
from goent.domain.errors import AtLimit, WorkerError
from goent.upstream.attempt import Attempt
from goent.upstream.course import Order
from goent.upstream.gauge import Gauge

logger = logging.getLogger(__name__)

REPORT_S = 10.0
LONGEST_QUEUE_S = 300.0  # for a limit of our own to have room
HUNG_UP = 499  # what web servers note when the client left before there was a status
CUT_OFF = "cut off before the answer's end: the worker hung up, or go-ent ended"


class Report:
    """The report on one try. Nobody to tell is no reason to break the answer."""

    def __init__(self, witness: CallWitness, gauge: Gauge, order: Order, attempt: Attempt) -> None:
        self._witness = witness
        self._gauge = gauge
        self._order = order
        self._attempt = attempt
        self._id = secrets.token_hex(8)
        self._made = False
        self._sized: CallSize | None = None

    async def begin(self, *, patient: bool) -> None:
        """The call is about to go out; this returns when it may.

        `patient`: nobody else could be asked, so that it waits where it would otherwise be `AtLimit`.
        """
        try:
            await self._wait(patient=patient)
        except anyio.get_cancelled_exc_class():
            await self.make(CUT_OFF)  # it may have been let go in the same moment
            raise

    async def _wait(self, *, patient: bool) -> None:
        told, waited = "", 0.0
        while hindrance := await self._ask():
            if not patient or waited >= LONGEST_QUEUE_S:
                raise AtLimit(hindrance.reason, retry_after_s=hindrance.wait_s)
            if hindrance.reason != told:
                told = hindrance.reason
                await self._witness.noticed(self._order.worker, f"waiting: {told}")
            pause = min(hindrance.wait_s * random.uniform(1, 1.5), LONGEST_QUEUE_S)  # noqa: S311 (spreads calls)
            await anyio.sleep(pause)
            waited += pause

    async def _ask(self) -> Hindrance | None:
        provider = self._attempt.target.provider
        call = CallBegun(
            id=self._id,
            worker=self._order.worker,
            backend=provider.backend,
            model=provider.model,
        )
        try:
            return await self._witness.begun(call, self._size)
        except WorkerError:
            raise
        except Exception:
            logger.exception("a call of worker %r was not announced", self._order.worker)
            return None

    async def _size(self) -> CallSize:
        if self._sized is None:
            self._sized = await self._gauge.size(self._order, self._attempt.target)
        return self._sized

    async def make(self, error: str = "") -> None:
        """The first time counts. Not stopped by an asker who leaves."""
        if self._made:
            return
        self._made = True
        try:
            with anyio.move_on_after(REPORT_S, shield=True):
                await self._witness.metered(await self._call_made(error))
        except Exception:
            logger.exception("a call of worker %r was not counted", self._order.worker)

    async def _call_made(self, error: str) -> CallMade:
        attempt, provider = self._attempt, self._attempt.target.provider
        usage, whole = attempt.tally.usage, attempt.tally.stopped
        if usage and whole:
            await self._gauge.learn(self._order, attempt.target, usage)
        return CallMade(
            id=self._id,
            worker=self._order.worker,
            session=self._order.session,
            backend=provider.backend,
            model=provider.model,
            status=attempt.status or HUNG_UP,
            usage=usage,
            whole=whole,
            owed=attempt.owed,
            seconds=attempt.seconds,
            error=error,
        )
