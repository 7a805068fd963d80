"""Which of our requests still wait for their reply?"""

from itertools import count

import anyio
import msgspec
from msgspec import UNSET, Raw

from goent.domain.errors import GoentError
from goent.rpc.errors import BadReply, ConnectionLost, RpcError
from goent.rpc.wire import ABSENT, Envelope, ErrorBody


class Call:
    """One request under way. `inside` marks one that a notification's handler waits for."""

    __slots__ = ("inside", "number", "outcome", "settled")

    def __init__(self, number: int, *, inside: bool) -> None:
        self.number = number
        self.inside = inside
        self.settled = anyio.Event()
        self.outcome: Raw | GoentError = ABSENT

    def settle(self, outcome: Raw | GoentError) -> None:
        self.outcome = outcome
        self.settled.set()


class Calls:
    """The replies that are still to come, by the id we gave the request."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[bytes, Call] = {}
        self._lost = ""

    def __len__(self) -> int:
        return len(self._open)

    def number(self) -> int:
        return next(self._numbers)

    def open(self, number: int, *, inside: bool) -> Call:
        if self._lost:
            raise ConnectionLost(self._lost)
        call = Call(number, inside=inside)
        self._open[b"%d" % call.number] = call
        return call

    def abandon(self, call: Call) -> bool:
        """Forget the call; True if its reply had not come."""
        return self._open.pop(b"%d" % call.number, None) is not None

    def waits_inside(self, message: Envelope) -> bool:
        call = self._open.get(bytes(message.id))
        return call is not None and call.inside

    def settle(self, message: Envelope) -> None:
        """A reply that nobody waits for is dropped: it came too late, or was never asked for."""
        call = self._open.pop(bytes(message.id), None)
        if call is not None:
            refused = bytes(message.error) not in (b"", b"null")
            call.settle(_reason(message.error) if refused else message.result)

    def fail(self, number: bytes, reason: GoentError) -> bool:
        """The reply has come and is of no use; False if nobody waits for it."""
        call = self._open.pop(number, None)
        if call is not None:
            call.settle(reason)
        return call is not None

    def fail_inside(self, reason: GoentError) -> None:
        for key, call in list(self._open.items()):
            if call.inside:
                self._open.pop(key).settle(reason)

    def refuse_new(self, reason: str) -> None:
        self._lost = self._lost or reason

    def close(self, reason: str) -> None:
        """No reply can come any more, and no request can go."""
        self.refuse_new(reason)
        while self._open:
            self._open.popitem()[1].settle(ConnectionLost(self._lost))


def _reason(error: Raw) -> GoentError:
    try:
        body = msgspec.json.decode(error, type=ErrorBody)
    except msgspec.DecodeError as cause:
        return BadReply(f"the peer refused in words of its own: {bytes(error)[:200]!r} ({cause})")
    return RpcError(body.code, body.message, None if body.data is UNSET else body.data)
