"""What lasts from one prompt of a conversation to the next?"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio

from goent.domain.errors import ProtocolError
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.usage import Spending
from goent.evals.targets.opencode.logs import StreamLog

CLEAN_UP: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Thread:
    """The session, which of its messages were read and what of it was paid already, and its log."""

    log: StreamLog
    session: str = ""
    seen: set[str] = field(default_factory=set[str])
    spending: Spending | None = None


async def forget(client: Client, session: str) -> None:
    """Delete a session; of a server that is gone there is nothing to delete."""
    with anyio.move_on_after(CLEAN_UP, shield=True), suppress(ProtocolError):
        await client.delete(session)
