"""What has the asker been told so far, whoever told it?

The pieces of several targets become one answer: the first one's as they came over the wire, if the
asker speaks that dialect; those of the next as the rest of it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from io import StringIO
from typing import NamedTuple

from goent.domain.types import Dialect
from goent.llm.place import START, Place
from goent.llm.sse import SseEvent
from goent.llm.talk import Chunk, ReasoningPiece, TextPiece, UsageTold
from goent.upstream.continuing import Rest


class Streamed(NamedTuple):
    """A piece of an answer. `event` is how it came, if it can be passed on like that.

    `place` is how far the message has got with it, in the dialect of the event.
    """

    chunks: tuple[Chunk, ...]
    event: SseEvent | None = None
    place: Place = START


Take = Callable[[Sequence[Streamed]], Awaitable[None]]


class Said:
    """One answer on its way to the asker."""

    def __init__(self, dialect: Dialect, take: Take) -> None:
        self._dialect = dialect
        self._take = take
        self._text = StringIO()  # pieces of a word each would take ten times the room
        self._begun = False

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def following(self, dialect: Dialect) -> Take:
        """Where the next target's pieces go, which come in that dialect."""
        if dialect == self._dialect and not self._begun:
            return self._pass
        rest = Rest(self.text)

        async def take(pieces: Sequence[Streamed]) -> None:
            chunks = tuple(
                new for piece in pieces for chunk in piece.chunks for new in _new(chunk, rest)
            )
            if chunks:
                await self._pass([Streamed(chunks)])

        return take

    async def _pass(self, pieces: Sequence[Streamed]) -> None:
        self._begun = True
        for piece in pieces:
            for chunk in piece.chunks:
                if isinstance(chunk, TextPiece):
                    self._text.write(chunk.text)
        await self._take(pieces)


def _new(chunk: Chunk, rest: Rest) -> Iterable[Chunk]:
    """The chunk without what was said before; text that was held back goes before what follows."""
    if isinstance(chunk, TextPiece):
        text, following = rest.feed(chunk.text), ()
    elif isinstance(chunk, ReasoningPiece | UsageTold):
        return (chunk,)
    else:
        text, following = rest.close(), (chunk,)
    return (TextPiece(text=text), *following) if text else following
