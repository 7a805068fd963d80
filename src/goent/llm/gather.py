"""What has a model said, all in all? Its chunks put together."""

from collections.abc import Iterable

from goent.domain.types import Usage, Value
from goent.llm.calls import CallsInPieces
from goent.llm.talk import (
    Broken,
    Chunk,
    Message,
    Part,
    Reasoning,
    ReasoningPiece,
    Stopped,
    StopReason,
    Text,
    TextPiece,
    ToolPiece,
    ToolUse,
    UsageTold,
)


class Gathered(Value, frozen=True, kw_only=True):
    """A whole answer. `stopped` is None if it broke off; `broken` says why, if that was told."""

    parts: tuple[Part, ...]
    usage: Usage | None = None
    stopped: StopReason | None = None
    broken: Broken | None = None

    @property
    def message(self) -> Message:
        """As it goes into the next request."""
        return Message(role="assistant", parts=self.parts)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolUse))

    @property
    def reason(self) -> StopReason:
        """Why it stopped, or what is nearest to it."""
        return self.stopped or ("tool_calls" if self.calls else "end")


class _Open:
    """A part that may go on. Pieces are joined at the end: there may be very many."""

    def __init__(self, first: TextPiece | ReasoningPiece | ToolPiece) -> None:
        self._pieces = [first]

    @property
    def first(self) -> TextPiece | ReasoningPiece | ToolPiece:
        return self._pieces[0]

    def add(self, piece: TextPiece | ReasoningPiece | ToolPiece) -> None:
        self._pieces.append(piece)

    def takes(self, piece: TextPiece | ReasoningPiece) -> bool:
        """Whether the piece goes on with this part: a signature ends a stretch of thought."""
        last = self._pieces[-1]
        if isinstance(last, ReasoningPiece) and isinstance(piece, ReasoningPiece):
            return not (last.signature or last.redacted or piece.redacted)
        return isinstance(last, TextPiece) and isinstance(piece, TextPiece)

    def part(self) -> Part:
        pieces, first = self._pieces, self._pieces[0]
        if isinstance(first, ToolPiece):
            told = "".join(piece.arguments for piece in pieces if isinstance(piece, ToolPiece))
            return ToolUse(id=first.id, name=first.name, arguments=told or "{}")
        text = "".join(piece.text for piece in pieces if not isinstance(piece, ToolPiece))
        if isinstance(first, TextPiece):
            return Text(text=text)
        last = pieces[-1]
        signature = last.signature if isinstance(last, ReasoningPiece) else ""
        return Reasoning(text=text, signature=signature, redacted=first.redacted)


class Gathering:
    """Takes chunks one by one; `gathered` may be asked at any time."""

    def __init__(self) -> None:
        self._parts: list[_Open] = []
        self._calls = CallsInPieces()
        self._by_number: dict[int, _Open] = {}
        self._usage: Usage | None = None
        self._stopped: StopReason | None = None
        self._broken: Broken | None = None

    def add(self, chunk: Chunk) -> None:
        match chunk:
            case TextPiece() | ReasoningPiece():
                if self._parts and self._parts[-1].takes(chunk):
                    self._parts[-1].add(chunk)
                else:
                    self._parts.append(_Open(chunk))
            case ToolPiece():
                self._take(self._calls.add(chunk))
            case UsageTold(usage=usage):
                self._usage = usage
            case Stopped(reason=reason):
                self._take(self._calls.rest())
                self._stopped = reason
            case Broken():
                self._broken = chunk

    def gathered(self) -> Gathered:
        """Calls that have no name, or as yet no id, are not in it."""
        return Gathered(
            parts=tuple(part.part() for part in self._parts),
            usage=self._usage,
            stopped=self._stopped,
            broken=self._broken,
        )

    def _take(self, pieces: Iterable[ToolPiece]) -> None:
        for piece in pieces:
            if piece.name:
                self._by_number[piece.index] = _Open(piece)
                self._parts.append(self._by_number[piece.index])
            else:
                self._by_number[piece.index].add(piece)


def gather(chunks: Iterable[Chunk]) -> Gathered:
    gathering = Gathering()
    for chunk in chunks:
        gathering.add(chunk)
    return gathering.gathered()
