"""How does what happens become known? Kept first, then told to the client."""

from collections.abc import Sequence
from datetime import UTC, datetime

from goent.agent.compaction import USUAL_WINDOW
from goent.agent.events import (
    AnyAgentEvent,
    Noticed,
    OptionsChanged,
    PlanChanged,
    Retitled,
    UsageChanged,
)
from goent.agent.memory import Memory
from goent.agent.ports import Client, Question, Rejection
from goent.agent.records import AnyRecord, Planned, Ran, Set, Spent, Titled, Told
from goent.domain.errors import EnvironmentTrouble
from goent.domain.types import Answer


class Voice:
    """One session's, towards its client. `window` is that of the model it thinks with."""

    def __init__(self, memory: Memory, client: Client) -> None:
        self.window = USUAL_WINDOW
        self.memory = memory
        self._client = client
        self._unkept = False

    async def tell(self, event: AnyAgentEvent) -> None:
        await self._client.tell(self.memory.id, event)

    async def ask(self, question: Question) -> Answer | Rejection | None:
        return await self._client.ask(self.memory.id, question)

    async def keep(self, records: Sequence[AnyRecord]) -> None:
        """A disk that refuses does not end the work; the user is told, once."""
        try:
            await self.memory.keep(records)
        except EnvironmentTrouble as trouble:
            if not self._unkept:
                await self.tell(Noticed(text=f"this session is not kept on disk: {trouble}"))
            self._unkept = True
        else:
            self._unkept = False
        for record in records:
            await self._tell_of(record)

    async def greet(self) -> None:
        """What a client shows of a session that it opens again."""
        if self.memory.begun:
            await self._tell_title()
            await self._tell_usage()

    async def _tell_of(self, record: AnyRecord) -> None:
        match record:
            case Ran(call=call):
                await self.tell(call)
            case Planned(entries=entries):
                await self.tell(PlanChanged(entries=entries))
            case Told(text=text):
                await self.tell(Noticed(text=text))
            case Titled():
                await self._tell_title()
            case Spent():
                await self._tell_usage()
            case Set():
                await self.tell(OptionsChanged())
            case _:
                pass

    async def _tell_title(self) -> None:
        at = datetime.fromtimestamp(self.memory.updated_at, UTC)
        await self.tell(Retitled(title=self.memory.title, updated_at=at.isoformat()))

    async def _tell_usage(self) -> None:
        memory = self.memory
        await self.tell(UsageChanged(used=memory.used, size=self.window, cost_usd=memory.cost_usd))
