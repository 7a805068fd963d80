"""What is told about a try: when it begins, and once when it is over, before the asker sees the end.

The asker's program ends its turn with the last bytes, and whoever waits for the turn then reads the
figures. So the figures go first.
"""

import logging
import secrets

import anyio

from goent.domain.ports import CallBegun, CallMade, CallWitness
from goent.upstream.attempt import Attempt
from goent.upstream.course import Order
from goent.upstream.gauge import Gauge

logger = logging.getLogger(__name__)

REPORT_S = 10.0
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

    async def begin(self) -> None:
        """The call is about to go out."""
        provider = self._attempt.target.provider
        begun = CallBegun(
            id=self._id,
            worker=self._order.worker,
            backend=provider.backend,
            model=provider.model,
        )
        try:
            await self._witness.begun(begun)
        except Exception:
            logger.exception("a call of worker %r was not announced", self._order.worker)

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
