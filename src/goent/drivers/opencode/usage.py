"""What did a turn cost when its model calls bypass the gate? OpenCode's own figures tell."""

from decimal import Decimal

from goent.domain.errors import ProtocolError
from goent.domain.events import UsageReported
from goent.domain.types import Provider, Usage
from goent.drivers.opencode.inner import Inner


class Spending:
    """A session's tokens and cost, subagents included, from one turn to the next."""

    def __init__(self, inner: Inner, provider: Provider, session: str) -> None:
        self._inner = inner
        self._provider = provider
        self._session = session
        self._before = (Usage(), Decimal(0))

    async def begin(self) -> None:
        self._before = await self._total()

    async def report(self) -> UsageReported | None:
        """What was used since `begin`; a price that OpenCode does not know is unknown, not 0."""
        try:
            usage, cost = await self._total()
        except ProtocolError:
            return None  # the process is gone, and with it the figures
        before, spent = self._before
        used = Usage(
            input=usage.input - before.input,
            output=usage.output - before.output,
            cache_read=usage.cache_read - before.cache_read,
            cache_write=usage.cache_write - before.cache_write,
            reasoning=usage.reasoning - before.reasoning,
        )
        if not used.total:
            return None
        return UsageReported(
            provider=self._provider.name,
            model=self._provider.model,
            usage=used,
            cost_usd=cost - spent if cost > spent else None,
            source="opencode",
        )

    async def _total(self) -> tuple[Usage, Decimal]:
        own = await self._inner.session(self._session)
        sessions = [own, *await self._inner.children(self._session)]
        usage = sum((each.usage for each in sessions), Usage())
        return usage, sum((each.cost_usd for each in sessions), Decimal(0))
