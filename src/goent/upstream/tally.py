"""What has an answer said so far, and what did it cost?"""

from collections.abc import Sequence

import msgspec

from goent.domain.types import Usage
from goent.llm.talk import Chunk, ReasoningPiece, Stopped, TextPiece, ToolPiece, UsageTold


class Tally:
    """Fed with the pieces of one answer."""

    def __init__(self) -> None:
        self.stopped = False
        self.usage: Usage | None = None
        self._said: list[str] = []
        self._calls: dict[int, list[str]] = {}

    def note(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            match chunk:
                case TextPiece() | ReasoningPiece():
                    self._said.append(chunk.text)
                case ToolPiece():
                    self._calls.setdefault(chunk.index, []).append(chunk.arguments)
                    self._said.append(chunk.name)
                case UsageTold():
                    self.usage = chunk.usage
                case Stopped():
                    self.stopped = True
                case _:
                    pass

    @property
    def calls_are_whole(self) -> bool:
        return all(_is_json("".join(pieces)) for pieces in self._calls.values())

    @property
    def spoken(self) -> str:
        """All that the model produced, for an estimate of its tokens."""
        arguments = (piece for pieces in self._calls.values() for piece in pieces)
        return "".join((*self._said, *arguments))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
