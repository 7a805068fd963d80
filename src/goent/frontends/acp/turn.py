"""How does a turn begin, and how does it end whatever happens to whoever asked for it?"""

import logging
from collections.abc import Sequence

import anyio

from goent.agent.content import Given
from goent.agent.session import AgentSession, TurnEnd
from goent.domain.errors import GoentError
from goent.domain.types import Usage
from goent.frontends.acp.stream import Stream

_log = logging.getLogger(__name__)

GRACE = 10.0  # seconds for a cancelled turn to end by itself

CANCELLED = TurnEnd(stop_reason="cancelled", text="", usage=Usage(), cost_usd=None)


class Turn:
    """One turn. It runs in a task of its own: a request that is dropped must not tear it apart."""

    def __init__(self, session: AgentSession, stream: Stream, given: Sequence[Given]) -> None:
        self._session = session
        self._stream = stream
        self._given = given
        self._scope = anyio.CancelScope()
        self._cancelled = False
        self._outcome: TurnEnd | Exception = CANCELLED
        self.over = anyio.Event()

    async def run(self) -> None:
        """`over` is set when the session is free again and the client was told everything."""
        try:
            await self._take()
            await self._stream.flushed()
        finally:
            self.over.set()

    async def _take(self) -> None:
        try:
            with self._scope:
                if not self._cancelled:
                    self._outcome = await self._session.prompt(self._given)
        except Exception as error:  # noqa: BLE001 (it is raised to whoever asked)
            self._outcome = error

    def cancel(self) -> None:
        """May come at any moment: before the session has heard of the turn, and more than once."""
        if not self._cancelled:
            self._cancelled = True
            self._scope.deadline = anyio.current_time() + GRACE
        self._session.cancel()

    def end(self) -> TurnEnd:
        """How it ended; what went wrong because it was cancelled is no error."""
        if isinstance(self._outcome, TurnEnd):
            return self._outcome
        if self._cancelled:
            if not isinstance(self._outcome, GoentError):
                _log.error("a cancelled turn failed", exc_info=self._outcome)
            return CANCELLED
        raise self._outcome

    def said(self) -> str:
        """What was said in it, however it ended."""
        return self._outcome.text if isinstance(self._outcome, TurnEnd) else ""
