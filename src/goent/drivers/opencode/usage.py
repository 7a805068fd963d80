"""What did a turn cost when its model calls bypass the gate? OpenCode's own figures tell."""

from decimal import Decimal

from goent.domain.errors import ProtocolError
from goent.domain.events import UsageReported
from goent.domain.types import Provider, Usage
from goent.drivers.opencode.client import Client


class Spending:
    """A session's tokens and cost, subagents included, from one report to the next."""

    def __init__(self, client: Client, provider: Provider, session: str) -> None:
        self._client = client
        self._provider = provider
        self._session = session
        self._reported = (Usage(), Decimal(0))

    def at(self, client: Client) -> "Spending":
        """The same session in another process; what the last one did not report is still owed."""
        moved = Spending(client, self._provider, self._session)
        moved._reported = self._reported
        return moved

    async def skip(self) -> None:
        """What was used so far is somebody else's to tell."""
        self._reported = await self._total()

    async def report(self) -> UsageReported | None:
        """What was used since the last one; a price that OpenCode does not know is unknown."""
        try:
            usage, cost = await self._total()
        except ProtocolError:
            return None  # the process is gone: another one knows the figures too
        before, spent = self._reported
        self._reported = (usage, cost)
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
            cost_usd=cost - spent if cost > spent else self._own_cost(used),
            source="opencode",
        )

    def _own_cost(self, used: Usage) -> Decimal | None:
        """OpenCode says 0 of what it has no price for; a price of 0 that a file gives is known."""
        return self._provider.price.cost(used) if self._provider.price else None

    async def _total(self) -> tuple[Usage, Decimal]:
        sessions = [await self._client.session(self._session)]
        known = {self._session}
        for each in sessions:  # while it grows: a subagent may have its own
            children = await self._client.children(each.id)
            sessions += [child for child in children if child.id not in known]
            known.update(child.id for child in children)
        usage = sum((each.usage for each in sessions), Usage())
        return usage, sum((each.cost_usd for each in sessions), Decimal(0))
