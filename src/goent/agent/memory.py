"""What does a session know of itself? Its records, kept before anybody acts on them."""

import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import count

import anyio

from goent.agent.events import AnyAgentEvent
from goent.agent.records import (
    Answered,
    AnyRecord,
    Compacted,
    Prompted,
    Ran,
    Set,
    Spent,
    Titled,
    conversation,
    decode,
    encode,
    history,
    parts_of,
)
from goent.domain.types import Usage
from goent.llm.estimate import estimate_tokens
from goent.llm.talk import Message, Text
from goent.store.sessions import KeptSession, SqliteSessions


class Memory:
    """The records of one session, and what they come to."""

    def __init__(
        self,
        shelf: SqliteSessions,
        session: str,
        cwd: str,
        *,
        records: Sequence[bytes] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.id = session
        self.cwd = cwd
        self.title = ""
        self.set: Set | None = None
        self.usage = Usage()
        self.used = 0  # tokens of the context
        self.begun = False  # something has been asked
        self.cost_usd: Decimal | None = Decimal(0)
        self.updated_at = clock()
        self._shelf = shelf
        self._clock = clock
        self._writing = anyio.Lock()
        self._records: list[AnyRecord] = []
        self._ids: set[str] = set()
        self._answers = 0
        self._counted = False
        for body in records:
            self._note(decode(body))
        self._stored = len(self._records)

    async def keep(self, records: Sequence[AnyRecord]) -> None:
        """Known as soon as this is called, and on disk when it returns.

        What a disk refuses is tried again with what comes next.
        """
        for record in records:
            self._note(record)
        self.updated_at = self._clock()
        async with self._writing:
            fresh = self._records[self._stored :]
            kept = KeptSession(
                id=self.id, cwd=self.cwd, title=self.title, updated_at=self.updated_at
            )
            await self._shelf.append(kept, self._stored, [encode(record) for record in fresh])
            self._stored += len(fresh)

    def conversation(self) -> tuple[Message, ...]:
        return conversation(self._records)

    def history(self) -> Iterator[AnyAgentEvent]:
        return history(self._records)

    def own_id(self, call: str) -> str:
        """An id for a call that the session has not had yet: a vendor may give one twice."""
        others = (f"{call or 'call'}_{number}" for number in count(2))
        own = (
            call
            if call and call not in self._ids
            else next(o for o in others if o not in self._ids)
        )
        self._ids.add(own)
        return own

    def new_message(self) -> str:
        return f"m{len(self._records)}"

    @property
    def last_prompt(self) -> str:
        asked = (record for record in reversed(self._records) if isinstance(record, Prompted))
        prompt = next(asked, None)
        parts = parts_of(prompt.given) if prompt else ()
        return "\n".join(part.text for part in parts if isinstance(part, Text))

    @property
    def can_shrink(self) -> bool:
        """More has been said since it was last summed up than one prompt."""
        return self._answers > 0

    def _note(self, record: AnyRecord) -> None:
        self._records.append(record)
        match record:
            case Titled(title=title):
                self.title = title
            case Set():
                self.set = record
            case Spent():
                self._spend(record)
            case Answered():
                self._answers += 1
                self._ids.update(piece.id for piece in record.pieces)
                if not self._counted:
                    self.used += sum(estimate_tokens(piece.text) for piece in record.pieces)
                self._counted = False
            case Prompted():
                self.begun = True
                self.used += estimate_tokens(self.last_prompt)
            case Ran():
                self.used += estimate_tokens(record.text)
            case Compacted():
                self._answers, self.used = 0, estimate_tokens(record.summary)
            case _:
                pass

    def _spend(self, spent: Spent) -> None:
        self.usage += spent.usage
        if self.cost_usd is None or spent.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += spent.cost_usd
        if spent.usage.total:  # the whole context, by the provider's own count
            self.used, self._counted = spent.usage.total, True
